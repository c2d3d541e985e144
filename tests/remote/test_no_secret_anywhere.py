"""A password, a token and a signature in a URL are in no output, whatever command gets it and however that ends."""

from __future__ import annotations

import os

import pytest

from holdall.cli import COMMANDS

PASSWORD, TOKEN, SIGNATURE, SHARED, FRAGMENT = "sesame-8f3a", "tok-77c1e", "sig-5d2b9", "azure-e01c4", "frag-93b0d"
SECRETS = (PASSWORD, TOKEN, SIGNATURE, SHARED, FRAGMENT)


@pytest.fixture
def planted(server, folder):
    def plant(path):
        host = server.url.removeprefix("http://")
        query = f"token={TOKEN}&X-Amz-Signature={SIGNATURE}&sv=2024&sig={SHARED}"
        return f"http://user:{PASSWORD}@{host}{path}?{query}#{FRAGMENT}"

    return plant


def list_commands(good, missing, home, tmp_path):
    """Commands that end well and badly, with a URL as source, as target, as option and as a second file."""
    local = str(tmp_path / "local.safetensors")
    for url in (good, missing, home):
        yield from (
            ["info", url], ["info", url, "--json"], ["ls", url], ["ls", url, "no-such-*"], ["ls", url, "--json"],
            ["verify", url], ["verify", url, "--json"], ["verify", url, "--stats"], ["explain", url],
            ["explain", url, "--json"], ["extract", url, "nothing"], ["extract", url, "--asset", "nothing"],
            ["assets", url], ["diff", url, local], ["diff", local, url], ["diff", url, url, "--json"],
            ["diff", url, local, "--report", str(tmp_path / "diff.html")],
            ["convert", url, str(tmp_path / "new.npz"), "--json"], ["convert", url, url], ["convert", local, url],
            ["convert", url, str(tmp_path / "a.safetensors"), "--select", "no-such"],
            ["quantize", url, str(tmp_path / "q.mcf"), "--method", "int8", "--report", str(tmp_path / "q.json")],
            ["quantize", url, str(tmp_path / "r.mcf"), "--method", "int8", "--report", str(tmp_path / "q.html")],
            ["quantize", url, str(tmp_path / "s.mcf"), "--method", "int8", "--report", str(tmp_path / "q.md")],
            ["edit", url, "--set", "a=1"], ["repair", url, local], ["repair", local, url],
            ["restore", url, str(tmp_path / "back")], ["embed", url, "text"], ["calibrate", url, "text"],
            ["convert", local, str(tmp_path / "b.npz"), "--rename-file", url],
            ["extract", local, "w", "-o", url], ["extract", local, url], ["diff", local, local, "--report", url],
            # wrong usage: click shows arguments as they were given
            [url], ["--" + url], ["info", "--" + url], ["info", local, "--format", url],
            ["info", local, "--limit", url],
            ["restore", url, "a", url, url], ["info", local, "--follow", url], ["convert", url], ["ls", local, url],
            ["convert", local, str(tmp_path / "c.npz"), "-o", f"a={url}"], ["verify", local, "--level", url],
            ["convert", local, str(tmp_path / "c.npz"), "-o", f"metadata=@{url}"],
            ["convert", local, str(tmp_path / "c.npz"), "--rename", url], ["embed", local, "--against", url, "x"],
            ["calibrate", local, "-i", url], ["quantize", local, str(tmp_path / "c.mcf"), "--importance", url],
            ["view", url, "--export", str(tmp_path / "page.html")],
            ["view", local, "--export", url], ["view", local, "--tensor", url, "--export", str(tmp_path / "p.html")],
            ["recipes", url], ["recipes", url, "--json"], ["demo", url], ["convert", local, "b.npz", "--recipe", url],
            ["convert", url, str(tmp_path / "b.gguf"), "--recipe", "llama-gguf"],
            ["recipes", f"{url}.toml"], ["convert", local, str(tmp_path / "b.npz"), "--recipe", f"{url}.toml"],
            ["from-dataclass", url, str(tmp_path / "d.oinf")], ["completion", url], ["formats", url],
            ["info", url.replace("http", "az")], ["info", url.replace("http", "ftp")],
            ["info", url.replace("?", "/?")],
            ["info", url.replace("http", "HTTP")], ["info", url.replace(PASSWORD, f"{PASSWORD}/{PASSWORD}")],
        )  # fmt: skip


def list_options(url, local, tmp_path, every):
    """Options that take a text, with a URL as the text, or as the part of it before or behind a separator."""
    out, oinf, note = str(tmp_path / "o.oinf"), str(tmp_path / "e.oinf"), str(tmp_path / "note")
    patterns = ("--include", "--exclude", "--transpose", "--dequantize", "--rename", "--cast", "--meta")
    texts = (url, f"{url}=f16", f"ABCD:{url}@{url}", f"{url}=q8", f"key={url}", f"s/{url}/x/", f"s/w/{url}/")
    for text in texts if every else texts[:3]:
        for option in patterns:
            yield ["convert", local, out, option, text]
            yield ["convert", local, out, f"{option}={text}", "--json"]
            yield ["convert", local, out, option, text, "--dry-run"]
        for option in ("--rule", "--include", "--exclude", "--sensitive", "--clip", "--min-size", "--clips"):
            for more in ([], ["--json"], ["--dry-run"], ["--report", str(tmp_path / "q.json")]):
                yield ["quantize", local, str(tmp_path / "q.mcf"), option, text, *more]
        for option in ("--set", "--unset", "--rename", "--asset", "--requires-grad"):
            yield ["edit", oinf, option, text, "--dry-run"]
            yield ["edit", oinf, option, text, "--dry-run", "--json"]
        for option in ("-o", "--option"):
            yield ["convert", local, str(tmp_path / "o.aero"), option, f"chunk={text}"]
            yield ["convert", local, str(tmp_path / "o.aero"), option, text]
        yield from (
            ["ls", local, text], ["ls", local, text, "--json"], ["ls", local, "--stats", text],
            ["extract", local, text], ["extract", local, "--asset", text], ["extract", local, "w", "-o", text],
            ["extract", local, "w", "--slice", text], ["extract", local, "w", "--cast", text],
            ["extract", local, "--all", f"{note}/{text}"], ["info", f"{note}/{text}"],
            ["explain", local, "--table", text], ["explain", local, "--at", text], ["assets", local, text],
            ["diff", local, local, "--tolerance", text], ["diff", local, local, "--order", text],
            ["embed", local, text, "--against", text], ["calibrate", local, "-i", text, "-o", text],
            ["from-dataclass", text, out], ["from-dataclass", f"{note}.py:{text}", out],
            ["verify", local, "--limit", text], ["verify", local, "--allow", text], ["completion", text],
        )  # fmt: skip


