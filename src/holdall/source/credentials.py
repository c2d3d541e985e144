"""Endpoints and credentials as people set them: the environment, and the profiles of the AWS tools.

Nothing here is ever printed or put into an error.
"""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any

__all__ = ["client_options", "endpoint_is_plain", "s3_config"]

_CA_VARIABLES = ("HOLDALL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

_PROFILE_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def client_options(*, plain_http: bool) -> dict[str, Any]:
    """Timeouts, a certificate authority of one's own, and plain HTTP only where the URL says so."""
    from datetime import timedelta

    options: dict[str, Any] = {
        "allow_http": plain_http,
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=_seconds("HOLDALL_HTTP_TIMEOUT", 30)),
        "timeout": timedelta(seconds=600),  # of one request, however slowly its bytes drip
        "user_agent": "holdall",
    }
    bundle = next((os.environ[name] for name in _CA_VARIABLES if os.environ.get(name)), None)
    if bundle is not None:
        options["root_certificate"] = Path(bundle).read_bytes()  # in addition to those of the system
    return options


def s3_config() -> dict[str, str]:
    """What the environment does not say and the chosen profile of ``~/.aws`` does; the environment wins."""
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
            continue  # somebody else's file: what it says is said by the tools it belongs to
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
        config["skip_signature"] = "true"  # public buckets, without asking a metadata service that is not there
    return config


def endpoint_is_plain(scheme: str) -> bool:
    """Whether the endpoint that is set for a cloud (``gs``, ``az``) is one without encryption: an emulator."""
    names = {"gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST")}
    set_to = (os.environ.get(name, "") for name in names.get(scheme, ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")))
    return any(value.startswith("http://") for value in set_to)


def _seconds(name: str, default: float) -> float:
    try:
        return float(os.environ.get(name, default))
    except ValueError:
        return default
