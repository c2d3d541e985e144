import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall import identity


def test_ids_are_those_of_utf8():
    names = ["", "größe", "a", "x" * 5000]
    assert identity.base_ids(names) == [int.from_bytes(blake3(n.encode()).digest(16), "little") for n in names]
    assert identity.base_ids([]) == []


@pytest.mark.shows("G11", "G37")
def test_look_up_in_any_container(tmp_path):
    holdall.save(tmp_path / "x.oinf", {"a.b": np.zeros(2), "c": np.ones(3)})
    with holdall.open(tmp_path / "x.oinf") as model:
        ids = identity.Identities(model)
        assert ids.tensor(identity.base_id("c")).shape == (3,)
        assert list(ids) == identity.base_ids(["a.b", "c"])
        assert identity.base_id("a.b") in ids and 5 not in ids
        assert ids.keys(2)["c"] == identity.param_key(2, identity.base_id("c"))
        with pytest.raises(holdall.MissingError, match="no parameter"):
            ids.tensor(5)


@pytest.mark.parametrize(("namespace", "id"), [(-1, 0), (1 << 128, 0), (0, -1), (0, 1 << 128)])
def test_keys_take_128_bits(namespace, id):
    with pytest.raises(holdall.ContentError, match="128 bits"):
        identity.param_key(namespace, id)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "größe", "a.ö"])
def test_bad_names(name):
    assert identity.name_breach(name)
    with pytest.raises(holdall.ContentError):
        identity.nest({name: 1})


@pytest.mark.parametrize("name", ["a", "blocks.0.w", "a b.c-d_e"])
def test_good_names(name):
    assert identity.name_breach(name) is None


@pytest.mark.shows("G26")
def test_trees():
    tree = {"blocks": [{"w": 1, "ln": {"gamma": 2}}, {"w": 3}], "lm_head": [4, 5], "empty": {}}
    flat = identity.flatten(tree)
    assert flat == {"blocks.0.w": 1, "blocks.0.ln.gamma": 2, "blocks.1.w": 3, "lm_head": [4, 5]}
    assert list(flat) == ["blocks.0.w", "blocks.0.ln.gamma", "blocks.1.w", "lm_head"]
    assert identity.flatten(identity.nest(flat)) == flat


@pytest.mark.parametrize("tree", [{"a.b": 1}, {"": 1}, {"a": {"ö": 1}}, {1: 2}])
def test_trees_with_bad_segments(tree):
    with pytest.raises(holdall.ContentError, match="segment"):
        identity.flatten(tree)


@pytest.mark.parametrize("names", [["a", "a.b"], ["a.b", "a"], ["a.b.c", "a.b"]])
def test_a_parameter_is_no_branch(names):
    with pytest.raises(holdall.ContentError, match="is a parameter"):
        identity.nest(dict.fromkeys(names, 1))
