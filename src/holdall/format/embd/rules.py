"""The rules of an EMBD file, one row each."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

SIZE: Final = Rule("embd.header.size", "the file holds at least the 64-byte header and the 16-byte footer")
MAGIC: Final = Rule("embd.header.magic", "the file begins with EMBD")
DRAFT: Final = Rule("embd.header.draft", "the draft layout of 100-byte entries was never released")
VERSION: Final = Rule("embd.header.version", "version_major is 1")
COMPRESSED: Final = Rule("embd.header.compressed", "COMPRESSED, which the document reserves, is not set")
FILE_SIZE: Final = Rule("embd.header.file_size", "total_file_size is the exact size of the file")
HEADER_CRC: Final = Rule("embd.header.checksum", "header_checksum is the CRC-32 of bytes 0-55")
FLAGS: Final = Rule("embd.header.flags", "flag bits 4-31 are 0", "strict")
RESERVED: Final = Rule("embd.header.reserved", "the reserved words of header and footer are 0", severity="warning")
DATA_RANGE: Final = Rule("embd.header.data", "the tensor data lies after the header and ends at the footer")
SECTION: Final = Rule("embd.header.section", "metadata, vocabulary and index lie between header and tensor data")
OVERLAP: Final = Rule("embd.header.overlap", "sections do not overlap")
UNUSED_VOCAB: Final = Rule(
    "embd.header.vocab", "without VOCAB_EMBEDDED vocab_offset and vocab_size are 0", severity="warning"
)

META_SIZE: Final = Rule("embd.metadata.size", "metadata_size is 8 + total_size, the bytes of all entries")
META_ENTRY: Final = Rule("embd.metadata.entry", "entries fill their section exactly")
META_UTF8: Final = Rule("embd.metadata.utf8", "keys and values are UTF-8")

VOCAB_SIZE: Final = Rule("embd.vocab.size", "vocab_size is 12 + 20 + total_size, the bytes of all tokens")
VOCAB_SPECIAL: Final = Rule("embd.vocab.special", "special_tokens is the place of a table beside the tokens")
VOCAB_TOKEN: Final = Rule("embd.vocab.token", "tokens fill their section exactly")
VOCAB_UTF8: Final = Rule("embd.vocab.utf8", "tokens are UTF-8")

INDEX: Final = Rule("embd.index.size", "descriptors and names end before the tensor data")
NAME_UTF8: Final = Rule("embd.index.utf8", "names are UTF-8")
NAME_HASH: Final = Rule("embd.index.hash", "name_hash is the FNV-1a hash of the name")
DUPLICATE: Final = Rule("embd.index.duplicate", "names are unique")
DTYPE: Final = Rule("embd.tensor.dtype", "dtype is 0-8")
RANK: Final = Rule("embd.tensor.rank", "ndim is 1-4")
UNUSED_DIM: Final = Rule("embd.tensor.dims", "shape entries beyond ndim are 0")
PLACE: Final = Rule("embd.tensor.place", "payloads lie inside the tensor data")
TENSOR_ALIGN: Final = Rule("embd.tensor.align", "with TENSORS_ALIGNED every data_offset is a multiple of 64")
DATA_ALIGN: Final = Rule(
    "embd.data.align", "with TENSORS_ALIGNED tensor_data_offset is a multiple of 64 as well", severity="warning"
)
SHARED: Final = Rule("embd.data.overlap", "payloads share all their bytes or none", "strict")

END_MAGIC: Final = Rule("embd.footer.magic", "the footer holds DBME")
DATA_CRC: Final = Rule("embd.footer.data_checksum", "data_checksum is the CRC-32 of the tensor data", "full")
FILE_CRC: Final = Rule("embd.footer.file_checksum", "file_checksum is the CRC-32 of all before the footer", "full")

SEQ_HEADER: Final = Rule("embd.sequential.header", "a sequential file has version 1 and a 12-byte header")
SEQ_TENSOR: Final = Rule("embd.sequential.tensor", "tensors end inside the file")
SEQ_RANK: Final = Rule("embd.sequential.rank", "num_dims is 1-4")
SEQ_STRING: Final = Rule("embd.sequential.string", "strings are UTF-8 of at most 1 MiB")
SEQ_DUPLICATE: Final = Rule("embd.sequential.duplicate", "names are unique")
SEQ_VOCAB: Final = Rule("embd.sequential.vocab", "the vocabulary, if only its count, follows the tensors")
SEQ_TRAILING: Final = Rule("embd.sequential.trailing", "nothing follows the vocabulary of a file without tensors")
SEQ_IGNORED: Final = Rule("embd.sequential.ignored", "nothing follows the vocabulary", "strict")
SEQ_LOADER: Final = Rule(
    "embd.sequential.loader",
    "no dim is 0, and there are at most 100,000 tokens: the C++ loader refuses others",
    "strict",
    "warning",
)

MODEL_KEYS: Final = Rule("embd.model.keys", "the ten required metadata keys are there", severity="warning")
MODEL_VOCAB: Final = Rule("embd.model.vocab_size", "metadata vocab_size counts the tokens", severity="warning")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
