"""transformers' response parser, with time limits and with the source text of each region.

transformers' own parser returns only the values of regions, but a region that is no call has to come back as
text. This module imports transformers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import attrs
import regex  # type: ignore[import-untyped]
from transformers.utils.chat_parsing.response_parser import ResponseParser
from transformers.utils.chat_parsing.response_templates import ResponseTemplate, load_response_template

from greenroom.engine.formats.response_template.bounded_patterns import (
    BoundedPattern,
    PatternBudget,
    is_cheap_to_compile,
)

CALLS = "tool_calls"
REASONING = ("thinking", "reasoning", "reasoning_content")
_MAX_FIELDS = 16
_MAX_REGION = 262_144
"""Limit on the characters of one region."""
_KEPT = 1_024
_MOST_KEPT = 65_536
"""Number of parsed characters from which all but `_KEPT` are dropped; look-behind expressions read those."""


def load_template(spec: Any) -> ResponseTemplate:
    """Return a template with compiled expressions.

    Raises:
        ValueError: The template is invalid, or its expressions might take long to compile.
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
        _content_patterns(field)
    return template


def _texts(value: Any, depth: int) -> list[str]:
    """Return all texts in a template."""
    if depth > _MAX_FIELDS:
        raise ValueError("it is nested too deep")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, depth + 1)]
    return [value] if isinstance(value, str) else []


def _content_patterns(field: Any) -> list[Any]:
    """Return the expressions that transformers applies to the content of a region.

    Raises:
        ValueError: A part of the content has expressions of its own.
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


@attrs.frozen
class RegionText:
    """Text of a field that is not a call, as far as it is known."""

    field: str
    text: str


@attrs.frozen
class Region:
    """A whole region between its markers.

    Args:
        raw: Text with its markers.
        value: Its value; None if the content cannot be read.
        closed: False if the text ended before its closing marker.
    """

    field: str
    raw: str
    value: Any
    closed: bool


class RegionParser(ResponseParser):  # type: ignore[misc]
    """Splits one answer into regions.

    Args:
        template: The model's template.
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
        self._found: list[RegionText | Region] = []
        fields = {
            name: dataclasses.replace(
                field,
                open_re=field.open_re and BoundedPattern(field.open_re, budget),
                close_re=field.close_re and BoundedPattern(field.close_re, budget),
            )
            for name, field in template.fields.items()
        }
        self._patterns = {name: _content_patterns(field) for name, field in template.fields.items()}
        super().__init__(dataclasses.replace(template, fields=fields), "", tools=tools)

    @property
    def in_call(self) -> bool:
        """True if the next text belongs to a call, as far as is known."""
        return self._current == CALLS

    @property
    def unread(self) -> str:
        """Text of the open region with its opening marker, and text that has not been parsed."""
        in_region = self._current is not None and self._current != self._implicit_name
        return self._buffer[self._begin_of_region if in_region else self._pos :]

    def read(self, text: str) -> list[RegionText | Region]:
        """Add a piece of text; return the regions and texts that are now complete.

        Raises:
            TimeoutError: An expression took too long.
            ValueError: A region is too long.
        """
        self._budget.extend(len(text))
        self._buffer += text
        self._process([], eos=False)
        if len(self._body) > _MAX_REGION:
            raise ValueError("a region is too long")
        if not self.in_call and self._pos > _MOST_KEPT:
            self._buffer, self._pos = self._buffer[self._pos - _KEPT :], _KEPT
            self._begin_of_region = 0
        return self._take()

    def end(self) -> list[RegionText | Region]:
        """Return the remaining regions and texts at the end of the answer.

        Raises:
            TimeoutError: An expression took too long.
        """
        self._process([], eos=True)
        return self._take()

    def _take(self) -> list[RegionText | Region]:
        found, self._found = self._found, []
        return found

    def _scan(self, watch: Any, eos: bool) -> Any:
        found = super()._scan(watch, eos)
        self._matched = found[0] is not None
        return found

    def _accumulate(self, events: list[Any], text: str) -> None:
        super()._accumulate(events, text)
        if self._current is not None and self._current not in (CALLS, *REASONING):
            self._found.append(RegionText(self._current, text))

    def _open_explicit(self, events: list[Any], field: Any, m: Any) -> None:
        super()._open_explicit(events, field, m)
        self._begin_of_region = m.start()

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
