"""The tool-call format of Functionary v3.2: each part of an answer names its recipient, `all` or a tool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_arguments import json_arguments
from greenroom.engine.grammar.call_syntax import CallSyntax
from greenroom.engine.parsers.block_parser import BeginningStream, BlockParser, OneBlockParser
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import (
    LONGEST_HEAD,
    WHITESPACE,
    ParsedCall,
    ParserEvent,
    Release,
    ToolCallStream,
)
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_headed_call
from greenroom.schemas.messages.messages import Tool

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


_SEPARATOR = ">>>"
_TO_ALL = "all\n"
_NAME = re.compile(r"[^\s<>{}]{1,256}")


class FunctionaryV32Parser(OneBlockParser):
    r"""Parser of `>>>name\n{…}` for calls and `>>>all\n` for text.

    The prompt ends with the first `>>>`, so an answer begins with its recipient's name.
    """

    parser_id = "functionary_v32"
    markers = ((_SEPARATOR, ""),)
    frames_text = True
    body_start = re.compile(r"[^\s<>{}]*(?:\Z|\n\s*(?:\Z|\{))")
    json_header = re.compile(r"[^\s<>{}]+\n\s*(?=\{)")
    _header = re.compile(r"([^\s<>{}]+)\n\s*(?=\{)")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_headed_call(text, self._header)

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        return _FunctionaryStream(self, OfferedTools(tools), release)

    def begins_call(self, text: str) -> bool | None:
        name, ended, behind = text.partition("\n")
        if text and not _NAME.fullmatch(name):
            return False
        behind = behind.lstrip(WHITESPACE)
        return behind.startswith("{") if ended and behind else None

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return _SEPARATOR.join(f"{call.name}\n{call.arguments or '{}'}" for call in calls)


class _FunctionaryStream(BeginningStream):
    def __init__(self, parser: BlockParser, offered: OfferedTools, release: Release) -> None:
        super().__init__(parser, offered, release)
        self._at_beginning = True

    def _reads_only_text(self) -> bool:
        return not self._at_beginning and super()._reads_only_text()

    def _read_text(self, events: list[ParserEvent]) -> bool:
        if not self._at_beginning:
            return super()._read_text(events)
        text = self._skip_padding()
        line, ended, behind = text.partition("\n")
        to_all = line + ended == _TO_ALL
        to_tool = _NAME.fullmatch(line) is not None and self._offered.may_begin(line)
        undecided = _TO_ALL.startswith(text) or (to_tool and not (ended and behind.strip(WHITESPACE)))
        if undecided and not to_all and not self._final and len(text) < LONGEST_HEAD:
            return False
        self._at_beginning = False
        if to_all:
            self._at += len(_TO_ALL)
            self._padding = []
        elif to_tool and ended and self._offered.accepts(line) and behind.lstrip(WHITESPACE).startswith("{"):
            self._open_block("")
        return True

    def _read_block(self, events: list[ParserEvent]) -> bool:
        inside = self._at + len(self._start)
        if self._start and self._pending.startswith(_TO_ALL, inside):
            self._at = inside + len(_TO_ALL)
            self._read = self._read_text
            return True
        return super()._read_block(events)


def _functionary(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    """Return the expression of calls addressed to tools, behind the separator at the prompt's end."""
    written = [f"{text.fixed_text(tool.plain_name)} /\\n/ {json_arguments(text, tool)}" for tool in tools]
    call = text.rule(" | ".join(written))
    return f"{call} ({text.fixed_text('>>>')} {call})*" if many else call


FUNCTIONARY_V32 = CallFormat(
    "functionary_v32",
    FunctionaryV32Parser,
    CallSyntax(
        (("", _functionary),),
        single_block=True,
        plain=r"/all\n(?s:.*)/ & ~/(?s:.*)>>>(?s:.*)/",
        behind_plain=">>>",
    ),
    'get_weather\n{"city": "Paris", "days": 2}',
    templates=(TemplateWords((">>>${recipient}",)), TemplateWords((">>>all",))),
)
