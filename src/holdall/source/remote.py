"""Objects far away, by byte ranges: http(s), s3, gs, az and the Hugging Face hub.

Opening reads the head and the tail of the object at once, since an index is at one end or the other. After that a
read is answered from what is here, or by one request for what is missing; many reads that are known beforehand go
through the planner of :mod:`holdall.source.ranges`. Every answer is checked: the range that was asked for, its
length, and that the object is still the one that was opened.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from holdall.check import Rule
from holdall.errors import FormatError, HoldallError, UnsupportedError
from holdall.source.base import Source
from holdall.source.credentials import client_options, s3_config
from holdall.source.folder import contained
from holdall.source.ranges import Span, coalesce, split

if TYPE_CHECKING:
    from holdall.source.cache import RangeCache

__all__ = ["CHANGED", "SCHEMES", "RemoteError", "RemoteSource", "is_url"]

SCHEMES = ("http", "https", "s3", "gs", "az", "abfs", "hf")

CHANGED = Rule("core.remote.changed", "the object is the one that was opened")
ANSWER = Rule("core.remote.answer", "the server answers with the range that was asked for")

_HEAD = _TAIL = 64 << 10  # read speculatively when opening
_PIECE = 8 << 20  # the size of one request when a large range is fetched side by side
_GAP = 64 << 10  # unwanted bytes that are cheaper than another request
_LANES = 8  # requests under way at once
_KEPT = 64 << 20  # bytes of fetched ranges that stay in memory
_ATTEMPTS = 4


class RemoteError(HoldallError, OSError):
    """The object could not be reached, or is not there."""


def is_url(text: str) -> bool:
    """Whether ``text`` names something far away."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


