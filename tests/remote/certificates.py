"""A certificate that signs itself, made of numbers and of DER alone: no program and no library has to be there."""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

_RSA = "1.2.840.113549.1.1.1"
_SHA256_WITH_RSA = "1.2.840.113549.1.1.11"
_SHA256 = "2.16.840.1.101.3.4.2.1"
_COMMON_NAME, _ALTERNATIVE_NAMES, _CONSTRAINTS = "2.5.4.3", "2.5.29.17", "2.5.29.19"
_EXPONENT = 65537


def make_self_signed(*names: str, bits: int = 2048) -> tuple[bytes, bytes]:
    """Key and certificate as PEM, for hosts and addresses, valid from yesterday to tomorrow."""
    p, q = _make_prime(bits // 2), _make_prime(bits // 2)
    n, d = p * q, pow(_EXPONENT, -1, (p - 1) * (q - 1))
    numbers = (0, n, _EXPONENT, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    key = _sequence(*map(_integer, numbers))
    public = _sequence(_sequence(_oid(_RSA), _tlv(5)), _bits(_sequence(_integer(n), _integer(_EXPONENT))))
    algorithm = _sequence(_oid(_SHA256_WITH_RSA), _tlv(5))
    subject = _sequence(_tlv(0x31, _sequence(_oid(_COMMON_NAME), _tlv(0x0C, names[0].encode()))))
    now = datetime.now(UTC)
    days = (_tlv(0x17, f"{now + timedelta(days):%y%m%d%H%M%SZ}".encode()) for days in (-1, 1))
    extensions = _sequence(
        _sequence(_oid(_ALTERNATIVE_NAMES), _tlv(4, _sequence(*map(_alternative, names)))),
        _sequence(_oid(_CONSTRAINTS), _tlv(1, b"\xff"), _tlv(4, _sequence())),  # critical, and no authority
    )
    content = _sequence(
        _tlv(0xA0, _integer(2)), _integer(secrets.randbits(64)), algorithm, subject, _sequence(*days), subject, public,
        _tlv(0xA3, extensions),
    )  # fmt: skip
    certificate = _sequence(content, algorithm, _bits(_sign(content, n, d)))
    return _pem("RSA PRIVATE KEY", key), _pem("CERTIFICATE", certificate)


def _sign(content: bytes, n: int, d: int) -> bytes:
    digest = _sequence(_sequence(_oid(_SHA256), _tlv(5)), _tlv(4, hashlib.sha256(content).digest()))
    size = n.bit_length() // 8
    padded = b"\0\1" + b"\xff" * (size - 3 - len(digest)) + b"\0" + digest
    return pow(int.from_bytes(padded), d, n).to_bytes(size)


def _make_prime(bits: int) -> int:
    """A probable prime whose highest two bits are set, so that a product of two has twice as many."""
    while True:
        number = secrets.randbits(bits) | 3 << (bits - 2) | 1
        small = all(number % divisor for divisor in range(3, 2000, 2))
        if small and number % _EXPONENT != 1 and all(_passes(number) for _ in range(8)):
            return number


def _passes(number: int) -> bool:
    """Whether the test of Miller and Rabin takes ``number`` for a prime, with a base of chance."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    power = pow(secrets.randbelow(number - 3) + 2, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def _alternative(name: str) -> bytes:
    try:
        return _tlv(0x87, ip_address(name).packed)
    except ValueError:
        return _tlv(0x82, name.encode())


def _tlv(tag: int, content: bytes = b"") -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tlv(0x30, b"".join(parts))


def _integer(number: int) -> bytes:
    return _tlv(2, number.to_bytes(number.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _tlv(3, b"\0" + content)


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = bytes([40 * first + second])
    for number in rest:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return _tlv(6, content)


def _pem(what: str, content: bytes) -> bytes:
    lines = base64.encodebytes(content).decode()
    return f"-----BEGIN {what}-----\n{lines}-----END {what}-----\n".encode()
