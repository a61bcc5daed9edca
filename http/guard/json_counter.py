"""Complexity limits of JSON bodies, and a budget of the objects that are decoded at one time.

Decoding holds the GIL until it is done, and one byte of JSON may become fifty of Python objects: `[],[],…`.
Counting takes a fraction of a millisecond for each part of a body.
"""

from __future__ import annotations

import gc
import re
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate

import attrs
import trio

from greenroom.actors.core.fair_share import Pot
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE

MAX_DEPTH = 64
MAX_CONTAINERS = 100_000
"""Arrays and objects of one body; a conversation of 10,000 messages with calls and parts has half of that."""
MAX_MEMBERS = 200_000  # Members of all objects of one body together
MAX_STRINGS = 300_000  # Strings of one body, member names included; each takes some ninety bytes
MAX_VALUES = 1_000_000  # Members and items of one body together: enough for a prompt of a million token ids
MAX_ESCAPES = 4_000_000
"""Backslashes in one body: 32 MB of `\\n` take ten times as long to decode as 32 MB of letters."""
MAX_WIDE_BYTES = 6 * MEGABYTE
"""Bytes of all strings of one body with a character beyond U+FFFF.

Python stores such a string with four bytes per character.
"""
MAX_DIGITS = 309  # Consecutive digits of a number: as many as the largest double has as an integer

_SLICE = 65_536  # Bytes counted per step, which holds the GIL for 1.6 ms at worst
_VALUES_OF_OBJECT = 16
_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_WIDE = re.compile(rb"%b|%b" % (_FOUR_BYTES.pattern, _SURROGATE.pattern))
_OPEN_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_LONGEST_OPEN_ESCAPE = 5
_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_TOO_MANY_DIGITS = b"0" * (MAX_DIGITS + 1)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


