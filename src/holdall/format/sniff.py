"""Names files that are of no format that holdall reads, and says what to do with them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from holdall.base.text import list_text
from holdall.format.foreign import Content
from holdall.format.foreign.packed import name_packed
from holdall.format.foreign.pickles import name_pickle
from holdall.format.foreign.protobufs import name_protobuf
from holdall.format.weight_files import is_training_state

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["EXPORTED", "name_content", "name_folder"]

_FRONT = 1 << 16  # bytes at the beginning of a file that are looked at


EXPORTED = (
    "is a program of torch.export (.pt2): load it with torch.export.load, and save its state_dict with safetensors"
)
_FAILED = "the download may have failed"
_UNPACK = "unpack it first"
_ONNX = "open the ONNX model that it was made of"
# What files begin with: the place of the bytes, the bytes, the kind of file, and what to do.
_MARKS = (
    (
        4,
        b"TFL3",
        "a TensorFlow Lite (LiteRT) model",
        "export its original to ONNX or safetensors",
    ),
    (4, b"ORTM", "a model in the internal format of ONNX Runtime (.ort)", _ONNX),
    (4, b"PTMF", "a PyTorch model for mobile devices (flatbuffer)", "open the checkpoint that it was made of"),
    (4, b"ET12", "an ExecuTorch program", "open the checkpoint that it was exported from"),
    (64, b"\xef\xbe\xad\xde", "the file of weights of a Core ML package", "open the model that it was converted from"),
    (0, b"LITERTLM", "a LiteRT-LM bundle", "open the checkpoint that it was made of"),
    (0, b"ftrt", "a TensorRT engine, built for one GPU and one version of TensorRT", _ONNX),
    (0, b"ptrt", "a TensorRT engine, built for one GPU and one version of TensorRT", _ONNX),
    (0, b"RKNN", "a model for Rockchip NPUs", _ONNX),
    (0, b"ML\xefR", "MLIR bytecode, such as StableHLO", "export the weights from the framework"),
    (0, b"\x12\x01\0\0\0\0\0\0", "a parameter file of MXNet", "read it with mxnet.nd.load and save npz"),
    (0, b"lmgg", "a ggml file from before GGUF", "convert it with a version of llama.cpp or whisper.cpp of its time"),
    (0, b"fmgg", "a ggml file from before GGUF", "convert it with a version of llama.cpp of its time"),
    (0, b"tjgg", "a ggml file from before GGUF", "convert it with a version of llama.cpp of its time"),
    (0, b"\xba\x16\x4f\x2f", "a fastText model", "read it with fasttext, and save get_input_matrix() with numpy"),
    (0, b"lCRF", "a CRFsuite model", "read it with pycrfsuite"),
    (0, b"7767517\n", "the graph of an ncnn model", _ONNX),
    (0, b"\x47\x6b\x30\x01", "a file of weights of ncnn", _ONNX),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", _UNPACK),
    (0, b"\x01\x01\x01\rloss_metric_", "a network of dlib", "save the weights from the program that made it"),
    (0, b"\xd6\xfd\xb2\x7e", "a transducer of OpenFst", ""),
    (0, b"Trie Language Mo", "a language model of PocketSphinx", ""),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (257, b"ustar", "a tar archive, as NeMo checkpoints are", _UNPACK),
    (0, b"\x89PNG", "a picture", ""),
    (0, b"\xff\xd8\xff", "a picture", ""),
    (0, b"%PDF", "a PDF document", ""),
    (0, b"\x7fELF", "a program", ""),
)
_HDF5 = b"\x89HDF\r\n\x1a\n"
_KERAS = (b"keras_version", b"layer_names", b"model_weights")
_EXPORTED = (b"/models/model.json", b"/archive_format", b"serialized_exported_program.json")
_TEXT = 8  # the least bytes that are called text: other files may begin with a few letters too
# How ONNX models begin that are no protobuf message, and what onnx.load calls that form.
_ONNX_TEXTS = (
    (re.compile(rb'\s*\{\s*"ir_?[vV]ersion"\s*:'), "JSON", "json"),
    (re.compile(rb"\s*<\s*ir_version\s*:"), "text", "onnxtxt"),
    (re.compile(rb"\s*ir_version\s*:\s*\d"), "text", "textproto"),
)
_PAGE = re.compile(rb"\s*<(!doctype html|html|head|!--)", re.IGNORECASE)
_MEMBER = re.compile(rb"PK\x03\x04.{22}(..)..", re.DOTALL)


def name_content(source: Source) -> Content | None:
    """Name a file by what it begins with; None for unknown content.

    >>> from holdall.source import BytesSource
    >>> name_content(BytesSource(b"<!DOCTYPE html>"))
    Content(text='is an HTML page: the download may have failed', failed=True)
    >>> name_content(BytesSource(b"hello world, this is a text")).text
    "is text, which begins with 'hello world, this is a text'"
    """
    if not source.size:
        return Content("is an empty file", failed=True)
    front = source.read(0, min(_FRONT, source.size))
    if front.startswith(b"version https://git-lfs.github.com/spec/"):
        return Content("is a Git LFS pointer: the file itself was not downloaded", failed=True)
    for place, mark, what, advice in _MARKS:
        if front[place : place + len(mark)] == mark:
            return Content(f"is {what}" + (f": {advice}" if advice else ""))
    if front.startswith(_HDF5):
        return _name_hdf5(front)
    if front.startswith(b"PK\x03\x04"):
        return _name_zip(front)
    return (
        name_packed(source, front)
        or name_pickle(source, front)
        or name_protobuf(front, source.size)
        or _name_text(front)
    )


def _name_hdf5(front: bytes) -> Content:
    what = " of Keras weights" if any(word in front for word in _KERAS) else ""
    return Content(f"is an HDF5 file{what}: read it with h5py and save safetensors or npz")


def _name_zip(front: bytes) -> Content | None:
    """Name a zip archive by the names of its first members."""
    names = {
        front[found.end() : found.end() + int.from_bytes(found[1], "little")] for found in _MEMBER.finditer(front)
    }  # fmt: skip
    if b"model.weights.h5" in names or {b"metadata.json", b"config.json"} <= names:
        return Content("is a Keras model: load it with keras and save its weights as npz or safetensors")
    if any(b"/data/weights/" in name or name.endswith(_EXPORTED) for name in names):
        return Content(EXPORTED)
    if any(name.endswith((b".mlmodel", b"com.apple.CoreML/")) for name in names):
        return Content("is a zipped Core ML package: open the model that it was converted from")
    return Content(f"is a zip archive without tensors that holdall knows: {_UNPACK}")


def _name_text(front: bytes) -> Content | None:
    if front.lstrip().startswith(b"<?xml"):
        if b"<net " in front:
            return Content("is the graph of an OpenVINO model: open the model that it was converted from")
        return Content("is an XML document")
    if _PAGE.match(front):
        return Content(f"is an HTML page: {_FAILED}", failed=True)
    for pattern, form, known in _ONNX_TEXTS:
        if pattern.match(front):
            return Content(f"is an ONNX model as {form}: load it with onnx.load(path, {known!r}), then use onnx.save")
    head = front[:64]
    if not head.strip(b"\0"):
        return Content(f"begins with zeros only: {_FAILED}", failed=True)
    text = head.decode("utf-8", "ignore")
    if (
        len(head) >= _TEXT
        and len(text.encode()) >= len(head) - 3
        and all(letter.isprintable() or letter in "\t\r\n" for letter in text)
    ):
        return Content(f"is text, which begins with {text[:40]!r}")
    return None


def name_folder(names: Collection[str], suffixes: tuple[str, ...]) -> str:
    """Name a folder by the names in it, or name the files in it that may be models; empty for unknown content.

    >>> name_folder(["saved_model.pb", "variables"], ())
    'is a TensorFlow SavedModel: export it to ONNX, or save its variables with numpy.savez'
    >>> name_folder(["model.pth", "notes.txt"], (".pth",))
    'is a folder, and no model by itself: open the file model.pth in it'
    >>> name_folder(["pytorch_model.bin", "training_args.bin"], (".bin",)).partition(": ")[2]
    'open the file pytorch_model.bin in it. Beside it is training state: training_args.bin'
    """
    if "saved_model.pb" in names:
        return "is a TensorFlow SavedModel: export it to ONNX, or save its variables with numpy.savez"
    if "Manifest.json" in names and "Data" in names:
        return "is a Core ML package: open the model that it was converted from"
    if any(".data-00000-of-" in name for name in names):
        return "is a TensorFlow checkpoint: save its variables with numpy.savez"
    files = [name for name in names if name.lower().endswith(suffixes)]
    states = [name for name in files if is_training_state(name)]
    files = [name for name in files if name not in states] or files
    if not files:
        return ""
    which = f"the file {files[0]} in it" if len(files) == 1 else f"its files one by one: {list_text(files)}"
    beside = f". Beside {'it' if len(files) == 1 else 'them'} is training state: {list_text(states)}"
    return f"is a folder, and no model by itself: open {which}" + (beside if states and files != states else "")
