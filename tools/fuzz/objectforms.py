"""Forms of torch files that hold objects: see :mod:`tools.fuzz.torchforms`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

from tools.fuzz.zipforms import make_zip

__all__ = ["objects"]

_THING = b"cmine\nThing\n"
_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR"
_TYPE = b"cnumpy\ndtype\n(X\2\0\0\0f4\x89\x88tR(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"


def _list_values(text: Callable[[str], bytes], tensor: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield opcodes of one value each."""
    yield "state", _THING + b")\x81}" + text("a") + tensor + b"sb"
    yield "slots", _THING + b")\x81N}" + text("a") + tensor + b"s\x86b"
    yield "arguments", _THING + tensor + b"\x85R"
    yield "keywords", _THING + b")}" + text("a") + tensor + b"s\x92"
    yield "items", _THING + b")\x81(" + tensor + b"K\1e(" + text("k") + tensor + b"u"
    yield "old-classes", b"(K\1imine\nThing\n0(" + _THING + tensor + b"o"
    yield "called", _THING + b")R" + tensor + b"\x85R"
    slots = text("_parameters") + b"}" + text("w") + tensor + b"s" + text("_buffers") + b"}" + text("_modules")
    inner = b"cmine\nM\n)\x81}(" + slots + b"}" + text("up") + b"h\0ub"
    yield "module", b"cmine\nM\n)\x81q\0}(" + slots + b"}" + text("c") + inner + b"s" + text("up") + b"h\0ub"
    yield "script", b"c__torch__\nM\n)\x81}" + text("w") + tensor + b"sb"
    yield "lists", b"ctorch.jit._pickle\nbuild_tensorlist\n](" + tensor + b"e\x85R"
    yield "class", _THING
    yield "sets", b"\x8f(K\1K\2\x90(K\1\x91\x86"
    yield "bytes", b"\x96" + (3).to_bytes(8, "little") + b"abc"
    yield "keys", b"}(N" + tensor + b"K\1\x85K\2G?\xf0\0\0\0\0\0\0K\3" + _THING + b")\x81K\4u"
    yield "array", _ARRAY + b"(K\1K\2\x85" + _TYPE + b"\x89C\x08abcdefghtb"
    yield "array-of-objects", _ARRAY + b"(K\1K\1\x85cnumpy\ndtype\n(X\2\0\0\0O8\x89\x88tR\x89](" + tensor + b"etb"
    buffer = b"C\x08abcdefgh" + _TYPE + b"K\2\x85" + text("C")
    yield "buffer", b"cnumpy._core.numeric\n_frombuffer\n(" + buffer + b"tR"
    yield "number", b"cnumpy.core.multiarray\nscalar\n(" + _TYPE + b"C\x04abcdtR"
    stored = b"(" + text("storage") + b"ctorch\nQInt8Storage\n" + text("0") + text("cpu") + b"K\x08tQ"
    scheme = b"ctorch\nper_tensor_affine\nG?\xf0\0\0\0\0\0\0K\0\x87"
    quantized = b"ctorch._utils\n_rebuild_qtensor\n(" + stored + b"K\0K\x08\x85K\1\x85" + scheme + b"\x89"
    yield "quantized", quantized + b"ccollections\nOrderedDict\n)RtR"
    layout = b"ctorch.serialization\n_get_layout\n" + text("torch.sparse_coo") + b"\x85R"
    sparse = layout + b"(" + tensor + tensor + b"K\2\x85\x88t"
    yield "sparse", b"ctorch._utils\n_rebuild_sparse_tensor\n" + sparse + b"\x86R"
    arguments = tensor[tensor.index(b"(") : -1]
    subclass = b"ctorch._utils\n_rebuild_tensor_v2\ncmine\nTagged\n" + arguments + b"}" + text("a") + b"K\1s"
    yield "subclass", b"ctorch._tensor\n_rebuild_from_type_v2\n(" + subclass + b"tR"


def objects(
    text: Callable[[str], bytes], tensor: bytes, checkpoint: Callable[[bytes], bytes], front: bytes, back: bytes
) -> Iterator[tuple[str, bytes]]:
    """Yield files with one kind of object each, of TorchScript, of torch.package, and an old one with a class."""
    for name, value in _list_values(text, tensor):
        yield f"object-{name}", checkpoint(b"\x80\x02}(" + text("w") + value + text("step") + b"K\5u.")
    whole = b"\x80\x02c__torch__\nM\n)\x81}" + text("w") + tensor + b"sb."
    constants = b"\x80\x02" + tensor + b"\x85."
    script = {
        "a/data/0": bytes(8),
        "a/data.pkl": whole,
        "a/code/__torch__.py": b"class M(Module):\n",
        "a/version": b"3\n",
    }
    yield "script", make_zip({**script, "a/constants/0": bytes(8), "a/constants.pkl": constants})
    numbered = tensor.replace(text("0"), b"K\0")
    package = {
        "p/.data/0.storage": bytes(8),
        "p/m/x.pkl": b"\x80\x02" + numbered + b".",
        "p/.data/extern_modules": b"x",
    }
    reduced = (
        b"(" + text("reduce_package") + b"K\1ctorch.jit._script\nunpackage_script_module\n" + text("0") + b"\x85tQ"
    )
    scripted = whole.replace(text("0"), text("0.storage"))
    yield (
        "package",
        make_zip({**package, "p/m/s.pkl": b"\x80\x02" + reduced + b".", "p/.data/ts_code/0/data.pkl": scripted}),
    )
    named = b"(" + text("module") + _THING + text("m.py") + text("class Thing: pass") + b"tQ"
    legacy = b"\x80\x02" + named + b")\x81}" + text("w") + tensor + b"sb."
    yield "legacy-object", front + legacy + back
    yield "refused-object-keys", front + legacy + pickle.dumps({"0"}, 4) + back
