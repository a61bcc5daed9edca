"""Request bodies: read with size limits, decoded and parsed without blocking the event loop."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import attrs
import msgspec
import trio
from quart import Request
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from greenroom.http.guard.byte_account import ByteAccount
from greenroom.http.guard.content_encoding import content_encoding, new_decoder
from greenroom.http.guard.json_counter import MAX_DIGITS, DecodedObjectBudget, GcGuard, JsonCounter
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE

T = TypeVar("T")

BODY_BYTES = 32 * MEGABYTE  # Default limit on a body without files, in bytes
BODY_BYTES_WITH_FILES = 80 * MEGABYTE
"""Default limit on a body with files, in bytes: 50 MB of them take 67 MB as base64."""
FURTHER_BYTES = 16 * MEGABYTE
"""Bytes that all bodies together may take beyond the largest one, each until its request ends."""
_LARGE_BYTES = 65_536
_LARGE_CONTAINERS = 256  # Arrays and objects up to which a body is decoded without a worker thread


@attrs.define(eq=False)
class _Body:
    parts: list[bytes] = attrs.field(factory=list)
    counter: JsonCounter = attrs.field(factory=JsonCounter)

    def take(self) -> bytearray:
        data = bytearray().join(self.parts)
        self.parts.clear()
        return data

    @property
    def is_large(self) -> bool:
        return self.counter.size > _LARGE_BYTES or self.counter.containers > _LARGE_CONTAINERS


class RequestBodies:
    """Reads request bodies within a memory budget.

    Args:
        max_bytes: Size limit of every body, in bytes; None for the defaults.
        on_body: Function that sees each body before it is decoded, in parts; None for none.

    Attributes:
        largest: Size limit of a body with files, in bytes.
    """

    def __init__(
        self, max_bytes: int | None = None, on_body: Callable[[Sequence[bytes]], None] | None = None
    ) -> None:
        self._on_body = on_body
        self._plain = max_bytes or BODY_BYTES
        self.largest = max_bytes or BODY_BYTES_WITH_FILES
        detail = "Current requests use up the memory for request bodies. Try again."
        problem = Problem(503, "too_many_bodies", detail, retry_after=1)
        self._account = ByteAccount(self.largest + FURTHER_BYTES, problem)
        self._collections = GcGuard()
        self._decoded = DecodedObjectBudget()
        # Decoding takes several times a body's size in memory, and two jobs would fight for the GIL.
        self._decoding = trio.CapacityLimiter(1)

    async def parse(
        self,
        request: Request,
        resources: ExitStack,
        parse: Callable[[Any], T],
        *,
        files: bool = False,
        client: str = "",
    ) -> T:
        """Return the result of `parse` for the decoded body; large bodies are parsed on a worker thread.

        Args:
            resources: Resources of the request; the body is charged to the budget until they close.
            files: True if the body may hold images and other files, which raises its size limit.
            client: The client's name; each has its share of the decoded objects.

        Raises:
            ProblemError: 400 if it is not JSON or cannot be decompressed, 413 if it exceeds a limit, 415 for
                another type, 503 if other bodies use up the budget; and any error of `parse`.
        """
        # `HostGuard` and the protocol have checked other content types already.
        if request.mimetype.startswith("multipart/"):
            raise ProblemError(
                Problem(415, "unsupported_media_type", "This endpoint takes application/json bodies only.")
            )
        body = await self._read(request, resources, self.largest if files else self._plain)
        if self._on_body is not None:
            self._on_body(body.parts)
        objects = body.counter.objects
        translated = await self._decoded.hold(client, objects, resources)
        self._collections.hold(objects)
        resources.callback(self._collections.release, objects)

        def decode_and_parse() -> T:
            return parse(decode_counted_json(body.take(), body.counter))

        if not body.is_large:
            return decode_and_parse()
        decoding = self._decoding
        parsed = await trio.to_thread.run_sync(decode_and_parse, abandon_on_cancel=True, limiter=decoding)
        translated()
        return parsed

    def account(self, resources: ExitStack) -> Callable[[int], None]:
        """Return a function that charges a request for bytes beside its body, given their total.

        The function raises a ProblemError, 503, if other requests use up the budget.

        Args:
            resources: Resources of the request; the charge is released when they close.
        """
        beside = _Body()
        resources.callback(self._account.release, beside)
        return partial(self._account.hold, beside)

    async def _read(self, request: Request, resources: ExitStack, limit: int) -> _Body:
        timeout = math.inf if request.body_timeout is None else request.body_timeout
        declared = request.content_length or 0
        if declared > limit:
            raise RequestEntityTooLarge
        body = _Body()
        resources.callback(self._account.release, body)
        # Charging the declared size up front lets the first of several large bodies finish, instead of none.
        self._account.hold(body, declared)
        decoder = new_decoder(content_encoding(request.headers))
        came = 0
        limit_of_time = body_limit(request, trio.current_time() + timeout)
        with trio.move_on_at(limit_of_time.deadline) as waiting:
            async for part in request.body:
                came += len(part)
                if came > limit:  # compressed data may decompress to nothing
                    raise RequestEntityTooLarge
                if decoder is None:
                    self._add(body, part, limit)
                    continue
                for piece in decoder.feed(part):
                    self._add(body, piece, limit, beside=decoder.window)
                    # Small input may decompress to much output.
                    await trio.lowlevel.checkpoint()
        if waiting.cancelled_caught:
            raise limit_of_time.late()
        if decoder is not None:
            decoder.finish()
        return body

    def _add(self, body: _Body, part: bytes, limit: int, beside: int = 0) -> None:
        """Add a part to a body within the budget. `beside`: memory used beside the body while it arrives, in
        bytes; at most the body's size is charged.
        """
        size = body.counter.size + len(part)
        if size > limit:
            raise RequestEntityTooLarge
        body.counter.feed(part)
        self._account.hold(body, size + min(size, beside))
        # Parts avoid heap fragmentation: forty growing arrays of 3 MB took 275 MB.
        body.parts.append(part)


BODY_LIMIT = "body_limit"  # Key in the state of a request's scope, of its `BodyLimit`


@attrs.frozen
class BodyLimit:
    """The limit of a whole request, as far as its body is concerned. `deadline`: time by Trio's clock."""

    deadline: float = math.inf
    late: Callable[[], Exception] = RequestTimeout


def body_limit(request: Request, usual: float) -> BodyLimit:
    """Return the limit that ends first. `usual`: time by Trio's clock at which every body must have arrived;
    then the error is a 408.
    """
    whole: BodyLimit | None = request.scope["state"].get(BODY_LIMIT)
    return whole if whole is not None and whole.deadline <= usual else BodyLimit(usual)


_DECODER = msgspec.json.Decoder()
_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_REPLACEMENT = rb"\ufffd"
_SLICE = 65_536  # Bytes per search
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
