"""Reading JSON that anybody may have sent: bounded in size, depth and number of values."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import trio
from quart import Request
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from greenroom.schemas.problems import Problem, ProblemError

MAX_DEPTH = 64
MAX_CONTAINERS = 500_000
"""Arrays and objects in one body: 32 MB of `[],[],…` would become a gigabyte of Python lists."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(request: Request) -> Any:
    """Return the decoded body of a request.

    Raises:
        ProblemError: 400 if it is no JSON, 413 if it is nested too deeply, 415 for another type.
    """
    if request.mimetype != "application/json":
        raise ProblemError(
            Problem(415, "unsupported_media_type", "This endpoint takes application/json bodies only.")
        )
    return decode_json(await _read(request))


async def _read(request: Request) -> bytes:
    """Return the body; from Quart 0.23 on, one without a Content-Length is bounded by nobody else."""
    limit = request.max_content_length
    body = bytearray()
    with trio.move_on_after(math.inf if request.body_timeout is None else request.body_timeout) as waiting:
        async for part in request.body:
            body += part
            if limit is not None and len(body) > limit:
                raise RequestEntityTooLarge
    if waiting.cancelled_caught:
        raise RequestTimeout
    return bytes(body)


def decode_json(data: bytes) -> Any:
    """Return JSON text as Python values; NaN, Infinity and numbers that overflow are refused.

    Every string can be encoded: half a surrogate pair becomes U+FFFD.

    Raises:
        ProblemError: 400 or 413.
    """
    containers = data.count(b"[") + data.count(b"{")
    if containers > MAX_CONTAINERS:
        raise _complex_body(f"holds more than {MAX_CONTAINERS} arrays and objects")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_parse_finite)
    except UnicodeDecodeError:
        raise _malformed_body("it is not valid UTF-8") from None
    except RecursionError:
        raise _complex_body(f"is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise _malformed_body(str(error)) from None
    if containers > MAX_DEPTH and _is_deeper_than(value, MAX_DEPTH):
        raise _complex_body(f"is nested more than {MAX_DEPTH} levels deep")
    return _replace_lone_surrogates(value) if _SURROGATE.search(data) else value


def _replace_lone_surrogates(value: Any) -> Any:
    """Return the value with U+FFFD for half a surrogate pair, which clients leave when they cut text."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {
                _replace_lone_surrogates(key): _replace_lone_surrogates(child) for key, child in value.items()
            }
        case list():
            return [_replace_lone_surrogates(child) for child in value]
    return value


def _is_deeper_than(value: Any, depth: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _malformed_body(why: str) -> ProblemError:
    return ProblemError(Problem(400, "invalid_json", f"The body is not valid JSON: {why}."))


def _complex_body(why: str) -> ProblemError:
    return ProblemError(Problem(413, "body_too_complex", f"The JSON body {why}."))
