"""The bodies of requests: read within bounds, decoded and parsed where that holds up nobody else."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import attrs
import trio
from quart import Request
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from greenroom.http.guard.byte_account import ByteAccount
from greenroom.http.guard.content_encoding import content_encoding, new_decoder
from greenroom.http.guard.decoded_objects import DecodedObjects
from greenroom.http.guard.full_collections import FullCollections
from greenroom.http.guard.json_counter import JsonCounter
from greenroom.http.guard.json_decoding import decode_counted_json
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings import MEGABYTE

T = TypeVar("T")

BODY_BYTES = 32 * MEGABYTE
"""Of the largest body without files that is read, unless the settings say otherwise."""
BODY_BYTES_WITH_FILES = 80 * MEGABYTE
"""Of the largest body with files: 50 MB of them take 67 MB as base64."""
FURTHER_BYTES = 16 * MEGABYTE
"""What all bodies may hold together beyond the largest one, each until its answer has ended."""
_LARGE_BYTES = 65_536
_LARGE_CONTAINERS = 256
"""What a body may have at most to be decoded without another thread."""


@attrs.define(eq=False)
class _Body:
    parts: list[bytes] = attrs.field(factory=list)
    counter: JsonCounter = attrs.field(factory=JsonCounter)

    def take(self) -> bytearray:
        """Return all that came, and keep nothing."""
        data = bytearray().join(self.parts)
        self.parts.clear()
        return data

    @property
    def is_large(self) -> bool:
        return self.counter.size > _LARGE_BYTES or self.counter.containers > _LARGE_CONTAINERS


class RequestBodies:
    """Reads the bodies of an application's requests, and knows how much of them is held at once.

    Args:
        max_bytes: Size of the largest body that is read, whatever is in it; None for the usual sizes.

    Attributes:
        largest: Size of the largest body, with files.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._plain = max_bytes or BODY_BYTES
        self.largest = max_bytes or BODY_BYTES_WITH_FILES
        detail = "The requests under way hold as much as this server keeps of bodies. Try again."
        problem = Problem(503, "too_many_bodies", detail, retry_after=1)
        self._account = ByteAccount(self.largest + FURTHER_BYTES, problem)
        self._collections = FullCollections()
        self._decoded = DecodedObjects()
        # Each takes several times its size while it is decoded, and two would only compete for the GIL.
        self._decoding = trio.CapacityLimiter(1)

    async def parse(
        self, request: Request, resources: ExitStack, parse: Callable[[Any], T], *, files: bool = False
    ) -> T:
        """Return what `parse` makes of the decoded body, on another thread if that may take long.

        Args:
            resources: Closed when the request has ended; until then its body counts.
            files: There may be images and other files in it.

        Raises:
            ProblemError: 400 if it is no JSON or cannot be decompressed, 413 if it holds too much, 415 for
                another type, 503 if those of other requests leave no room, and whatever `parse` raises.
        """
        # Which other types are taken for JSON, and from whom, has been decided before.
        if request.mimetype.startswith("multipart/"):
            raise ProblemError(
                Problem(415, "unsupported_media_type", "This endpoint takes application/json bodies only.")
            )
        body = await self._read(request, resources, self.largest if files else self._plain)
        objects = body.counter.objects
        await self._decoded.hold(objects, resources)
        self._collections.hold(objects)
        resources.callback(self._collections.release, objects)

        def decode_and_parse() -> T:
            return parse(decode_counted_json(body.take(), body.counter))

        if not body.is_large:
            return decode_and_parse()
        return await trio.to_thread.run_sync(decode_and_parse, abandon_on_cancel=True, limiter=self._decoding)

    def account(self, resources: ExitStack) -> Callable[[int], None]:
        """Return what is told how many bytes a request holds beside its body, as they grow.

        It raises a ProblemError, 503, where they leave no room for others.

        Args:
            resources: Closed when the request has ended; until then they count.
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
        # Of bodies that arrive side by side the first go through, instead of none.
        self._account.hold(body, declared)
        decoder = new_decoder(content_encoding(request.headers))
        came = 0
        with trio.move_on_after(timeout) as waiting:
            async for part in request.body:
                came += len(part)
                if came > limit:  # much may come that decompresses to nothing
                    raise RequestEntityTooLarge
                if decoder is None:
                    self._add(body, part, limit)
                    continue
                for piece in decoder.feed(part):
                    self._add(body, piece, limit, beside=decoder.window)
                    # A little that comes may become much.
                    await trio.lowlevel.checkpoint()
        if waiting.cancelled_caught:
            raise RequestTimeout
        if decoder is not None:
            decoder.finish()
        return body

    def _add(self, body: _Body, part: bytes, limit: int, beside: int = 0) -> None:
        """Add a part to a body, if there is room for it.

        Args:
            beside: Bytes that are held beside the body while it comes, but never more than it has itself.
        """
        size = body.counter.size + len(part)
        if size > limit:
            raise RequestEntityTooLarge
        body.counter.feed(part)
        self._account.hold(body, size + min(size, beside))
        # One array that grows leaves holes in the heap: forty of 3 MB side by side took 275 MB.
        body.parts.append(part)
