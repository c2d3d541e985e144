"""The fuzz functions over every known file, and a short run of each; `make fuzz` runs longer ones."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
from tools.fuzz.documents import GGUF, JSON, MSGPACK, NPY, NPZ, PICKLE, PROTOBUF, TORCH, Kind
from tools.fuzz.findings import Watch
from tools.fuzz.framing import frame, source_of, unframe
from tools.fuzz.large import large
from tools.fuzz.mutate import mutate
from tools.fuzz.seeds import files_at, seeds
from tools.fuzz.smoke import smoke
from tools.fuzz.subjects import SUBJECTS

import holdall
from holdall.format import registry
from holdall.model.ggml import BLOCKS, HALF_Q8_1
from tests.golden import golden

_SMALL = 1 << 20


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_short_run_finds_nothing(name: str, tmp_path: Path) -> None:
    watch = smoke(name, tmp_path, seconds=3, seed=1)
    assert watch.causes == {}, [path.read_text() for path in tmp_path.glob("*.json")]
    assert watch.inputs > 50  # on a slow and busy machine, of the slowest format
    assert 0 < watch.whole < watch.inputs


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_seed_can_be_read(name: str) -> None:
    subject, found = SUBJECTS[name], seeds(name)
    assert len(found) > 5
    for seed, data in found.items():
        assert subject.probe(data) != seed.startswith("refused"), seed


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_seeds_have_every_dtype_that_the_format_holds(name: str) -> None:
    subject, found = SUBJECTS[name], set()
    for seed, data in seeds(name).items():
        if not seed.startswith("refused"):
            files = unframe(data)
            with holdall.open(source_of(files, subject.start), format=subject.format(files)) as model:
                found |= {tensor.dtype.name for tensor in model.tensors}
    if name in ("aero", "aeroset"):  # one kind of block stands for all there; each is a seed of GGUF
        found |= {kind.name for kind in (*BLOCKS.values(), HALF_Q8_1)}
    for format in subject.formats:
        assert registry.find(format).holds.dtypes - found == set()


@pytest.mark.parametrize("name", ["oinf", "embd", "gptrs", "mcf", "aero"])
def test_the_fuzz_function_takes_every_golden_file(name: str) -> None:
    folder = golden(name)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size <= _SMALL]
    for path in files:
        SUBJECTS[name].probe(path.read_bytes())
    assert files


def test_the_fuzz_function_takes_every_golden_set() -> None:
    sets = {path.parent for path in golden("aero").rglob("*.aeroset.json")}
    for folder in sorted(sets):
        SUBJECTS["aeroset"].probe(frame(files_at(folder)))
    assert sets


def test_a_frame_gives_its_files_back_and_takes_any_bytes() -> None:
    files = {"a.json": b"{}", "b/c": bytes(300), "empty": b""}
    assert unframe(frame(files)) == files
    assert unframe(frame({"": b"whole"})) == {"": b"whole"}
    data = frame(files)
    for cut in range(len(data)):
        unframe(data[:cut])


def test_json_comes_back_as_it_went() -> None:
    data = b'{"a":[1,null,"\xc3\xa9"],"a":{}}'
    assert JSON[1](JSON[0](data)) == data


@pytest.mark.parametrize(("name", "kind"), [("gguf", GGUF), ("onnx", PROTOBUF), ("npz", NPZ), ("torch", TORCH)])
def test_documents_come_back_as_they_went(name: str, kind: Kind) -> None:
    for seed, data in seeds(name).items():
        if not data.startswith(b"FRAME") and not seed.startswith("refused"):
            unzipped = {"npz": NPY, "torch": PICKLE}.get(name, kind)
            take, make = kind if data[:2] == b"PK" else unzipped
            tree = take(data)
            assert take(make(tree)) == tree
            assert SUBJECTS[name].probe(make(tree)), seed


def test_msgpack_documents_can_say_a_key_twice() -> None:
    take, make = MSGPACK
    tree = take(b"\x82\xa1a\x01\xa1b\x93\x01\xa1x\xc4\x01y")
    assert make(tree) == b"\x82\xa1a\x01\xa1b\x93\x01\xa1x\xc4\x01y"
    tree[1][0] = "a"
    assert make(tree).count(b"\xa1a") == 2


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_input_of_a_megabyte_is_slow_or_takes_much_memory(name: str, tmp_path: Path) -> None:
    subject, chance = SUBJECTS[name], random.Random(3)
    watch = Watch(subject.probe, tmp_path)
    inputs = (data for seed in chance.sample(sorted(seeds(name).values()), 4) for data in large(seed, subject, chance))
    for data in islice(inputs, 40):
        watch(data)
    assert watch.causes == {}, [path.read_text() for path in tmp_path.glob("*.json")]
    assert watch.inputs > 5


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_good_part_of_the_mutants_gets_past_the_checksums(name: str) -> None:
    subject, chance = SUBJECTS[name], random.Random(7)
    pool = list(seeds(name).values())
    mutants = [mutate(chance.choice(pool), subject, chance) for _ in range(200)]
    assert len(set(mutants) - set(pool)) > 120
    assert sum(subject.probe(data) for data in mutants) > 10
