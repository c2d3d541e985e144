"""The servers of these tests, all on loopback, started when the first test needs them and killed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.remote import shelf
from tests.remote.servers import S3, RangeServer, range_server, s3_server, web_server

pytest.importorskip("obstore")
pytest.importorskip("urllib3")

CLEAN = (
    "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "HF_TOKEN", "HF_ENDPOINT", "HOLDALL_CACHE",
    "HOLDALL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy",
    "HOLDALL_HTTP_TIMEOUT", "HOLDALL_HTTP_DEADLINE",
)  # fmt: skip


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a model in every format, and the main file of each."""
    made = tmp_path_factory.mktemp("shelf")
    return made, shelf.put_on(made)


@pytest.fixture(scope="session")
def _files(folder: tuple[Path, dict[str, str]]) -> dict[str, bytes]:
    return shelf.served(folder[0])


@pytest.fixture
def server(_files: dict[str, bytes]) -> Iterator[RangeServer]:
    """Our own server over those files; a test may change them."""
    with range_server(dict(_files)) as running:
        yield running


@pytest.fixture(scope="session")
def web_url(folder: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with web_server(folder[0], tmp_path_factory.mktemp("web")) as url:
        yield url


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def cli():
    from holdall.cli import main

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="holdall")

    return call
