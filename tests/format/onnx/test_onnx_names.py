"""Initializers whose names are wrong are findings of their own: they hide no other finding."""

from __future__ import annotations

import holdall


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def test_a_name_that_is_not_utf8_does_not_hide_what_is_wrong_with_another_tensor():
    without_values = b"\x08\x02\x10\x01" + field(8, b"a")
    not_text = b"\x08\x02\x10\x01" + field(8, b"b\xffb") + field(9, bytes(8))
    model = b"\x08\x07" + field(7, field(5, without_values) + field(5, not_text))
    findings = holdall.verify(model, format="onnx").findings
    assert [finding.rule for finding in findings] == ["onnx.tensor.data", "onnx.wire.text"]
