"""Sets whose document states where their parts are: followed only to the origins that the caller names."""

from __future__ import annotations

import hashlib
import json
import pickle
import time

import numpy as np
import pytest

import holdall
from holdall.base.urls import find_origin, parse_origins
from holdall.errors import FormatError, HashError, UnsupportedError
from holdall.numpy import save
from tests.remote.servers import make_certificate, range_server

SECRET = "sesame-8f3a"
RNG = np.random.default_rng(20)
VALUES = {
    "big": RNG.standard_normal((1300, 1024), np.float32),  # 5.3 MB: more than a page of a pinned part
    "first": np.arange(12, dtype=np.float32),
    "last": RNG.integers(0, 255, 70_000, np.uint8),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a set of three parts, by name."""
    folder = tmp_path_factory.mktemp("made") / "set"
    holdall.save(folder, VALUES, format="aeroset", part_shards=1, max_shard_bytes=1 << 16)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(files) == 5
    return files


@pytest.fixture
def store(made):
    """The origin that has the parts, at /parts/."""
    with range_server({f"/parts/{name}": data for name, data in made.items() if name.endswith(".aero")}) as running:
        yield running


def state(made: dict[str, bytes], *, base_url: object = None, url: str | None = None, **names: str) -> bytes:
    """The document with a base_url, or with the full URLs of all files; ``names`` replaces paths of parts by number."""
    document = json.loads(made["model.aeroset.json"])
    document["format"]["version"] = [0, 2]
    if base_url is not None:
        document["base_url"] = base_url
    for file in (*document["parts"], document["global_tidx"]):
        file["path"] = file["path"] if url is None else f"{url}/{file['path']}"
    for number, name in names.items():
        document["parts"][int(number[1:])]["path"] = name
    return json.dumps(document).encode()


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    """A function that puts the document on this disk, or on a server of its own; the parts are not beside it."""
    if request.param == "local":

        def put(document: bytes) -> str:
            path = tmp_path / "model.aeroset.json"
            path.write_bytes(document)
            return str(path)

        yield put
    else:
        with range_server({}) as running:

            def serve(document: bytes) -> str:
                running.files["/set/model.aeroset.json"] = document
                return f"{running.url}/set/model.aeroset.json"

            yield serve


def check_values(model) -> None:
    assert sorted(model) == sorted(VALUES)
    for name, value in VALUES.items():
        np.testing.assert_array_equal(model[name].numpy(), value)
    np.testing.assert_array_equal(model["big"][700:702, 5:], VALUES["big"][700:702, 5:])
    for tensor in model.fetch():
        np.testing.assert_array_equal(tensor.numpy(), VALUES[tensor.name])


@pytest.mark.parametrize("kind", ["base_url", "base_url/", "urls"])
def test_parts_elsewhere_are_followed_when_their_origin_is_named(made, store, place, kind, tmp_path):
    stated = {"url": f"{store.url}/parts"} if kind == "urls" else {"base_url": f"{store.url}/parts{kind[8:]}"}
    path = place(state(made, **stated))
    with holdall.open(path, follow=store.url) as model:
        assert model.version == (0, 2)
        assert not any("part-" in asked for _, asked, _ in store.log.requests), "parts are opened when they are needed"
        check_values(model)
    assert holdall.verify(path, follow=[store.url]).ok
    report = holdall.convert(path, tmp_path / "x.safetensors", follow=store.url)
    assert report.tensors == 3
    with holdall.open(tmp_path / "x.safetensors") as model:
        check_values(model)
    assert not holdall.diff(path, tmp_path / "x.safetensors", follow=store.url).tensors


def test_full_urls_are_not_followed_unless_their_origin_is_named(made, store, place):
    path = place(state(made, url=f"{store.url}/parts"))
    other = store.url.replace("127.0.0.1", "localhost")  # the same server is another origin
    for follow in ((), other, (other, "https://127.0.0.1:9")):
        with pytest.raises(FormatError) as caught:
            holdall.open(path, follow=follow)
        assert caught.value.rule == "core.follow"
        assert caught.value.message == (
            f"the part '{store.url}/parts/part-000.aero' is at {store.url}, which is not followed: "
            f"allow it with follow='{store.url}' (--follow {store.url})"
        )
        report = holdall.verify(path, follow=follow)
        assert [finding.rule for finding in report.findings] == ["core.follow"]
    assert store.log.requests == []


def test_a_base_url_that_is_not_followed_is_named_when_parts_are_missing(made, store, place):
    path = place(state(made, base_url=f"{store.url}/parts?sig={SECRET}"))
    with pytest.raises(FormatError) as caught:
        holdall.open(path)
    assert caught.value.rule == "core.member"
    assert caught.value.message.endswith(
        f"; base_url is at {store.url}, which is not followed: "
        f"allow it with follow='{store.url}' (--follow {store.url})"
    )
    assert SECRET not in str(caught.value)
    assert store.log.requests == []


def test_parts_beside_the_document_need_nothing(made, store, tmp_path):
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "model.aeroset.json").write_bytes(state(made, base_url=f"{store.url}/parts"))
    with holdall.open(tmp_path) as model:
        check_values(model)
    assert store.log.requests == []


def test_one_value_proves_its_part_and_no_other(made, store, place):
    path = place(state(made, base_url=f"{store.url}/parts"))
    with holdall.open(path, follow=store.url) as model:
        np.testing.assert_array_equal(model["first"].numpy(), VALUES["first"])
        sent = store.log.sent
        model["first"].numpy()
        assert store.log.sent - sent <= 128 << 10, "a proven part is not proven again"
    asked = {path for _, path, _ in store.log.requests}
    assert len([path for path in asked if "part-" in path]) == 1


def test_listing_fetches_no_part_whole(made, store, place, cli):
    path = place(state(made, base_url=f"{store.url}/parts"))
    result = cli("ls", path, "--follow", store.url)
    assert result.exit_code == 0, result.output
    assert store.log.sent < 1 << 20


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def part_with(made: dict[str, bytes], name: str) -> tuple[str, int]:
    """The part that has a tensor, and the byte in its middle."""
    needle = VALUES[name].tobytes()
    part = next(part for part, data in made.items() if needle in data)
    return part, made[part].index(needle) + len(needle) // 2


def test_a_part_with_another_sha256_gives_no_values(made, store, place, tmp_path):
    part, at = part_with(made, "big")
    store.files[f"/parts/{part}"] = flip(made[part], at)
    path = place(state(made, base_url=f"{store.url}/parts"))
    with holdall.open(path, follow=store.url) as model:
        for read in (lambda: model["big"].numpy(), lambda: model["big"][:1]):  # also where its own bytes are fine
            with pytest.raises(HashError, match="SHA-256") as caught:
                read()
            assert caught.value.rule == "aeroset.sha256"
        np.testing.assert_array_equal(model["last"].numpy(), VALUES["last"])
    found = [finding for finding in holdall.verify(path, follow=store.url).findings if finding.severity == "error"]
    assert "aeroset.sha256" in {finding.rule for finding in found}
    for check in (True, False):
        with pytest.raises(HashError):
            holdall.convert(path, tmp_path / "x.safetensors", follow=store.url, check=check)
    assert not (tmp_path / "x.safetensors").exists()


def test_an_index_with_another_sha256_is_not_opened(made, store, place):
    data = bytearray(made["index.aero"])
    store.files["/parts/index.aero"] = flip(bytes(data), len(data) - 1)
    with pytest.raises(HashError, match=r"'index\.aero'"):
        holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url)


@pytest.mark.parametrize("size", [-1, 1])
def test_a_part_of_another_size_is_not_opened(made, store, place, size):
    part, _ = part_with(made, "big")
    store.files[f"/parts/{part}"] = made[part] + b"\0" if size > 0 else made[part][:-1]
    with holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url) as model:
        with pytest.raises(FormatError, match="the index says") as caught:
            model["big"].numpy()
        assert caught.value.rule == "aeroset.size"


def test_a_server_cannot_change_its_mind_after_the_proof(made, store, place):
    """The bytes are the right ones while the SHA-256 is taken, and others afterwards, with the same ETag."""
    part, _ = part_with(made, "big")
    with holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url) as model:
        np.testing.assert_array_equal(model["big"][:1], VALUES["big"][:1])
        store.files[f"/parts/{part}"] = flip(made[part], made[part].index(VALUES["big"][1200:1201].tobytes()))
        with pytest.raises(HashError, match="the server sent other bytes"):
            model["big"].numpy()


def test_a_server_cannot_answer_with_another_index_before_the_proof(made, store, place):
    part, _ = part_with(made, "big")
    store.files[f"/parts/{part}"] = flip(made[part], 40)  # in the header, which is read before the proof
    with holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url) as model:
        tensor = None
        try:
            tensor = model["big"]
            assert tensor.payload is not None
        finally:
            store.files[f"/parts/{part}"] = made[part]
        with pytest.raises(FormatError):
            tensor.numpy()


def test_a_redirect_stays_at_the_followed_origins(made, store, place, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    path = place(state(made, base_url=f"{store.url}/parts"))
    moved = {name: data for name, data in store.files.items() if "part-" in name}
    with range_server(dict(moved)) as elsewhere:
        for name in moved:
            store.redirects[name] = f"{elsewhere.url}{name}?token={SECRET}"
        with holdall.open(path, follow=store.url) as model:
            with pytest.raises(FormatError) as caught:
                model["first"].numpy()
            assert caught.value.rule == "core.follow"
            assert f"is at {elsewhere.url}, which is not followed" in str(caught.value)
            assert SECRET not in str(caught.value)
        assert elsewhere.log.requests == []
        with holdall.open(path, follow=(store.url, elsewhere.url)) as model:
            check_values(model)
        assert elsewhere.log.requests
    for name in moved:  # on the same origin it is followed
        store.redirects[name] = name + ".moved"
        store.files[name + ".moved"] = moved[name]
    with holdall.open(path, follow=store.url) as model:
        check_values(model)
    for target in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://169.254.169.254/latest", "//169.254.169.254/x"):
        store.redirects = dict.fromkeys(moved, target)
        with holdall.open(path, follow=store.url) as model, pytest.raises(FormatError, match="the redirect to"):
            model["first"].numpy()
    store.redirects = {name: name for name in moved}
    store.log.clear()
    with holdall.open(path, follow=store.url) as model, pytest.raises(FormatError, match="cannot be opened"):
        model["first"].numpy()


EVIL = [
    "file:///etc/passwd", "ftp://127.0.0.1/x", "s3://bucket/x", "hf://owner/repo/x", "../x", "/etc/passwd", "a/../../x",
    "..\\x", "//127.0.0.1/x", "http://169.254.169.254/latest/meta-data", "http://[::1]/x", "http://2130706433/x",
    "https://{host}/x", "http://me:{secret}@{host}/x", "http://{host}:{secret}@evil.example/x",
    "http://{host}\\@evil.example/x", "http://{host}#@evil.example/x", "http://{host}.evil.example/x",
    "http://evil.example?@{host}/x", "http://{host}/a b", "http://{host}/x\r\nHost: evil", "http://{host}:0x50/x",
    "HTTP://evil.example/x", "http:/\\evil.example/x", "http://\u0661\u0662\u0667.0.0.1/x", "http://{host}/\u00e9", "",
]  # fmt: skip


@pytest.mark.parametrize("path", EVIL)
def test_a_document_cannot_lead_anywhere_else(made, store, place, path):
    name = path.format(host=store.url.removeprefix("http://"), secret=SECRET)
    with pytest.raises(FormatError) as caught:
        holdall.open(place(state(made, base_url=f"{store.url}/parts", _1=name)), follow=store.url)
    assert caught.value.rule in ("core.follow", "core.path")
    assert SECRET not in str(caught.value)
    assert store.log.requests == []


@pytest.mark.parametrize(
    "base", ["file:///etc", "s3://b/x", "http://169.254.169.254/", 7, None, "http://u:p@{host}/parts"]
)
def test_a_base_url_that_is_no_followed_url_is_not_used(made, store, place, base):
    base = base.format(host=store.url.removeprefix("http://")) if isinstance(base, str) else base
    with pytest.raises(FormatError, match="is not in") as caught:
        holdall.open(place(state(made, base_url=base)), follow=store.url)
    assert caught.value.rule == "core.member"
    assert store.log.requests == []


@pytest.mark.parametrize("place", ["remote"], indirect=True)
def test_secrets_of_urls_are_sent_and_not_shown(made, store, place, cli, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    document = json.loads(state(made, url=f"{store.url}/parts"))
    for file in (*document["parts"], document["global_tidx"]):
        file["path"] += f"?X-Amz-Signature={SECRET}&n=1"
    path = place(json.dumps(document).encode())
    said = []
    with holdall.open(path, follow=store.url) as model:
        check_values(model)
        said += [repr(model), repr(model.sources), *(f"{source.name} {source.identity}" for source in model.sources)]
    assert set(store.log.queries) == {f"X-Amz-Signature={SECRET}&n=1"}
    for more in ([], ["--follow", store.url], ["--follow", "https://elsewhere.example"]):
        for command in ("info", "ls", "verify", "explain"):
            said += [cli(command, path, *more).output, cli(command, path, "--json", *more).output]
    store.fault = lambda path, start, stop: "503" if "part-" in path else None
    said += [cli(command, path, "--follow", store.url).output for command in ("info", "ls", "verify", "explain")]
    with holdall.open(path, follow=store.url) as model, pytest.raises(FormatError, match="answers 503") as caught:
        model["first"].numpy()
    said += [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
    assert not [text for text in said if SECRET in text]


@pytest.mark.parametrize("fault", ["503", "drop", "short"])
def test_failures_that_pass_are_tried_again(made, store, place, fault, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    seen: set[tuple[str, int]] = set()

    def once(path: str, start: int, stop: int) -> str | None:
        known = (path, start) in seen
        seen.add((path, start))
        return None if known else fault

    store.fault = once
    with holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url) as model:
        check_values(model)


@pytest.mark.parametrize("fault", ["whole", "shifted", "smaller"])
def test_wrong_answers_are_refused(made, store, place, fault, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    store.fault = lambda path, start, stop: fault if "part-" in path else None
    path = place(state(made, base_url=f"{store.url}/parts"))
    with holdall.open(path, follow=store.url) as model, pytest.raises(FormatError):
        model["big"].numpy()


def test_a_part_that_is_replaced_is_noticed(made, store, place):
    part, _ = part_with(made, "big")
    with holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url) as model:
        model["big"][:1]
        store.tags[f"/parts/{part}"] = '"another"'
        with pytest.raises(FormatError, match="was replaced"):
            model["big"].numpy()


def test_a_pickled_model_follows_the_same_origins(made, store, place):
    with holdall.open(place(state(made, base_url=f"{store.url}/parts")), follow=store.url) as model:
        again = pickle.loads(pickle.dumps(model))
    check_values(again)
    again.close()


def test_the_cache_serves_the_second_pass(made, store, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE", str(tmp_path / "cache"))
    path = place(state(made, base_url=f"{store.url}/parts"))
    for _ in range(2):
        store.log.clear()
        with holdall.open(path, follow=store.url) as model:
            check_values(model)
    assert store.log.sent < 1 << 20


def test_https_is_followed_with_its_own_certificate_authority(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    context, certificate = make_certificate(tmp_path)
    path = tmp_path / "model.aeroset.json"
    with range_server(dict(store.files), context) as secure:
        origin = secure.url.replace("127.0.0.1", "localhost")
        path.write_bytes(state(made, base_url=f"{origin}/parts"))
        with pytest.raises(FormatError, match="certificate"):
            holdall.open(path, follow=origin)
        monkeypatch.setenv("HOLDALL_CA_BUNDLE", str(certificate))
        with holdall.open(path, follow=origin) as model:
            check_values(model)
        with pytest.raises(FormatError, match="is not followed"):
            holdall.open(path, follow=origin.replace("https", "http"))
        secure.redirects = {name: store.url + name for name in store.files}
        with pytest.raises(FormatError, match="the redirect to"):  # from https to http
            holdall.open(path, follow=origin)
    assert store.log.requests == []


def test_every_command_that_opens_a_model_has_the_option(made, store, tmp_path, cli):
    path = tmp_path / "model.aeroset.json"
    path.write_bytes(state(made, base_url=f"{store.url}/parts"))
    follow = ["--follow", store.url]
    commands = [
        ["info", path], ["ls", path], ["verify", path], ["explain", path],
        ["extract", path, "first", "-o", tmp_path / "w.npy"],
        ["convert", path, tmp_path / "a.safetensors"], ["diff", path, path], ["quantize", path, tmp_path / "q.mcf"],
    ]  # fmt: skip
    for command in commands:
        assert cli(*command).exit_code == 1, command
        result = cli(*command, *follow)
        assert result.exit_code == 0, (command, result.output)
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), VALUES["first"])
    assert "not edited" in cli("edit", path, "--set", "a=b", *follow).output
    for command in ("repair", "restore", "embed"):
        assert "--follow" in cli(command, "--help").output


@pytest.mark.parametrize(
    "origin", ["host", "https://host/path", "s3://bucket", f"https://me:{SECRET}@host", "", "https://"]
)
def test_what_is_no_origin_is_refused(origin, cli, tmp_path):
    with pytest.raises(UnsupportedError, match="looks like https://host") as caught:
        holdall.open(b"", follow=origin)
    assert SECRET not in str(caught.value)
    result = cli("info", tmp_path, "--follow", origin)
    assert result.exit_code == 2 and SECRET not in result.output


def test_origins_have_one_spelling():
    assert parse_origins(["HTTPS://Host:443/", "http://h:80", "http://h:8080"]) == {
        "https://host", "http://h", "http://h:8080",
    }  # fmt: skip
    assert find_origin("https://host:99999/x") is None
    assert find_origin("http://h:080/x") == "http://h"


def test_a_document_read_from_bytes_has_no_parts(made, store):
    """Bytes have no folder, but their parts can be followed."""
    with holdall.open(state(made, base_url=f"{store.url}/parts"), follow=store.url) as model:
        check_values(model)


def test_the_stated_hashes_are_those_of_the_files(made):
    document = json.loads(made["model.aeroset.json"])
    for file in document["parts"]:
        assert hashlib.sha256(made[file["path"]]).hexdigest() == file["sha256"]


@pytest.mark.parametrize("follow", [5, b"https://host", [5], [None], 1.5, {"https://host": 1, None: 2}])
def test_what_is_no_text_is_no_origin(follow):
    with pytest.raises(UnsupportedError, match=r"an origin to follow is a text such as https://host, not "):
        holdall.open(one_tensor(), follow=follow)
    with pytest.raises(UnsupportedError, match=r"an origin to follow is a text"):
        holdall.verify(one_tensor(), follow=follow)


def test_none_follows_nothing():
    with holdall.open(one_tensor(), follow=None) as model:
        assert list(model) == ["w"]
    assert holdall.verify(one_tensor(), follow=None).ok


def one_tensor():
    return save({"w": np.zeros(2, np.float32)}, format="oinf")
