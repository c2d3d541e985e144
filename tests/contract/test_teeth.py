"""The contract has teeth: each fault is found by the test that looks for it, and a format without one passes."""

import pytest

from holdall.testing import FormatContract


def run(locator, test, folder):
    facts = {"format": "toy", "locator": locator, "large_bytes": 128 << 20, "damage_cases": 300}
    contract = type("Careless", (FormatContract,), facts)()
    with contract.in_registry():
        getattr(contract, test)(folder)


FAULTS = [
    ("BARE", "test_every_cut_is_refused_in_words", "KeyError"),
    ("BARE", "test_every_changed_byte_is_read_or_refused_in_words", "KeyError"),
    ("BLIND", "test_every_cut_is_refused_in_words", "open refuses it"),
    ("FICKLE", "test_plans_are_pure_and_bytes_the_same_twice", "empty"),
    ("FORGETFUL", "test_every_zoo_model_survives", "metadata 'text' is gone"),
    ("GREEDY", "test_one_tensor_of_a_gigabyte_touches_its_own_pages", "opening took"),
    ("MEDDLING", "test_every_zoo_model_survives", "writing changed the model"),
]


@pytest.mark.parametrize(("fault", "test", "said"), FAULTS)
def test_a_fault_is_found(fault, test, said, tmp_path):
    with pytest.raises(AssertionError, match=said):
        run(f"tests.contract.careless:{fault}", test, tmp_path)


@pytest.mark.parametrize("test", sorted({test for _, test, _ in FAULTS}))
def test_a_format_without_it_passes(test, tmp_path):
    run("tests.toy:FORMAT", test, tmp_path)
