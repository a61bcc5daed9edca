"""Calls of models whose tokenizer ships a `response_template`, read by transformers' own parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from greenroom.engine.formats.response_regions import PatternBudget, Region
from greenroom.engine.parsers.json_values import dump_json, normalize_object
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import (
    WHITESPACE,
    CallArguments,
    CallEnd,
    CallName,
    Malformed,
    NullToolStream,
    ParsedCall,
    ParserEvent,
    PlainText,
    Release,
    ToolCallParser,
    ToolCallStream,
    is_dry_run,
)
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import Tool

if TYPE_CHECKING:
    from greenroom.engine.formats.response_regions import RegionParser


_log = get_logger(__name__)


def _new_budget() -> PatternBudget:
    return PatternBudget(1.0, 0.001)


class ResponseTemplateParser(ToolCallParser):
    """Parses the calls of one model by its response template; it cannot render or constrain them.

    Args:
        template: Template with compiled expressions, as `load_template` returns it.
        new_budget: Factory of the time that the expressions may take for one answer.
    """

    parser_id = "response_template"

    def __init__(self, template: Any, new_budget: Callable[[], PatternBudget] = _new_budget) -> None:
        from greenroom.engine.formats.response_regions import CALLS

        calls = template.fields[CALLS]
        self.markers = tuple(
            (start, end) for start in calls.open_literals or () for end in calls.close_literals or ("",)
        )
        named = [field for field in template.fields.values() if field.name != CALLS]
        self.frames_text = any(field.open_re is not None for field in named)
        self._template = template
        self._new_budget = new_budget

    def reads_outside_calls(self, token: str) -> bool:
        patterns = [
            pattern.pattern.replace("\\", "")
            for field in self._template.fields.values()
            for pattern in (field.open_re, field.close_re)
            if pattern is not None
        ]
        return any(token in pattern for pattern in patterns)

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools and not self.frames_text:
            return NullToolStream()
        from greenroom.engine.formats.response_regions import RegionParser

        shown = [
            {"function": {"name": tool.name, "parameters": dict(tool.parameters)}} for tool in tools or ()
        ]
        regions = RegionParser(self._template, shown, self._new_budget())
        return _RegionStream(regions, OfferedTools(tools))


class _RegionStream(ToolCallStream):
    def __init__(self, regions: RegionParser, offered: OfferedTools) -> None:
        self._regions = regions
        self._offered = offered
        self._given_up = False
        self._padding = ""
        # As in `TextStream`: None before any text, empty behind text, else the white space behind a call.
        self._separator: str | None = None
        self._behind_call = False

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return not self._given_up and self._regions.in_call

    def feed(self, text: str) -> list[ParserEvent]:
        return self._read(text, lambda: self._regions.read(text))

    def finish(self) -> list[ParserEvent]:
        events = self._read("", self._regions.end)
        if self._padding and not self._behind_call:
            events.append(PlainText(self._padding))
        self._padding = ""
        return events

    def _read(self, text: str, read: Callable[[], None]) -> list[ParserEvent]:
        events: list[ParserEvent] = []
        if self._given_up:
            self._add_text(events, text)
            return events
        try:
            read()
        except (TimeoutError, ValueError) as error:
            self._given_up = True
            self._regions.give_up()
            if not is_dry_run():
                _log.warning("response template given up for an answer", reason=str(error))
        for found in self._regions.take():
            if isinstance(found, Region):
                self._add_calls(events, found)
            else:
                self._add_text(events, found.text)
        if self._given_up:
            self._add_text(events, self._regions.unread)
        return events

    def _add_calls(self, events: list[ParserEvent], region: Region) -> None:
        try:
            calls = _calls_in(region.value)
        except Malformed:
            calls = []
        whole = region.closed or (not self.cut and all(map(self._offered.has_required_arguments, calls)))
        if not calls or not whole or not all(self._offered.accepts(call.name) for call in calls):
            self.malformed_calls += 1
            self._add_text(events, region.raw)
            return
        for call in calls:
            events += [CallName(call.name), CallArguments(call.arguments), CallEnd()]
        if self._separator == "":
            self._separator = self._padding or "\n"
        self._padding, self._behind_call = "", True

    def _add_text(self, events: list[ParserEvent], text: str) -> None:
        if self._behind_call:
            text = text.lstrip(WHITESPACE)
            if not text:
                return
            self._padding, self._behind_call = self._separator or "", False
        body = text.rstrip(WHITESPACE)
        if body:
            events.append(PlainText(self._padding + body))
            self._padding, self._separator = "", ""
        self._padding += text[len(body) :]


def _calls_in(value: Any) -> list[ParsedCall]:
    """Return the calls that a region's value describes. Raises Malformed: the value is no call in OpenAI's
    shape.
    """
    calls = []
    for item in value if isinstance(value, list) else [value]:
        function = item.get("function", item) if isinstance(item, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise Malformed("the call has no name")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            calls.append(ParsedCall(name, dump_json(arguments)))
        elif isinstance(arguments, str):
            calls.append(ParsedCall(name, normalize_object(arguments)))
        else:
            raise Malformed("the arguments are not an object")
    return calls
