"""transformers' response parser, with time limits and with the source text of each region.

transformers' own parser returns only the values of regions, but a region that is no call has to come back as
text. This module imports transformers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import attrs
import regex  # type: ignore[import-untyped]
from transformers.utils.chat_parsing.response_parser import ResponseParser
from transformers.utils.chat_parsing.response_templates import ResponseTemplate, load_response_template

REASONING = ("thinking", "reasoning", "reasoning_content")
_MAX_REGION = 262_144  # Limit on the characters of one region
_KEPT = 1_024
_MOST_KEPT = 65_536
"""Number of parsed characters from which all but `_KEPT` are dropped; look-behind expressions read those."""
_MAX_EMPTY_MATCHES = 4
"""Limit on successive matches of an empty text, of which some expressions find any number at one place."""


class RegionParser(ResponseParser):  # type: ignore[misc]
    """Splits one answer into regions.

    `take` returns those that `read` and `end` have found, even if they raise.

    Args:
        tools: Offered tools in OpenAI's shape, whose schemas decide the types of arguments.
        budget: Time that the template's expressions may take.
    """

    _buffer: str
    _pos: int
    _body: str
    _opened: bool
    _current: str | None
    _implicit_name: str | None

    def __init__(self, template: ResponseTemplate, tools: list[Any], budget: PatternBudget) -> None:
        self._budget = budget
        self._begin_of_region = 0
        self._matched = False
        self._empty_matches = 0
        self._found: list[RegionText | Region] = []
        self._outside: str | None = ""
        """Text outside all regions; None once the answer or a call has begun."""
        fields = {
            name: dataclasses.replace(
                field,
                open_re=field.open_re and BoundedPattern(field.open_re, budget),
                close_re=field.close_re and BoundedPattern(field.close_re, budget),
            )
            for name, field in template.fields.items()
        }
        self._patterns = {name: content_patterns(field) for name, field in template.fields.items()}
        super().__init__(dataclasses.replace(template, fields=fields), "", tools=tools)

    @property
    def in_call(self) -> bool:
        """True if the next text belongs to a call, as far as is known."""
        return self._current == CALLS

    @property
    def unread(self) -> str:
        """Text of the open call with its opening marker, and text that has not been parsed."""
        return self._buffer[self._begin_of_region if self.in_call else self._pos :]

    def read(self, text: str) -> None:
        """Add a piece of text. Raises TimeoutError: an expression took too long. Raises ValueError: A call is
        too long, or an expression finds empty text again and again.
        """
        self._budget.extend(len(text))
        self._buffer += text
        self._process([], eos=False)
        if len(self._body) > _MAX_REGION:
            raise ValueError("a call is too long")
        if not self.in_call and self._pos > _MOST_KEPT:
            self._buffer, self._pos = self._buffer[self._pos - _KEPT :], _KEPT
            self._begin_of_region = 0

    def end(self) -> None:
        """Parse the rest at the end of the answer. Raises TimeoutError: an expression took too long. Raises
        ValueError: an expression finds empty text again and again.
        """
        self._process([], eos=True)
        self.give_up()

    def give_up(self) -> None:
        """End the search for regions; an answer without any is the text outside of them."""
        if self._outside and not self._outside.isspace():
            self._found.append(RegionText("", self._outside))
        self._outside = None

    def take(self) -> list[RegionText | Region]:
        """Return the regions and texts found since the last time."""
        found, self._found = self._found, []
        return found

    def _scan(self, watch: Any, eos: bool) -> Any:
        best, hold_start = super()._scan(watch, eos)
        self._matched = best is not None
        is_empty = best is not None and best[2].start() == best[2].end()
        self._empty_matches = self._empty_matches + 1 if is_empty else 0
        if self._empty_matches > _MAX_EMPTY_MATCHES:
            raise ValueError("an expression matches empty text")
        return best, hold_start

    def _accumulate(self, events: list[Any], text: str) -> None:
        super()._accumulate(events, text)
        if self._current is None:
            self._outside = None if self._outside is None else self._outside + text
        elif self._current != CALLS:
            self._body = ""  # Only the values of calls are read.
            if self._current not in REASONING:
                self._outside = None
                self._found.append(RegionText(self._current, text))

    def _open_explicit(self, events: list[Any], field: Any, m: Any) -> None:
        super()._open_explicit(events, field, m)
        self._begin_of_region = m.start()
        if field.name not in REASONING:
            self._outside = None

    def _close_current(self, events: list[Any]) -> None:
        name = self._current
        if name is None or not self._opened:
            super()._close_current(events)
            return
        raw = self._buffer[self._begin_of_region : self._pos]
        value = self._value(name)
        self._reset_to_implicit()
        if name == CALLS:
            self._found.append(Region(name, raw, value, self._matched))

    def _value(self, name: str) -> Any:
        """Return the value of the open region; None if its content cannot be read."""
        if name != CALLS:
            return None
        for pattern in self._patterns[name]:  # transformers searches once more, without a limit.
            BoundedPattern(pattern, self._budget).finditer(self._body)
        events: list[Any] = []
        try:
            super()._close_current(events)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return None
        return events[-1]["value"] if events else None


# Regular expressions from a model's folder, searched under a time limit.
#
# The library `regex` compiles them; its searches take a timeout and then raise `TimeoutError`.

T = TypeVar("T")

_LONGEST_SEARCH = 0.1  # Limit on one search in seconds
_MAX_LENGTH = 1_000  # Limit on the characters of an expression
_MAX_DEPTH = 8  # Limit on nested groups: the time to compile an expression doubles with each


def is_cheap_to_compile(pattern: str) -> bool:
    """Return whether an expression is short and its groups are not nested deep."""
    depth = deepest = 0
    escaped = False
    for character in pattern:
        if not escaped:
            depth += (character == "(") - (character == ")")
            deepest = max(deepest, depth)
        escaped = character == "\\" and not escaped
    return len(pattern) <= _MAX_LENGTH and deepest <= _MAX_DEPTH


class PatternBudget:
    """The time budget of all searches of one answer.

    Attributes:
        is_exceeded: True once a search took too long.
    """

    def __init__(self, seconds: float, seconds_per_character: float = 0.0) -> None:
        self._left = seconds
        self._per_character = seconds_per_character
        self.is_exceeded = False

    def extend(self, characters: int) -> None:
        """Add the time for a further piece of text."""
        self._left += characters * self._per_character

    def spend(self, search: Callable[[float], T]) -> T:
        """Run a search within the remaining time; return its result. Raises TimeoutError: the search took too
        long, or no time is left.
        """
        began = time.thread_time()
        try:
            if self._left <= 0:
                raise TimeoutError
            return search(min(self._left, _LONGEST_SEARCH))
        except TimeoutError:
            self.is_exceeded = True
            raise TimeoutError("its expressions take too long") from None
        finally:
            self._left -= time.thread_time() - began


class BoundedPattern:
    """A compiled expression whose searches are charged to a budget."""

    def __init__(self, pattern: Any, budget: PatternBudget) -> None:
        self._pattern = pattern
        self._budget = budget

    def search(self, text: str, position: int = 0, **options: Any) -> Any:
        """Return the first match from a position on; None if there is none. Raises TimeoutError: the search
        took too long.
        """
        return self._budget.spend(
            lambda limit: self._pattern.search(text, position, timeout=limit, **options)
        )

    def finditer(self, text: str) -> Iterator[Any]:
        """Return all matches. Raises TimeoutError: the search took too long."""
        return iter(self._budget.spend(lambda limit: list(self._pattern.finditer(text, timeout=limit))))


@attrs.frozen
class RegionText:
    """Text of a field that is not a call, as far as it is known."""

    field: str
    text: str


@attrs.frozen
class Region:
    """A whole region between its markers. `value`: its value; None if the content cannot be read; `closed`:
    False if the text ended before its closing marker.
    """

    field: str
    raw: str
    value: Any
    closed: bool


CALLS = "tool_calls"
_MAX_FIELDS = 16


def load_template(spec: Any) -> ResponseTemplate:
    """Return a template with compiled expressions. Raises ValueError: the template is invalid, or its
    expressions might take long to compile.
    """
    if not isinstance(spec, dict) or not isinstance(spec.get("fields"), dict):
        raise ValueError("it is no object with `fields`")
    if len(spec["fields"]) > _MAX_FIELDS:
        raise ValueError("it has too many fields")
    if not all(map(is_cheap_to_compile, _texts(spec, 0))):
        raise ValueError("an expression is too long or nested too deep")
    template = load_response_template(spec)
    if CALLS not in template.fields:
        raise ValueError(f"it has no field `{CALLS}`")
    for field in template.fields.values():
        content_patterns(field)
    return template


def _texts(value: Any, depth: int) -> list[str]:
    if depth > _MAX_FIELDS:
        raise ValueError("it is nested too deep")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, depth + 1)]
    return [value] if isinstance(value, str) else []


def content_patterns(field: Any) -> list[Any]:
    """Return the expressions that transformers applies to the content of a region. Raises ValueError: A part
    of the content has expressions of its own.
    """
    arguments = field.content_args if isinstance(field.content_args, dict) else {}
    inner = arguments.get("value_parser")
    if isinstance(inner, dict) and (inner.get("name") == "xml-inline" or inner.get("args", {})):
        raise ValueError("a value has expressions of its own")
    patterns = []
    if field.content == "xml-inline":
        patterns.append(arguments.get("tag_pattern", ""))
    if field.content == "json":
        delimiters = arguments.get("string_delims", [])
        patterns += [rf"{regex.escape(opened)}(.*?){regex.escape(closed)}" for opened, closed in delimiters]
    return [regex.compile(pattern, regex.DOTALL) for pattern in patterns]
