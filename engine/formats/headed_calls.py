"""Calls whose name stands before JSON arguments: DeepSeek V3, Kimi K2, Solar Open, and Mistral."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_arguments import json_arguments
from greenroom.engine.grammar.call_bodies import alternatives, json_list
from greenroom.engine.grammar.call_syntax import Body, call_head, single_trigger
from greenroom.engine.grammar.grammar_builder import SPACE
from greenroom.engine.parsers.block_parser import BlockParser, OneBlockParser
from greenroom.engine.parsers.parser import TOOL_NAME, ParsedCall
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_headed_section, read_named_or_json

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


@attrs.frozen
class HeadedCallFormat:
    """A tool-call format in which the function's name precedes JSON arguments.

    Args:
        head: Text before the arguments of a call; `{}` is the name, `{index}` the call's number or, when
            parsed, any id before the name. The parser accepts any white space for line breaks in head and
            tail.
        preamble_frame: See `ToolCallParser`.
        templates, example: See `CallFormat`.
    """

    parser_id: str
    start: str
    head: str
    tail: str
    between: str
    end: str
    preamble_frame: tuple[str, str] | None = None
    templates: tuple[TemplateWords, ...] = attrs.field(default=(), kw_only=True)
    example: str = attrs.field(kw_only=True)


class HeadedCallParser(OneBlockParser):
    """Parses and renders one of these formats, whose arguments are JSON.

    Only the template writes the markers of tool results. If a model writes them, they are dropped.
    """

    dropped = ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")

    def __init__(self, call_format: HeadedCallFormat) -> None:
        self.parser_id = call_format.parser_id
        self.markers = ((call_format.start, call_format.end),)
        self._format = call_format
        self.preamble_frame = call_format.preamble_frame
        before, _, after = map(_loosely, call_format.head.partition("{}"))
        before = before.replace(r"functions\.", r"\s*+(?:functions\.)?")
        before = before.replace(r"\{index\}", r"[^\s<>]{1,64}")
        after = after.replace(r":\{index\}", r"(?::[0-9]{1,9})?\s*+")
        self._head = re.compile(rf"{before}\s*+([^\s<>{{}}]+?)\s*+{after}\s*+(?=\{{)")
        super().__init__()

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_headed_section(text, self._head, self._format.tail)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        parts = self._format
        written = [
            f"{parts.head.format(call.name, index=index)}{call.arguments or '{}'}{parts.tail}"
            for index, call in enumerate(calls)
        ]
        return f"{parts.start}{parts.between.join(written)}{parts.end}"


def _loosely(text: str) -> str:
    """Return a pattern of a text in which each line break matches any white space."""
    return r"\s*+".join(map(re.escape, text.split("\n")))


def _section(call_format: HeadedCallFormat) -> Body:
    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        tail, end = text.fixed_text(call_format.tail), text.fixed_text(call_format.end)

        def written(tool: ConstrainedTool) -> str:
            head = call_head(text, call_format.head, tool.plain_name)
            return f"{head} {json_arguments(text, tool)} {tail}"

        call = text.rule(" | ".join(map(written, tools)))
        return f"{call} ({SPACE} {call})* {SPACE} {end}" if many else f"{call} {end}"

    return body


_HEADED = (
    HeadedCallFormat(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        "\n",
        "<｜tool▁calls▁end｜>",
        templates=(TemplateWords(("<｜tool▁calls▁begin｜>", "```json")),),
        example=(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
            '```json\n{"city": "Paris", "days": 2}\n'
            "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
    ),
    HeadedCallFormat(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "",
        "<｜tool▁calls▁end｜>",
        templates=(TemplateWords(("<｜tool▁calls▁begin｜>",)),),
        example=(
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", '
            '"days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
    ),
    HeadedCallFormat(
        "mlx_lm.kimi_k2",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.{}:{index}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "",
        "<|tool_calls_section_end|>",
        example=(
            "<|tool_calls_section_begin|><|tool_call_begin|>"
            'functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris", "days": '
            "2}<|tool_call_end|><|tool_calls_section_end|>"
        ),
    ),
    HeadedCallFormat(
        "solar_open",
        "<|tool_calls|>",
        "<|tool_call:begin|>{index}<|tool_call:name|>{}<|tool_call:args|>",
        "<|tool_call:end|>",
        "",
        "<|calls|>",
        ("<|content|>", "<|end|><|begin|>assistant"),
        templates=(TemplateWords(("<|tool_call:name|>",)),),
        example=(
            "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>get_weather<|tool_call:args|>"
            '{"city": "Paris", "days": 2}<|tool_call:end|><|calls|>'
        ),
    ),
)

FORMATS = tuple(
    CallFormat(
        headed.parser_id,
        partial(HeadedCallParser, headed),
        single_trigger(headed.start, _section(headed)),
        headed.example,
        templates=headed.templates,
    )
    for headed in _HEADED
)
"""DeepSeek V3 and R1; DeepSeek V3.1; Kimi K2; Solar Open."""


_NAMED = rf"\s*({TOOL_NAME})\s*(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\]\s*|(?=\{{))"


class MistralParser(BlockParser):
    """`[TOOL_CALLS][{"name": …, "arguments": …}, …]`, or `[TOOL_CALLS]name[ARGS]{…}` for each call.

    Some of these models omit `[ARGS]`.
    """

    parser_id = "mistral"
    markers = (("[TOOL_CALLS]", ""),)
    body_start = re.compile(rf"\s*(?:\Z|[\[{{]|{TOOL_NAME}\s*(?:\Z|[\[{{]))")
    _named = re.compile(rf"{_NAMED}(?=\{{)")
    json_header = re.compile(rf"(?:{_NAMED}|\s*)(?=[\[{{])")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_named_or_json(text, self._named)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return "".join(self.render(call.name, call.arguments) for call in calls)

    def render(self, name: str, arguments: str) -> str:
        return f"[TOOL_CALLS]{name}[ARGS]{arguments or '{}'}"


def _mistral(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    arguments = text.tokenizer.special("[ARGS]")
    if arguments is None:
        return json_list(text, tools, many)

    def written(tool: ConstrainedTool, json: str) -> str:
        return f"{text.fixed_text(tool.plain_name)} <[{arguments}]> {json}"

    return alternatives(tools, written, text)


MISTRAL = CallFormat(
    "mistral",
    MistralParser,
    single_trigger("[TOOL_CALLS]", _mistral),
    '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}',
    mlx_lm_names=("mistral",),
)
