"""Decoding of untrusted JSON."""

from __future__ import annotations

import itertools
import json
import math
import re
import tracemalloc

import pytest

from greenroom.http.guard.json_counter import JsonCounter
from greenroom.http.guard.request_body import decode_counted_json, decode_json
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
    assert decode_json(b'{"a": -' + b"9" * 309 + b"}") == {"a": -int("9" * 309)}
    assert decode_json(b"[9223372036854775808, -9223372036854775809]") == [2**63, -(2**63) - 1]
    assert decode_json(b"[0.1, 1e-400, -0.0, 1E5]") == [0.1, 0.0, 0.0, 100_000.0]
    assert math.copysign(1, decode_json(b"-0.0")) == -1


def test_half_of_a_surrogate_pair_becomes_a_replacement_character_wherever_it_stands() -> None:
    pieces = [rb"\ud83d", rb"\uDE00", rb"\uDBFF", rb"\\", rb"\\ud83d", b"a", rb"\n", "\U0001f600".encode()]
    for several in itertools.product(pieces, repeat=4):
        data = b'"' + b"".join(several) + b'"'
        assert decode_json(data) == re.sub("[\ud800-\udfff]", "\ufffd", json.loads(data)), data


@pytest.mark.parametrize("size", range(65_525, 65_550))
def test_surrogates_are_paired_wherever_a_large_body_is_cut(size: int) -> None:
    text = "a" * (size % 2) + "\\" * (size // 2)
    data = json.dumps([text + "\U0001f600\ud83d", "\udead"])
    assert decode_json(data.encode()) == [text + "\U0001f600\ufffd", "\ufffd"]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b'{"a": [1,2}', "byte 10"),
        (b'{"a" 1}', "byte 5"),
        (b"{} {}", "trailing"),
        (b"{", "truncated"),
        (b'"\xff"', "UTF-8"),
        (b"[1e999]", "out of range"),
        (b"[" + b"9" * 310 + b"]", "more than 309 digits"),
        (rb'"\ud83d\x"', "escape"),
    ],
)
def test_what_is_wrong_is_told_briefly(data: bytes, named: str) -> None:
    with pytest.raises(ProblemError) as refused:
        decode_json(data)
    assert named in refused.value.problem.detail
    assert len(refused.value.problem.detail) < 200


@pytest.mark.parametrize(("letter", "factor"), [("a", 1.1), ("\u4e2d", 3.1)])
def test_a_large_body_with_an_emoji_takes_little_beside_its_strings(letter: str, factor: float) -> None:
    size = 8 << 20
    text = letter * (size // len(letter.encode()))
    body = bytearray(json.dumps(["\U0001f600", text], ensure_ascii=False).encode())
    del text
    counter = JsonCounter()
    counter.feed(bytes(body))
    tracemalloc.start()
    try:
        value = decode_counted_json(body, counter)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not body
    assert value[0] == "\U0001f600"
    assert kept < 1.1 * size
    assert peak < factor * size