def test_every_command_is_here(tmp_path):
    called = {command[0] for command in list_commands("URL", "MISSING", "HOME", tmp_path)}
    assert set(COMMANDS) <= called


def test_no_command_shows_a_secret(server, folder, planted, cli, tmp_path):
    import numpy as np

    import holdall

    holdall.save(tmp_path / "local.safetensors", {"w": np.ones((64, 64), np.float32)})
    server.files["/plain.safetensors"] = (tmp_path / "local.safetensors").read_bytes()
    good, home = planted("/plain.safetensors"), planted("/hf")
    shown, codes = {}, set()
    for command in list_commands(good, good.replace("plain", "nothing"), home, tmp_path):
        for debug in ([], ["--debug"]):
            done = cli(*debug, *command)
            codes.add(done.exit_code)
            shown[" ".join([*debug, *command])] = done.output + str(done.exception)
    for path in tmp_path.rglob("*"):
        shown[str(path)] = path.read_bytes().decode("latin-1") if path.is_file() else ""
    assert codes == {0, 1, 2, 3}
    assert {"page.html", "q.json", "q.html", "q.md", "diff.html", "new.npz"} <= {
        path.name for path in tmp_path.iterdir()
    }
    leaks = {command: text for command, text in shown.items() if any(secret in text for secret in SECRETS)}
    assert leaks == {}


def test_no_name_that_a_command_makes_holds_a_secret(server, folder, planted, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("extract", planted("/" + folder[1]["oinf"].lstrip("/")), "big")
    assert not [name for name in os.listdir(tmp_path) for secret in SECRETS if secret in name]


WRITTEN = {
    "a URL": "http://user:{password}@127.0.0.1:1/a?token={token}&sig={shared}#{fragment}",
    "one slash": "http:/user:{password}@127.0.0.1/a?sig={shared}",
    "backslashes": "http:\\\\user:{password}@127.0.0.1\\a?sig={shared}",
    "a quote in the password": "http://user:pa'{password}@127.0.0.1:1/a",
    "a space in the password": "http://user:pa {password}@127.0.0.1:1/a",
    "two quotes and a bracket": "http://user:pa'\"({password}@127.0.0.1:1/a",
    "separators in the password": "http://user:a=b:{password},@127.0.0.1:1/a",
    "a slash in the password": "http://user:a/{password}@127.0.0.1:1/a",
    "a query of any name": "http://127.0.0.1:1/a?x={token}",
    "a token for a user": "https://{token}@127.0.0.1:1/a",
    "a bucket": "s3://{password}:{token}@bucket/key",
    "a scheme of its own": "ftp2://user:{password}@127.0.0.1:1/a?x={token}",
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_no_option_shows_a_secret(kind, cli, tmp_path, monkeypatch):
    import numpy as np

    import holdall

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDALL_HTTP_DEADLINE", "0.01")  # nothing is to be read there
    url = WRITTEN[kind].format(password=PASSWORD, token=TOKEN, shared=SHARED, fragment=FRAGMENT)
    holdall.save(tmp_path / "local.oinf", {"w": np.ones((64, 64), np.float32)})
    holdall.save(tmp_path / "e.oinf", {"w": np.ones((64, 64), np.float32)}, metadata={"mode": "fast"})
    leaks, codes = {}, set()
    for command in list_options(url, "local.oinf", tmp_path, kind in ("a URL", "a quote in the password")):
        for debug in ([], ["--debug"]):
            done = cli(*debug, *command)
            codes.add(done.exit_code)
            shown = done.output + str(done.exception) + repr(done.exception)
            if any(secret in shown for secret in SECRETS):
                leaks[" ".join([*debug, *command])] = shown
            if done.exit_code not in (1, 3):
                break  # --debug makes no difference
    assert leaks == {}
    assert codes >= {0, 1, 2}


def test_what_is_written_into_a_file_keeps_its_url(cli, tmp_path):
    import numpy as np

    import holdall

    url = f"http://user:{PASSWORD}@host/a?sig={SHARED}"
    holdall.save(tmp_path / "a.oinf", {"w": np.ones(4, np.float32)})
    done = cli("convert", tmp_path / "a.oinf", tmp_path / "b.safetensors", "--meta", f"origin={url}")
    assert done.exit_code == 0 and PASSWORD not in done.output
    assert cli("edit", tmp_path / "b.safetensors", "--set", f"other={url}").exit_code == 0
    with holdall.open(tmp_path / "b.safetensors") as model:
        assert model.metadata["origin"] == model.metadata["other"] == url
