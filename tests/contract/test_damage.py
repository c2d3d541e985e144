"""As much damage to a file of each format as the contract asks for: test_formats has a quarter of it."""

from __future__ import annotations

import pytest

from holdall.format import registry
from holdall.testing import FormatContract
from tests.contract.demands import DEMANDS

pytestmark = pytest.mark.long


@pytest.fixture(params=registry.names())
def contract(request):
    made = DEMANDS.get(request.param, FormatContract)()
    made.format = request.param
    return made


def test_files_cut_short_are_refused(contract, tmp_path):
    contract.test_every_cut_is_refused_with_a_reason(tmp_path)


def test_changed_bytes_are_read_or_refused(contract, tmp_path):
    contract.test_every_changed_byte_is_read_or_refused_with_a_reason(tmp_path)


def test_random_bytes_are_refused(contract, tmp_path):
    contract.test_random_bytes_are_refused_with_a_reason(tmp_path)
