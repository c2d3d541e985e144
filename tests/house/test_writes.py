"""Files are written by the sink alone: complete or not at all, private until then, following no link but the user's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.rooms import modules

# Methods and functions that write a file, whatever they are called on.
WRITERS = {"write_text", "write_bytes", "touch", "tofile", "savetxt", "symlink_to", "hardlink_to", "savefig", "to_csv"}
# The same where they belong to these modules.
FUNCTIONS = {
    "np": {"save", "savez", "savez_compressed", "memmap"},
    "json": {"dump"},
    "pickle": {"dump"},
    "marshal": {"dump"},
    "shutil": {"copy", "copy2", "copyfile", "copyfileobj", "copytree", "move", "make_archive"},
    "tempfile": {"NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "mkstemp", "mkdtemp", "mktemp"},
}
OPENERS = {"open", "fdopen", "ZipFile", "FileIO", "TarFile"}

# Who may, and why: nothing of these is a file that a user asked for.
ALLOWED = {
    "holdall.sink.resumable": "notes inside its private part",
    "holdall.source.remote.disk_cache": "ranges, in a private folder, complete or not at all",
    "holdall.base.platform.posix": "the pipe of a process",
    "holdall.base.platform.linux": "files without a name, and /proc",
    "holdall.base.platform.macos": "files without a name",
    "holdall.base.platform.windows": "files without a name",
    "holdall.cli": "the null device in the place of a closed stderr",
    "holdall.cli.stdin_stdout": "what comes from stdin, in a private folder",
    "holdall.cli.demo": "a private folder that goes",
    "holdall.transformers": "the files of a tokenizer, in a private folder that goes",
}


def writes(tree: ast.AST) -> Iterator[str]:
    """What a module calls to write a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(node.func.value, "id", "") if isinstance(node.func, ast.Attribute) else ""
        opens = called in OPENERS and any(map(_is_for_writing, (*node.args, *(key.value for key in node.keywords))))
        if opens or (isinstance(node.func, ast.Attribute) and called in WRITERS | FUNCTIONS.get(owner, set())):
            yield ast.unparse(node)


def _is_for_writing(argument: ast.expr) -> bool:
    """Whether an argument is a mode that makes or changes a file."""
    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
        return False
    return set(argument.value) <= set("rwxab+t") and bool(set(argument.value) & set("wxa+")) and len(argument.value) < 5


def test_only_the_sink_writes_files():
    for name, path in modules().items():
        if name.startswith("holdall.testing"):  # damages files on purpose
            continue
        found = list(writes(ast.parse(path.read_text())))
        if name in ALLOWED:
            assert found, f"{name} writes nothing: take it off the list"
        else:
            assert not found, f"{name} writes files by itself: {', '.join(found)}"


@pytest.mark.parametrize(
    "code",
    [
        "open(p, 'w')", "p.open('wb')", "open(p, mode='a')", "p.open('r+b')", "io.open(p, 'x')", "os.fdopen(fd, 'w+b')",
        "p.write_text('x')", "Path(p).write_bytes(b'')", "array.tofile(p)", "np.save(p, array)", "json.dump(x, file)",
        "zipfile.ZipFile(p, 'w')", "shutil.copyfile(a, b)", "tempfile.mkdtemp()", "p.touch()", "figure.savefig(p)",
    ],
)  # fmt: skip
def test_each_is_noticed(code):
    assert list(writes(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["open(p)", "p.open('rb')", "write_text(p, x)", "json.dumps(x)", "gojson.dump(x)", "open_model('w.npz')"]
)
def test_reading_is_allowed(code):
    assert not list(writes(ast.parse(code)))
