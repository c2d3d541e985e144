"""Endpoints and credentials from the environment and from the profiles of the AWS tools.

None of these values is ever printed or put into an error.
"""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any

from holdall.errors import UnsupportedError

__all__ = ["client_options", "encode_basic_auth", "endpoint_is_plain", "read_authorities", "read_deadline"]
__all__ += ["read_timeout", "s3_config"]

_CA_VARIABLES = ("HOLDALL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

_PROFILE_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def client_options(*, plain_http: bool) -> dict[str, Any]:
    """Timeouts, the certificate authority that the user names, and plain HTTP only if the URL says so."""
    from datetime import timedelta

    options: dict[str, Any] = {
        "allow_http": plain_http,
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=read_timeout()),
        "timeout": timedelta(seconds=read_deadline()),
        "user_agent": "holdall",
    }
    authorities = read_authorities()
    if authorities is not None:
        options["root_certificate"] = authorities
    return options


def read_timeout() -> float:
    """Seconds without a byte after which a request is tried again."""
    return _parse_seconds("HOLDALL_HTTP_TIMEOUT", 30)


def read_deadline() -> float:
    """Seconds that one request may take with its redirects, however slowly bytes arrive."""
    return _parse_seconds("HOLDALL_HTTP_DEADLINE", 600)


def read_authorities() -> bytes | None:
    """The certificate authorities that the user names, in addition to those of the system; None if there are none."""
    name = next((name for name in _CA_VARIABLES if os.environ.get(name)), None)
    if name is None:
        return None
    try:
        return Path(os.environ[name]).read_bytes()
    except OSError as error:
        raise UnsupportedError(f"the certificates that {name} names cannot be read: {error.strerror}") from None


def encode_basic_auth(user: str, password: str) -> str:
    """The header that proves who asks, by user and password.

    >>> encode_basic_auth("me", "secret")
    'Basic bWU6c2VjcmV0'
    """
    from base64 import b64encode

    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def s3_config() -> dict[str, str]:
    """The settings of the chosen profile in ``~/.aws``, overridden by those in the environment."""
    config: dict[str, str] = {}
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path.home() / ".aws"
    files = (
        (
            os.environ.get("AWS_CONFIG_FILE") or home / "config",
            profile if profile == "default" else f"profile {profile}",
        ),
        (os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", profile),
    )
    for path, section in files:
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(path)
        except (ConfigError, OSError, UnicodeDecodeError):
            continue  # the AWS tools report what is wrong with their files
        if parser.has_section(section):
            found = {name: value for name, value in parser.items(section) if name in _PROFILE_KEYS}
            config.update({_PROFILE_KEYS[name]: value for name, value in found.items()})
    variables = {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_REGION": "region",
        "AWS_DEFAULT_REGION": "region",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ENDPOINT_URL_S3": "endpoint",
    }
    config.update({key: os.environ[name] for name, key in variables.items() if os.environ.get(name)})
    config.setdefault("region", "us-east-1")
    anonymous = os.environ.get("AWS_SKIP_SIGNATURE") or os.environ.get("AWS_EC2_METADATA_DISABLED") or ""
    if "access_key_id" not in config and anonymous.lower() in ("1", "true"):
        config["skip_signature"] = "true"  # public buckets; the default would ask a metadata service for credentials
    return config


def endpoint_is_plain(scheme: str) -> bool:
    """Whether the endpoint that is set for a cloud (``gs``, ``az``) is an emulator without encryption."""
    names = {"gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST")}
    set_to = (os.environ.get(name, "") for name in names.get(scheme, ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")))
    return any(value.startswith("http://") for value in set_to)


def _parse_seconds(name: str, default: float) -> float:
    try:
        seconds = float(os.environ.get(name, default))
    except ValueError:
        return default
    return seconds if 0 < seconds < float("inf") else default
