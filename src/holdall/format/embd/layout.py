"""The EMBD tables, as in the format's document. All integers little-endian, nothing aligned."""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import U8, U16, U32, U64, Layout, array, blob, elements, raw, text

__all__ = ["ALIGN", "ALIGNED", "CHECKSUMS", "COMPRESSED", "DTYPES", "DTYPE_CODE", "END_MAGIC", "FOOTER", "HEADER"]
__all__ += ["KEYS", "KNOWN_FLAGS", "MAGIC", "METADATA", "METADATA_HEAD", "NO_TOKEN", "SEQUENTIAL", "SEQ_TENSOR"]
__all__ += ["SEQ_TENSOR_HEAD", "SEQ_TOKEN", "SPECIAL", "TENSOR", "TOKEN", "VOCAB", "VOCAB_HEAD", "VOCAB_SPECIAL"]

MAGIC: Final = b"EMBD"
END_MAGIC: Final = b"DBME"
ALIGN: Final = 64

# The layout of the document: a header, four sections, a footer.
HEADER: Final = Layout(
    "header",
    magic=raw(4),
    version_major=U16,
    version_minor=U16,
    flags=U32,
    metadata_offset=U32,
    metadata_size=U32,
    vocab_offset=U32,
    vocab_size=U32,
    tensor_index_offset=U32,
    tensor_index_count=U32,
    tensor_data_offset=U32,
    tensor_data_size=U64,
    total_file_size=U64,
    header_checksum=U32,  # covers everything before it
    reserved=U32,
)

VOCAB, ALIGNED, CHECKSUMS, COMPRESSED = 1, 2, 4, 8  # bits of flags
KNOWN_FLAGS: Final = VOCAB | ALIGNED | CHECKSUMS | COMPRESSED

METADATA_HEAD: Final = Layout("metadata header", entry_count=U32, total_size=U32)

METADATA: Final = Layout(
    "metadata", key_length=U16, value_length=U16, key=blob("key_length"), value=blob("value_length")
)

VOCAB_HEAD: Final = Layout("vocabulary header", token_count=U32, total_size=U32, special_tokens=U32)

VOCAB_SPECIAL: Final = Layout("special tokens", pad_id=U32, unk_id=U32, cls_id=U32, sep_id=U32, mask_id=U32)

SPECIAL: Final = ("pad", "unk", "cls", "sep", "mask")  # as Vocab names them, in the order of the table
NO_TOKEN: Final = 0xFFFFFFFF  # stored for a special token that the vocabulary does not have

TOKEN: Final = Layout("token", token=text(U16))

TENSOR: Final = Layout(
    "tensor",
    name_hash=U32,
    dtype=U8,
    ndim=U8,
    name_length=U16,
    shape0=U32,
    shape1=U32,
    shape2=U32,
    shape3=U32,
    data_offset=U64,  # from tensor_data_offset; every other offset is from the start of the file
)

FOOTER: Final = Layout("footer", data_checksum=U32, file_checksum=U32, magic_end=raw(4), reserved=U32)

DTYPES: Final = ("f32", "f16", "bf16", "i32", "i16", "i8", "u32", "u16", "u8")  # by code
DTYPE_CODE: Final = {name: code for code, name in enumerate(DTYPES)}

# The metadata keys that the document requires.
KEYS: Final = (
    "model_name",
    "model_version",
    "embedding_dim",
    "vocab_size",
    "num_layers",
    "num_attention_heads",
    "hidden_size",
    "intermediate_size",
    "max_position_emb",
    "created_at",
)

# The sequential layout, which the existing converter writes and the C++ loader reads.
SEQUENTIAL: Final = Layout("header", magic=raw(4), version=U32, num_tensors=U32)

SEQ_TENSOR_HEAD: Final = Layout("tensor", name=text(U32), rank=U32)

SEQ_TENSOR: Final = Layout(
    "tensor", name=text(U32), rank=U32, dims=array(U32, "rank"), data=elements("rank", "dims", 4)
)

SEQ_TOKEN: Final = Layout("token", token=text(U32))  # tokens follow the tensors, after a u32 that counts them