class RemoteSource(Source):
    """One object at a URL."""

    def __init__(self, url: str, *, cache: RangeCache | None = None) -> None:
        self.name = _without_secrets(url)
        self._url = url
        self._store, self._path = _store_of(url)
        self._cache = cache
        self._lock = threading.Lock()
        self._spans: OrderedDict[int, bytes] = OrderedDict()  # start -> bytes, least recently used first
        self._closed_flag = False
        self.requests = 0  # sent so far, and the bytes that came
        self.received = 0
        head = self._attempt(lambda: self._get({"range": (0, _HEAD)}))
        self._tag = head["meta"].get("e_tag")
        self._modified = str(head["meta"].get("last_modified"))
        self.size = int(head["meta"]["size"])
        self._keep(0, head["data"])
        if self.size > _HEAD:
            self._keep(max(_HEAD, self.size - _TAIL), self._fetch(max(_HEAD, self.size - _TAIL), self.size))

    @property
    def identity(self) -> tuple[object, ...]:
        return ("url", self._url, self._tag, self._modified, self.size)

    @property
    def lanes(self) -> int:
        return _LANES

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        if self._closed_flag:
            raise self._closed()
        if not buffer:  # a zero-size tensor sends nothing
            return
        offset, buffer = self._from_memory(offset, buffer)
        if not buffer:
            return
        pieces = split(offset, offset + len(buffer), _PIECE)
        if len(pieces) == 1:
            data = self._fetch(*pieces[0])
            buffer[:] = data
            if len(data) <= _PIECE // 2:
                self._keep(offset, data)
            return
        with ThreadPoolExecutor(_LANES, "holdall-fetch") as pool:
            for (start, stop), data in zip(pieces, pool.map(lambda span: self._fetch(*span), pieces), strict=True):
                buffer[start - offset : stop - offset] = data

    def prefetch(self, ranges: Iterable[Span]) -> None:
        """Fetch what is not here of ``ranges``, in few requests side by side, to be read soon after."""
        wanted = [span for span in ranges if not self._holds(*span)]
        plan = coalesce(wanted, gap=_GAP, most=_PIECE)
        plan = [piece for span in plan for piece in split(*span, _PIECE)]
        if sum(stop - start for start, stop in plan) > _KEPT:
            return  # more than stays in memory: better read one by one
        with ThreadPoolExecutor(_LANES, "holdall-fetch") as pool:
            for (start, _), data in zip(plan, pool.map(lambda span: self._fetch(*span), plan), strict=True):
                self._keep(start, data)

    def sibling(self, relative: str) -> Source:
        """A member of the same set: below the same place, so on the same origin."""
        contained(relative)
        parts = urlsplit(self._url)
        base = parts.path.rsplit("/", 1)[0]
        url = urlunsplit((parts.scheme, parts.netloc, f"{base}/{relative}", "", ""))
        source = RemoteSource(url, cache=self._cache)
        source.member = relative
        return source

    def close(self) -> None:
        self._closed_flag = True
        self._spans.clear()

    # -- what is here already ---------------------------------------------------------------------------------------

    def _keep(self, start: int, data: bytes) -> None:
        with self._lock:
            self._spans[start] = data
            self._spans.move_to_end(start)
            held = sum(len(kept) for kept in self._spans.values())
            while held > _KEPT and len(self._spans) > 1:
                _, dropped = self._spans.popitem(last=False)
                held -= len(dropped)

    def _holds(self, start: int, stop: int) -> bool:
        with self._lock:
            return any(at <= start and stop <= at + len(data) for at, data in self._spans.items())

    def _from_memory(self, offset: int, buffer: memoryview) -> tuple[int, memoryview]:
        """Fill the front of ``buffer`` from what is here; what remains has to be fetched."""
        with self._lock:
            spans = list(self._spans.items())
        progress = True
        while buffer and progress:
            progress = False
            for at, data in spans:
                if at <= offset < at + len(data):
                    take = min(len(buffer), at + len(data) - offset)
                    buffer[:take] = data[offset - at : offset - at + take]
                    offset, buffer, progress = offset + take, buffer[take:], True
        return offset, buffer

    # -- requests ---------------------------------------------------------------------------------------------------

    def _fetch(self, start: int, stop: int) -> bytes:
        if self._cache is not None:
            return self._cache.get(self.identity, start, stop, partial(self._request, start, stop))
        return self._request(start, stop)

    def _request(self, start: int, stop: int) -> bytes:
        """One range of the object that was opened, or an error; never a mixture of two objects."""
        options: dict[str, Any] = {"range": (start, stop)}
        if self._tag and not self._tag.startswith("W/"):
            options["if_match"] = self._tag
        answer = self._attempt(lambda: self._get(options))
        meta = answer["meta"]
        changed = (meta.get("e_tag"), str(meta.get("last_modified")), int(meta["size"])) != (
            self._tag, self._modified, self.size,
        )  # fmt: skip
        if changed:
            raise FormatError(CHANGED.id, start, f"{self.name}: was replaced while it was open")
        data: bytes = answer["data"]
        if tuple(answer["range"]) != (start, stop) or len(data) != stop - start:
            message = f"{self.name}: bytes {start}..{stop} were asked for, {len(data)} came for {answer['range']}"
            raise FormatError(ANSWER.id, start, message)
        return data

    def _get(self, options: dict[str, Any]) -> dict[str, Any]:
        import obstore

        with self._lock:
            self.requests += 1
        answer = obstore.get(self._store, self._path, options=options)  # type: ignore[arg-type]  # a TypedDict
        data = bytes(answer.bytes())
        with self._lock:
            self.received += len(data)
        return {"meta": answer.meta, "range": answer.range, "data": data}

    def _attempt(self, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Try again after a passing failure, waiting a little longer each time."""
        from obstore import exceptions

        final = (
            FileNotFoundError,
            PermissionError,
            exceptions.NotFoundError,
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
        )
        for attempt in range(_ATTEMPTS):
            try:
                return action()
            except exceptions.PreconditionError:
                raise FormatError(CHANGED.id, None, f"{self.name}: was replaced while it was open") from None
            except final as error:
                raise RemoteError(f"{self.name}: {_reason(error)}") from None
            except Exception as error:
                if "NotPartial" in str(error) or "not supported" in str(error):
                    message = f"{self.name}: the server ignores byte ranges"
                    raise FormatError(ANSWER.id, None, message) from None
                if attempt == _ATTEMPTS - 1:
                    raise RemoteError(f"{self.name}: {_reason(error)} (after {_ATTEMPTS} attempts)") from None
                time.sleep(0.1 * 4**attempt)
        raise AssertionError("unreachable")


def _reason(error: Exception) -> str:
    """The kind of failure, without what the library says around it: that may hold signed URLs."""
    kinds = {
        "FileNotFoundError": "is not there",
        "NotFoundError": "is not there",
        "PermissionError": "access is denied",
        "PermissionDeniedError": "access is denied",
        "UnauthenticatedError": "the credentials are refused",
    }
    kind = type(error).__name__
    return kinds.get(kind, f"could not be read ({kind})")


def _without_secrets(url: str) -> str:
    """The URL as it may be shown: no user, no password, no query, which is where signatures are."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _store_of(url: str) -> tuple[Any, str]:
    """The obstore store for a URL, and the object's path in it."""
    try:
        import obstore.store
    except ImportError:
        raise UnsupportedError("reading from URLs needs the extra 'remote': pip install 'holdall[remote]'") from None
    from datetime import timedelta

    store: Any = obstore.store  # its stubs have an overload for every option of every cloud
    parts = urlsplit(url)
    retry = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
    scheme = parts.scheme.lower()
    if scheme == "hf":
        url, headers = _resolve_hub(url)
        options = {**client_options(plain_http=False), "default_headers": headers}
        return store.HTTPStore.from_url(url, client_options=options, retry_config=retry), ""
    if scheme in ("http", "https"):
        options = client_options(plain_http=scheme == "http")
        return store.HTTPStore.from_url(url, client_options=options, retry_config=retry), ""
    root = urlunsplit((scheme, parts.netloc, "", "", ""))
    if scheme == "s3":
        config = s3_config()
        plain = config.get("endpoint", "").startswith("http://")
        options = client_options(plain_http=plain)
        made = store.S3Store(parts.netloc, config=config, client_options=options, retry_config=retry)
        return made, parts.path.lstrip("/")
    options = client_options(plain_http=False)
    return store.from_url(root, client_options=options, retry_config=retry), parts.path.lstrip("/")


def _resolve_hub(url: str) -> tuple[str, dict[str, str]]:
    """``hf://owner/repo[@revision]/path/in/repo`` as the address that the hub's own library resolves it to."""
    try:
        from huggingface_hub import get_token, hf_hub_url
    except ImportError:
        raise UnsupportedError("hf:// URLs need the extra 'remote': pip install 'holdall[remote]'") from None
    parts = urlsplit(url)
    repo, _, file = parts.path.lstrip("/").partition("/")
    repo, _, revision = repo.partition("@")
    if not parts.netloc or not repo or not file:
        raise UnsupportedError(f"a hub URL looks like hf://owner/repo/file, not {_without_secrets(url)}")
    token = get_token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return hf_hub_url(f"{parts.netloc}/{repo}", file, revision=revision or None), headers
