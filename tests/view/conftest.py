from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import cli as cli  # the same way to call the command line
from tests.view.browsing import Browser, find_browser

pytest.importorskip("dash")


_WITHOUT_HOST = ("data:", "blob:", "about:", "file:")


@pytest.fixture(scope="session")
def session(tmp_path_factory):
    """One session of the browser for all tests."""
    if find_browser() is None:
        if os.environ.get("HOLDALL_REQUIRE_BROWSER") == "1":
            pytest.fail("there is no browser here, and HOLDALL_REQUIRE_BROWSER=1 asks for one")
        pytest.skip("there is no browser here")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(session):
    """The browser. The test fails if a page wrote on the console or asked another origin for something."""
    session.forget_cookies()  # each server leaves one, and a browser keeps a limited number for a host
    session.take_messages()
    list(session.take_requests())
    yield session
    messages, requests = session.take_messages(), list(session.take_requests())
    assert messages == []
    places = {urlsplit(address).hostname for address in requests if not address.startswith(_WITHOUT_HOST)}
    assert places <= {"127.0.0.1"}


@pytest.fixture
def serve():
    """A function that serves files at a port of their own, and gives the server."""
    from holdall.viewer.server import ViewServer
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

    servers = []

    def start(*paths: str | Path, **options: object) -> ViewServer:
        window = Window([Subject.examine(str(path), **options) for path in paths])
        server = ViewServer(window)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def look(browser, serve):
    """A function that serves files and opens one of their pages."""

    def show(*paths: str | Path, page: str = "") -> str:
        server = serve(*paths)
        browser.open(server.url)
        browser.find("#nav a")
        base = server.url.split("?")[0]
        if page:
            browser.open(base + page)
        return base

    yield show
    browser.open("about:blank")  # before the server ends, of which the page would complain
