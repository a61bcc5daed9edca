"""Decoding of untrusted JSON that is within the complexity limits."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from greenroom.http.guard.json_counter import MAX_DIGITS, JsonCounter
from greenroom.schemas.problems import Problem, ProblemError

_DECODER = msgspec.json.Decoder()
_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_REPLACEMENT = rb"\ufffd"
_SLICE = 65_536
"""Bytes per search."""
_LONGEST_PAIR = 12


def decode_json(data: bytes) -> Any:
    """Return JSON text as Python values; NaN, Infinity and numbers that overflow are refused.

    Lone surrogates become U+FFFD, so that every string can be encoded.

    Raises:
        ProblemError: 400 or 413.
    """
    counter = JsonCounter()
    counter.feed(data)
    return decode_counted_json(bytearray(data), counter)


def decode_counted_json(body: bytearray, counter: JsonCounter) -> Any:
    """Return the values of a counted body like `decode_json`, and empty the body.

    Raises:
        ProblemError: 400.
    """
    if counter.has_long_numbers:
        # The decoder takes quadratic time in the digits of an integer.
        raise _malformed_body(f"a number has more than {MAX_DIGITS} digits")
    try:
        value = _decode(body, counter)
    except UnicodeDecodeError:
        raise _malformed_body("it is not valid UTF-8") from None
    except msgspec.DecodeError as error:
        raise _malformed_body(str(error)) from None
    finally:
        body.clear()
    return value


def _decode(body: bytearray, counter: JsonCounter) -> Any:
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError:
        # The decoder refuses lone surrogates, which clients produce when they truncate text.
        if not counter.has_surrogates:
            raise
    _replace_lone_surrogates(body)
    return _DECODER.decode(body)


def _replace_lone_surrogates(body: bytearray) -> None:
    """Overwrite each escaped lone surrogate with an escaped U+FFFD, which has the same length."""
    escapes = body.replace(rb"\\", b"__")
    # A search holds the GIL until it finds something.
    for start in range(0, len(escapes), _SLICE):
        end = start + _SLICE
        for lone in _LONE_SURROGATE.finditer(escapes, start, end + _LONGEST_PAIR):
            if lone.start() < end:
                body[slice(*lone.span())] = _REPLACEMENT


def _malformed_body(why: str) -> ProblemError:
    return ProblemError(Problem(400, "invalid_json", f"The body is not valid JSON: {why}."))
