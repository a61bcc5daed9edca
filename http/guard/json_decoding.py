"""JSON that anybody may have sent as Python values, once it has been counted."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from greenroom.http.guard.json_counter import JsonCounter, complex_body
from greenroom.schemas.problems import Problem, ProblemError

MAX_DIGITS = 309
"""Of an integer: as many as the largest number has that a double can hold."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def decode_json(data: bytes) -> Any:
    """Return JSON text as Python values; NaN, Infinity and numbers that overflow are refused.

    Every string can be encoded: half a surrogate pair becomes U+FFFD.

    Raises:
        ProblemError: 400 or 413.
    """
    counter = JsonCounter()
    counter.feed(data)
    return decode_counted_json(bytearray(data), counter)


def decode_counted_json(body: bytearray, counter: JsonCounter) -> Any:
    """Return the values of a body that has been counted, as `decode_json` does; the body is emptied.

    Raises:
        ProblemError: 400.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed_body("it is not valid UTF-8") from None
    # Text and values take several times its size.
    body.clear()
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_parse_finite, parse_int=_parse_integer
        )
    except RecursionError:
        raise complex_body("is nested too deeply") from None
    except ValueError as error:
        raise _malformed_body(str(error)) from None
    return _replace_lone_surrogates(value) if counter.has_surrogates else value


def _replace_lone_surrogates(value: Any) -> Any:
    """Return the value with U+FFFD for half a surrogate pair, which clients leave when they cut text."""
    match value:
        case str():
            return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
        case dict():
            return {
                _replace_lone_surrogates(key): _replace_lone_surrogates(child) for key, child in value.items()
            }
        case list():
            return [_replace_lone_surrogates(child) for child in value]
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _parse_integer(text: str) -> int:
    # Python's time grows with the square of the digits.
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits, more than {MAX_DIGITS}")
    return int(text)


def _malformed_body(why: str) -> ProblemError:
    return ProblemError(Problem(400, "invalid_json", f"The body is not valid JSON: {why}."))
