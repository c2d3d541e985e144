"""Further MJSN, MMSG and IHSH chunks: programs may read any of them, so that verify compares them at level strict."""

from __future__ import annotations

import pytest
from blake3 import blake3
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.format.aero.build import OPTIONAL, ZSTD, Chunk, file, pack
from tests.format.aero.test_aero_carried_content import JSON, MANIFEST, make


def find(data, level="strict"):
    findings = holdall.verify(data, level=level).findings
    return [(finding.rule, finding.message) for finding in findings if finding.severity in ("error", "unread")]


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (Chunk(b"MJSN", "other", b'{"model_name":"evil"}'), "it says otherwise than chunk 0 MJSN 'meta.json'"),
        (Chunk(b"MJSN", "other", b'{"model_name":'), "aero: chunk 4 MJSN 'other'"),
        (Chunk(b"MMSG", "other", pack({**MANIFEST, "z": 1}), ZSTD), "it says otherwise than chunk 1 MMSG 'manifest'"),
        (Chunk(b"MMSG", "other", pack([1])), "the document is not a map"),
    ],
)
def test_a_second_document_that_disagrees_is_a_strict_problem(chunk, message):
    data = make([chunk])
    ((rule, found),) = find(data)
    assert rule == "aero.document.agree"
    assert message in found
    assert find(data, "full") == []
    holdall.open(data)


def test_a_second_document_may_spell_the_same_otherwise():
    data = make([
        Chunk(b"MJSN", "same", JSON), Chunk(b"MJSN", "spaced", JSON.replace(b",", b", "), ZSTD),
        Chunk(b"MMSG", "other", pack(dict(reversed(MANIFEST.items())))),
    ])  # fmt: skip
    assert find(data) == []


def test_the_hash_of_a_second_document_is_compared():
    ((rule, _),) = find(make([Chunk(b"MJSN", "same", JSON, digest=bytes(32))]), "full")
    assert rule == "aero.extra.blake3"


def with_control(*digests):
    """A file with an IHSH for each of ``digests``; None stands for the right digest."""
    right = bytes(32)
    for _ in range(2):  # the digest does not depend on the hashes of chunks, only on their places
        chunks = [
            Chunk(b"IHSH", f"control.{n}", pack({"algo": "blake3-256", "covered_ranges": [[0, 0x0FFFFFFF]],
                  "digest": digest or right}), OPTIONAL)
            for n, digest in enumerate(digests)
        ]  # fmt: skip
        data = make(before=chunks)
        start = int.from_bytes(data[96 + 16 + 8 : 96 + 16 + 16], "little")
        for chunk in chunks:
            chunk.content = chunk.content.replace(b"\xce\x0f\xff\xff\xff", b"\xce" + start.to_bytes(4, "big"))
        data = make(before=chunks)
        control = bytearray(data[:start])
        for row in range(int.from_bytes(data[96:100], "little")):
            control[96 + 16 + 80 * row + 48 : 96 + 16 + 80 * row + 80] = bytes(32)
        right = blake3(control).digest()
    return data


def test_every_ihsh_is_compared():
    assert find(with_control(None)) == []
    assert find(with_control(None, None)) == []
    data = with_control(None, None, b"\1" * 32)
    ((rule, message),) = find(data)
    assert rule == "aero.ihsh.others"
    assert "IHSH 'control.2' has " + "01" * 32 in message
    assert find(data, "full") == []
    ((rule, _),) = find(with_control(b"\1" * 32, None), "structure")
    assert rule == "aero.ihsh"


def test_thousands_of_ihsh_are_not_all_hashed():
    ((rule, message),) = find(with_control(*[None] * 3000))
    assert rule == "core.limit"
    assert "passes over what IHSH covers" in message


@pytest.mark.parametrize("target", ["new.aero", "new.safetensors"])
@pytest.mark.parametrize("fourcc", ["MJSN", "MMSG"])
def test_damage_of_the_source_is_not_blamed_on_the_target(target, fourcc, tmp_path):
    source = tmp_path / "old.aero"
    chunks = [Chunk(fourcc.encode(), "damaged", b"\xc1"), Chunk(b"TIDX", "tensors", pack({"tensors": []}))]
    source.write_bytes(file(chunks))
    done = CliRunner().invoke(main, ["convert", str(source), str(tmp_path / target), "--rename", "s/w/v/"])
    assert done.exit_code != 0
    assert f"{source}: aero: chunk 0 {fourcc}" in done.stderr
