"""JSON that anybody may have sent."""

from __future__ import annotations

import pytest

from greenroom.http.guard.json_decoding import decode_json
from greenroom.schemas.problems import ProblemError


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"a": NaN}', 400),
        (b'{"a": -Infinity}', 400),
        (b'{"a": 1e999}', 400),
        (b'{"a": ' + b"9" * 310 + b"}", 400),
        (b'{"a": -' + b"9" * 100_000 + b"}", 400),
        (b"\xef\xbb\xbf{}", 400),
        ('{"a": 1}'.encode("utf-16"), 400),
        (nested(65), 413),
        (nested(100_000), 413),
        (b"[" * 400_000, 413),
        (b'{"a": [' + b"1," * 10 + b"}", 400),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 413),
    ],
)
def test_hostile_json_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(ProblemError) as refused:
        decode_json(data)
    assert refused.value.problem.status == status


def test_odd_json_is_read() -> None:
    assert decode_json(nested(64))
    assert decode_json(b'{"a": 1, "a": 2}') == {"a": 2}
    assert decode_json(b'{"a": "' + b"[{" * 1000 + b'"}') == {"a": "[{" * 1000}
    assert decode_json(b'{"a": ' + b"9" * 309 + b"}") == {"a": int("9" * 309)}
    assert decode_json(rb'{"\ud800": ["a\uDFFF", "\ud83d\ude00"]}') == {"\ufffd": ["a\ufffd", "\U0001f600"]}
