"""Nested checkpoints are written with the same nesting."""

from collections import OrderedDict

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError

torch = pytest.importorskip("torch")


def t(*numbers):
    return torch.tensor(numbers, dtype=torch.float32)


def checkpoint():
    """Dicts in dicts, keys that are numbers, values between tensors, versions on the state dict."""
    state = OrderedDict([("w1", t(1, 2)), ("layer.0.b", t(3))])
    state._metadata = OrderedDict([("", {"version": 1})])
    return {
        "epoch": 3,
        "model": state,
        "lr": 0.1,
        "opt": {
            "state": {0: {"m": t(4, 5), "step": 7}, 1: {"m": t(6)}},
            "param_groups": [{"lr": 0.5, "params": [0, 1]}],
        },
        "history": [t(8), 9, (t(10), "x")],
    }


def saved(tmp_path, content, **options):
    torch.save(content, tmp_path / "c.pt", **options)
    return tmp_path / "c.pt"


def same(a, b):
    """Equal in values, types and order of keys."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def load(path):
    assert holdall.verify(path).ok
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("legacy", [False, True])
def test_an_edit_leaves_the_nesting_as_it_is(tmp_path, legacy):
    path = saved(tmp_path, checkpoint(), _use_new_zipfile_serialization=not legacy)
    report = holdall.edit(path, rename={"model.w1": "model.w9"}, set={"epoch": 4})
    assert report.changes[:2] == ["tensor 'model.w1' is called 'model.w9'", "metadata 'epoch': 3 became 4"]
    wanted = checkpoint()
    wanted["epoch"] = 4
    wanted["model"] = OrderedDict([("w9", t(1, 2)), ("layer.0.b", t(3))])
    found = load(path)
    assert same(found, wanted)
    assert same(found["model"]._metadata, OrderedDict([("", {"version": 1})]))


def test_a_second_edit_gives_the_first_file_again(tmp_path):
    path = saved(tmp_path, checkpoint())
    holdall.edit(path, set={"epoch": 4})
    before = path.read_bytes()
    holdall.edit(path, set={"epoch": 5}, rename={"opt.state.0.m": "opt.state.0.n"})
    holdall.edit(path, set={"epoch": 4}, rename={"opt.state.0.n": "opt.state.0.m"})
    assert path.read_bytes() == before


def test_what_is_left_out_leaves_the_rest_where_it_was(tmp_path):
    path = saved(tmp_path, checkpoint())
    report = holdall.convert(path, tmp_path / "d.pt", exclude=["opt*"], cast="f16")
    assert not report.losses
    found, wanted = load(tmp_path / "d.pt"), checkpoint()
    assert found["opt"] == {"state": {0: {"step": 7}}, "param_groups": wanted["opt"]["param_groups"]}
    assert found["model"]["w1"].dtype == torch.float16
    assert list(found) == list(wanted)


def test_new_names_go_into_the_deepest_container(tmp_path):
    path = saved(tmp_path, checkpoint())
    holdall.edit(path, rename={"model.w1": "opt.state.2"})
    assert set(load(path)["opt"]["state"]) == {0, 1, 2}
    holdall.edit(path, set={"opt.note": "mine", "seed": 1})
    found = load(path)
    assert (found["opt"]["note"], found["seed"]) == ("mine", 1)


def test_a_list_stays_a_list(tmp_path):
    path = saved(tmp_path, [t(1), t(2)])
    holdall.convert(path, tmp_path / "d.pt", cast="f16")
    found = load(tmp_path / "d.pt")
    assert isinstance(found, list) and [item.dtype for item in found] == [torch.float16] * 2


def test_a_list_with_gaps_becomes_a_dict_which_is_reported(tmp_path):
    path = saved(tmp_path, {"steps": [t(1), t(2)]})
    report = holdall.edit(path, rename={"steps.0": "steps.first"})
    assert report.changes[-1].startswith("'steps' was a list")
    assert same(load(path), {"steps": {"first": t(1), 1: t(2)}})
    path = saved(tmp_path, (t(1), t(2)))
    report = holdall.convert(path, tmp_path / "d.pt", exclude=["0"])
    assert any(change.startswith("the file was a tuple") for change in report.changes)
    assert same(load(tmp_path / "d.pt"), {1: t(2)})


def test_merged_files_are_flat_which_is_reported(tmp_path):
    torch.save({"a": {"w": t(1)}, "epoch": 3}, tmp_path / "a.pt")
    torch.save({"b": {"w": t(2)}}, tmp_path / "b.pt")
    report = holdall.convert([tmp_path / "a.pt", tmp_path / "b.pt"], tmp_path / "c.pt")
    assert "several checkpoints become one flat dict of tensors, and their values an attribute of it" in report.changes
    found = load(tmp_path / "c.pt")
    assert list(found) == ["a.w", "b.w"] and found.metadata == {"epoch": 3}


def test_what_stands_alone(tmp_path):
    path = saved(tmp_path, t(1, 2))
    holdall.convert(path, tmp_path / "d.pt", cast="f16")
    assert isinstance(load(tmp_path / "d.pt"), torch.Tensor)
    report = holdall.edit(path, rename={"tensor": "w"}, set={"a": 1})
    assert "what stood alone in the file is written in a dict, under its name" in report.changes
    found = load(path)
    assert list(found) == ["w"] and found.metadata == {"a": 1}
    path = saved(tmp_path, 5)
    holdall.edit(path, set={"value": 6})
    assert load(path) == 6


def test_values_among_the_tensors_of_a_state_dict_stay_there(tmp_path):
    path = saved(tmp_path, {"w": t(1), "epoch": 3, "b": t(2)})
    holdall.edit(path, set={"epoch": 4})
    assert same(load(path), {"w": t(1), "epoch": 4, "b": t(2)})
    content = OrderedDict([("w", t(1)), ("epoch", 3)])
    content.metadata = {"note": "x"}
    path = saved(tmp_path, content)
    holdall.edit(path, set={"epoch": 4, "new": 1})
    found = load(path)
    assert dict(found) == {"w": t(1), "epoch": 4} and found.metadata == {"note": "x", "new": 1}


def test_two_things_of_one_name_are_refused(tmp_path):
    path = saved(tmp_path, checkpoint())
    for rename in ({"model.w1": "model"}, {"model.w1": "epoch"}, {"model.w1": "opt.param_groups"}):
        with pytest.raises(ContentError, match="two things would be called"):
            holdall.edit(path, rename=rename)


def test_a_flat_state_dict_is_written_as_ever(tmp_path):
    tensors = {"layer.0.w": np.ones(3, np.float32), "layer.1.w": np.zeros(2, np.int8)}
    holdall.save(tmp_path / "a.pt", tensors, metadata={"note": "x"})
    plain = saved(tmp_path, OrderedDict((name, torch.tensor(value)) for name, value in tensors.items()))
    holdall.convert(plain, tmp_path / "b.pt", metadata={"note": "x"})
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()


def test_values_of_torch_stay_what_they_are(tmp_path):
    content = {
        "w": t(1),
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
        "args": OrderedDict([("b", [torch.float32]), ("a", (torch.Size([]), torch.device("cpu")))]),
        "epoch": 3,
    }
    path = saved(tmp_path, content)
    with holdall.open(path) as model:
        assert model.metadata["dtype"] == "torch.bfloat16" and type(model.metadata["device"]) is str
        assert type(model.metadata["size"]) is tuple and type(model.metadata["args"]) is dict
    holdall.edit(path, set={"epoch": 4})
    content["epoch"] = 4
    assert same(load(path), content)
    holdall.edit(path, set={"dtype": "torch.float16"})
    content["dtype"] = "torch.float16"
    assert same(load(path), content)
    path = saved(tmp_path, torch.float16)
    holdall.edit(path, set={"value": 1})
    assert load(path) == 1


def test_a_device_as_a_key(tmp_path):
    path = saved(tmp_path, {torch.device("cpu"): t(1), "a": {torch.device("cpu"): 2}, "epoch": 3})
    with holdall.open(path) as model:
        assert list(model) == ["cpu"] and model.metadata["a"] == {"cpu": 2}
        assert all(type(key) is str for key in model.metadata["a"])
    holdall.edit(path, set={"epoch": 4})
    assert same(load(path), {torch.device("cpu"): t(1), "a": {torch.device("cpu"): 2}, "epoch": 4})


def test_a_name_of_thousands_of_digits_is_not_an_index(tmp_path):
    path, name = tmp_path / "m.pt", "9" * 5000
    torch.save([torch.ones(2), torch.zeros(2)], path)
    holdall.edit(path, rename={"1": name})
    assert list(torch.load(path)) == [0, name]
