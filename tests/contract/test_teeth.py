"""The contract has teeth: each fault is found by the test that looks for it, and a format without one passes."""

import pytest

from holdall.testing import FormatContract
from holdall.testing.damage import Sample, truncations


def run(locator, test, folder, **more):
    facts = {"format": "toy", "locator": locator, "large_bytes": 128 << 20, "damage_cases": 300, **more}
    contract = type("Careless", (FormatContract,), facts)()
    with contract.in_registry():
        getattr(contract, test)(folder)


FAULTS = [
    ("BARE", "test_every_cut_is_refused_with_a_reason", "KeyError"),
    ("BARE", "test_every_changed_byte_is_read_or_refused_with_a_reason", "KeyError"),
    ("BLIND", "test_every_cut_is_refused_with_a_reason", "open refuses it"),
    ("FICKLE", "test_plans_are_pure_and_bytes_the_same_twice", "empty"),
    ("FORGETFUL", "test_every_zoo_model_survives", "metadata 'text' is gone"),
    ("GREEDY", "test_one_tensor_of_a_gigabyte_touches_its_own_pages", "opening took"),
    ("TRUSTING", "test_changed_payloads_are_found_and_not_converted", "verify finds nothing wrong .* write audit"),
    ("UNPROVEN", "test_changed_payloads_are_found_and_not_converted", "checked=False: write proofs"),
    ("MERGING", "test_a_metadata_key_that_comes_twice_is_kept_or_refused", r"\['two'\] came back"),
    ("GULLIBLE", "test_names_are_held_or_refused_with_a_reason", "surrogate pair: Holds raises UnicodeEncodeError"),
    ("GENEROUS", "test_names_are_held_or_refused_with_a_reason", "empty: Holds admits it, and the writer refuses it"),
    (
        "STRINGY",
        "test_metadata_is_held_or_refused_with_a_reason",
        "a list 200 levels deep: was written, and does not come",
    ),
    ("MEDDLING", "test_every_zoo_model_survives", "writing changed the model"),
]


@pytest.mark.parametrize(("fault", "test", "said"), FAULTS)
def test_a_fault_is_found(fault, test, said, tmp_path):
    with pytest.raises(AssertionError, match=said):
        run(f"tests.contract.careless:{fault}", test, tmp_path)


def test_two_tensors_of_one_name_must_be_refused(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        run("tests.contract.careless:DOUBLING", "test_names_are_held_or_refused_with_a_reason", tmp_path)


def test_a_reason_excuses_payloads_without_hashes(tmp_path):
    run(
        "tests.contract.careless:TRUSTING",
        "test_changed_payloads_are_found_and_not_converted",
        tmp_path,
        payloads_without_hash="this toy does not look",
    )


@pytest.mark.parametrize("test", sorted({test for _, test, _ in FAULTS}))
def test_a_format_without_it_passes(test, tmp_path):
    run("tests.toy:FORMAT", test, tmp_path)


@pytest.mark.parametrize("cases", [0, 1, 2, 3, 9, 10])
def test_damage_takes_any_number_of_cases(cases):
    cuts = [name for name, _ in truncations(Sample({"a": bytes(9)}), cases)]
    assert len(cuts) == min(max(cases, 2), 9)
    assert (cuts[0], cuts[-1]) == ("a cut to 0 bytes", "a cut to 8 bytes")
