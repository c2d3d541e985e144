from __future__ import annotations

import pytest

from tests.survival import shelf


@pytest.fixture(scope="session")
def shelves(tmp_path_factory):
    """The model in every format, written once."""
    made = {}
    for name in shelf.writers():
        folder = tmp_path_factory.mktemp(name)
        made[name] = shelf.put(folder, name)
    return made


@pytest.fixture(params=shelf.writers())
def path(request, shelves, tmp_path):
    """The model in each format, in files that a test may spoil."""
    found = None
    for file in shelf.files(shelves[request.param]) if shelves[request.param].is_file() else [shelves[request.param]]:
        made = shelf.copied(file, tmp_path)
        found = made if file == shelves[request.param] else found
    return found