class JsonCounter:
    """Counts the JSON values of one body, which is fed in parts.

    Invalid JSON is counted like valid JSON: the counts are right up to the first error, where a decoder
    stops.

    Attributes:
        size: Bytes so far.
        containers: Arrays and objects so far.
        members: Members of objects so far.
        values: Items and members so far, except the first of each array and object.
        has_surrogates: True if an escape may be a lone surrogate.
        has_long_numbers: True if a number has more than `MAX_DIGITS` consecutive digits.
    """

    def __init__(self, max_depth: float = MAX_DEPTH) -> None:
        self._max_depth = max_depth
        self.size = 0
        self.containers = 0
        self.members = 0
        self.values = 0
        self.has_surrogates = False
        self.has_long_numbers = False
        self._escapes = 0
        self._quotes = 0
        self._wide_bytes = 0
        self.begin_document()

    def feed(self, part: bytes) -> None:
        """Count the values in the next part. Raises ProblemError (413) that names the exceeded limit."""
        for start in range(0, len(part), _SLICE):
            self._feed_slice(part[start : start + _SLICE])

    @property
    def objects(self) -> int:
        """The cost of the body for the garbage collector, in arrays and objects."""
        return self.containers + self.values // _VALUES_OF_OBJECT

    def begin_document(self) -> None:
        """Start another JSON text, whose values add to the same counts."""
        self._depth, self._in_string = 0, False
        self._open_escape, self._open_number = b"", b""
        self._string_bytes, self._string_is_wide = 0, False

    def _feed_slice(self, part: bytes) -> None:
        self.size += len(part)
        text = self._without_escaped_quotes(part)
        pieces = text.split(b'"')
        self._quotes += len(pieces) - 1
        outside = b"".join(pieces[self._in_string :: 2])
        strings = pieces[not self._in_string :: 2]
        self._in_string ^= not len(pieces) % 2
        self._measure_wide_strings(text, strings)
        self.containers += outside.count(b"[") + outside.count(b"{")
        self.members += outside.count(b":")
        self.values += outside.count(b",")
        self._refuse_above(self._escapes, MAX_ESCAPES, "escaped characters")
        self._refuse_above(self.containers, MAX_CONTAINERS, "arrays and objects")
        self._refuse_above(self.members, MAX_MEMBERS, "members of objects")
        self._refuse_above(self._quotes // 2, MAX_STRINGS, "strings")
        self._refuse_above(self.values, MAX_VALUES, "values")
        self._follow_numbers(outside)
        self._follow_depth(outside)

    def _without_escaped_quotes(self, part: bytes) -> bytes:
        """Return the part with escaped quotes masked, but keep an incomplete escape for the next part."""
        text = self._open_escape + part
        self._open_escape = b""
        if b"\\" in text:
            self._escapes += part.count(b"\\")
            text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
            if cut := _OPEN_ESCAPE.search(text, max(0, len(text) - _LONGEST_OPEN_ESCAPE)):
                self._open_escape, text = text[cut.start() :], text[: cut.start()]
        return text

    def _measure_wide_strings(self, text: bytes, strings: list[bytes]) -> None:
        """Count the bytes of strings with a character beyond U+FFFF. `strings`: strings of the text. The
        first may continue from before it, and the last may be incomplete.
        """
        has_surrogates = b"\\" in text and _SURROGATE.search(text) is not None
        self.has_surrogates |= has_surrogates
        is_wide = has_surrogates or (not text.isascii() and _FOUR_BYTES.search(text) is not None)
        for string in strings[:1]:
            self._go_on_in_string(string, is_wide)
        if len(strings) > 1:
            self._end_string()
            if is_wide:
                self._wide_bytes += sum(map(len, filter(_WIDE.search, strings[1:-1])))
            self._go_on_in_string(strings[-1], is_wide)
        if self._wide_bytes + self._string_bytes * self._string_is_wide > MAX_WIDE_BYTES:
            megabytes = MAX_WIDE_BYTES >> 20
            raise complex_body(f"holds over {megabytes} MB of strings with emoji or others beyond U+FFFF")
        if not self._in_string:
            self._end_string()

    def _go_on_in_string(self, text: bytes, may_be_wide: bool) -> None:
        self._string_bytes += len(text)
        self._string_is_wide = self._string_is_wide or (may_be_wide and _WIDE.search(text) is not None)

    def _end_string(self) -> None:
        self._wide_bytes += self._string_bytes * self._string_is_wide
        self._string_bytes, self._string_is_wide = 0, False

    def _follow_numbers(self, outside: bytes) -> None:
        text = self._open_number + outside
        if len(text) > MAX_DIGITS:
            self.has_long_numbers |= _TOO_MANY_DIGITS in text.translate(_DIGITS)
        self._open_number = text[-MAX_DIGITS:]

    def _follow_depth(self, outside: bytes) -> None:
        steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
        levels = list(accumulate(steps, initial=self._depth))
        self._depth = levels[-1]
        if max(levels) > self._max_depth:
            raise complex_body(f"is nested more than {self._max_depth} levels deep")

    def _refuse_above(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise complex_body(f"holds more than {most} {what}")


def complex_body(why: str) -> ProblemError:
    return ProblemError(Problem(413, "body_too_complex", f"The JSON body {why}."))


MAX_HELD = 150_000  # Limit on the objects of all requests together; each takes some 0.4 kB with its strings
UNCOUNTED = 5_000
"""Free allowance of each body, in objects; ordinary agent conversations are never delayed by large bodies."""
MAX_WAIT = 30.0  # Longest time that an undecoded body waits for the budget, in seconds
_AGED = 5.0  # Seconds after which a waiting body is passed by no other
_KEPT = 4
"""Divisor of a body's charge after its translation: a quarter stays for what the request keeps of it."""


@attrs.define(eq=False)
class _Waiting:
    client: str
    objects: int
    since: float = attrs.field(factory=trio.current_time)
    admitted: trio.Event = attrs.field(factory=trio.Event)


class DecodedObjectBudget:
    """Admits bodies to decoding, each client up to its share; undecoded bodies wait as bytes.

    What fits passes what does not, until that has waited for some seconds.
    """

    def __init__(self) -> None:
        self._pot = Pot(MAX_HELD)
        self._waiting: list[_Waiting] = []

    async def hold(self, client: str, objects: int, resources: ExitStack) -> Callable[[], None]:
        """Wait until a body's objects fit, and charge the client for them.

        Returns:
            Function to call once the body is translated; the rest stays charged until the resources close.

        Raises:
            ProblemError (503): the wait was too long.
        """
        if objects <= UNCOUNTED:
            return lambda: None
        waiting = _Waiting(client, objects)
        self._waiting.append(waiting)
        self._admit()
        charge = ExitStack()
        try:
            with trio.move_on_after(MAX_WAIT):
                await waiting.admitted.wait()
        finally:
            if waiting.admitted.is_set():
                charge.callback(self._release, client, objects - objects // _KEPT)
                resources.push(charge)
                resources.callback(self._release, client, objects // _KEPT)
            else:
                self._waiting.remove(waiting)
                self._admit()
        if not waiting.admitted.is_set():
            detail = "Current requests use up the limit of decoded JSON objects. Try again."
            raise ProblemError(Problem(503, "too_many_bodies", detail, retry_after=1))
        return charge.close

    def _release(self, client: str, objects: int) -> None:
        self._pot.give_back(client, objects)
        self._admit()

    def _admit(self) -> None:
        for waiting in tuple(self._waiting):
            if self._fits(waiting):
                self._waiting.remove(waiting)
                self._pot.take(waiting.client, waiting.objects)
                waiting.admitted.set()
            elif not self._pot.held(waiting.client) and trio.current_time() - waiting.since > _AGED:
                return  # what is released gathers for it

    def _fits(self, waiting: _Waiting) -> bool:
        client, held = waiting.client, self._pot.total
        if not self._pot.held(client):
            # A body beyond the whole budget is decoded while no other is charged.
            return not held or held + waiting.objects <= MAX_HELD
        others_wait = any(other.client != client for other in self._waiting)
        return waiting.objects <= self._pot.room(client, others_wait)


MAX_OBJECTS = 50_000
"""Limit on JSON arrays and objects of all requests above which full collections are postponed.

Each becomes some three Python objects, and a full collection over that many holds the GIL for 20 ms.
"""
MAX_REQUESTS = 10_000
"""Largest number of requests without a full collection; each leaves some 10 kB of cyclic garbage."""

USUAL = gc.get_threshold()  # Thresholds of Python's garbage collector at the start
_NEVER = 1 << 30


class GcGuard:
    """Postpones full garbage collections while requests hold many objects.

    Decoded bodies have no cycles and are freed by reference counting, so that a full collection finds nothing
    in them. Collections of young objects continue: they are short, and find most garbage.
    """

    def __init__(self) -> None:
        self._held = 0
        self._requests = 0

    def hold(self, objects: int) -> None:
        self._held += objects
        if self._held > MAX_OBJECTS:
            gc.set_threshold(*USUAL[:2], _NEVER)

    def release(self, objects: int) -> None:
        self._held -= objects
        if self._held <= MAX_OBJECTS:
            gc.set_threshold(*USUAL)
            self._requests = 0
            return
        self._requests += 1
        if self._requests >= MAX_REQUESTS:
            self._requests = 0
            gc.collect()
