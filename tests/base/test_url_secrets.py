"""What the arguments of a command have of secrets, and what is left of a message without them."""

from __future__ import annotations

import json

import pytest

from holdall.base.url_secrets import Secrets, find_secrets

SECRET = "hunter2-9f3c"


@pytest.mark.parametrize(
    ("argument", "secrets"),
    [
        ("https://me:pw12@host/a?sig=abc&x=1#top", ["pw12", "abc", "1", "top"]),
        ("http:/me:pw12@host/a", ["pw12"]),
        ("--cast=http://me:pa'ss word@host/a?sig=abc=f16", ["pa'ss word", "abc=f16"]),
        ("a=https://host/,b=https://user:pw12@host/x", ["pw12"]),
        ("http://me:pa/ss@host/x", ["pa/ss"]),
        ("https://token@host/x", ["token"]),
        ("s3://key:pw12@bucket/x?versionId=7", ["pw12", "7"]),
        ("http://host:8000/a@b/c", []),
        ("http://[::1]:8000/a", []),
        ("C:/models/a.oinf", []),
        ("chunk=ABCD:name@/tmp/x?y=1", []),
        ("key=value:more@home", []),
    ],
)
def test_secrets_are_found_in_arguments_as_they_were_given(argument, secrets):
    assert [secret.text for secret in find_secrets(argument)] == secrets


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        f"'{SECRET}': No such file",
        f"ABCD:http://me:pa'{SECRET}",
        f'[Errno 2] No such file: "http:/me:pa\'{SECRET}@h/a"',
        f"me:pa\\'{SECRET}@h",
        f"sig={SECRET}",
        f"no dtype {SECRET!r}",
        "no dtype hunter2-9…",
        f"x{SECRET}y",
    ],
)
def test_a_message_shows_no_secret_however_its_url_was_split(shown):
    hidden = Secrets([f"--cast=http://me:pa'{SECRET}@h/a?sig={SECRET}=f16"]).hide(shown)
    assert "hunter2" not in hidden and "9f3c" not in hidden


def test_a_short_secret_is_blanked_beside_its_url():
    secrets = Secrets(["edit", "--asset", "http://me:x@h/a?b=7"])
    assert secrets.hide("ABCD:http:/me:x, then :x@h, then a?b=7") == "ABCD:http:/…, then :…@h, then a?…"
    assert secrets.hide("7 of 10 x") == "7 of 10 x"


def test_what_is_given_in_the_open_too_is_no_secret():
    secrets = Secrets(["convert", "http://h/get?file=model.safetensors&sig=hunter22", "model.safetensors"])
    assert secrets.hide("model.safetensors: hunter22") == "model.safetensors: …"
    other = Secrets(["convert", "http://h/get?file=model.safetensors", "x:y", "model.oinf"])
    assert other.hide("model.oinf: no space, model.safetensors") == "model.oinf: no space, …"


def test_data_keep_words_and_numbers_that_a_query_happens_to_have():
    secrets = Secrets(["ls", "http://me:weight@h/a?download=true&name=layers.0.weight&sig=20261119&tok=Sesame-8f3a"])
    row = {"name": "layers.0.weight", "has_data": True, "nbytes": 20261119, "note": ["Sesame-8f3a", "true", None]}
    hidden = {**row, "note": ["…", "true", None]}
    assert secrets.hide_in_data(row) == hidden
    assert secrets.hide_in_data(json.dumps(row)) == json.dumps(hidden, ensure_ascii=False)


def test_a_message_without_urls_stays_whole():
    assert Secrets([]).hide("a: b") == "a: b"
    assert Secrets(["chunk=ABCD:x"]).hide("chunk=ABCD:x is not there") == "chunk=ABCD:x is not there"
