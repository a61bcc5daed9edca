"""Tool calls written as Python between markers: OLMo 3 and LFM 2."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import pythonic_block, pythonic_lines
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.parsers.block_parser import OneBlockParser
from greenroom.engine.parsers.parser import TOOL_NAME, ParsedCall
from greenroom.engine.parsers.python_values import render_pythonic_call
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_python import read_python_calls, read_python_or_json


class Olmo3Parser(OneBlockParser):
    """OLMo 3: Python calls, one per line, between `<function_calls>` and `</function_calls>`."""

    parser_id = "olmo3"
    markers = (("<function_calls>", "</function_calls>"),)
    body_start = re.compile(rf"\s*(?:\Z|\[|{TOOL_NAME}[ \t]*(?:\Z|\())")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_python_calls(text)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        lines = "\n".join(render_pythonic_call(call.name, call.arguments) for call in calls)
        return f"<function_calls>{lines}</function_calls>"


class Lfm2Parser(OneBlockParser):
    """LFM 2: a list of Python calls after `<|tool_call_start|>`; some of its models write JSON."""

    parser_id = "mlx_lm.pythonic"
    markers = (("<|tool_call_start|>", "<|tool_call_end|>"),)
    body_start = re.compile(rf"\s*(?:\Z|[\[{{]|{TOOL_NAME}[ \t]*(?:\Z|\())")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_python_or_json(text, listed=True)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        written = ", ".join(render_pythonic_call(call.name, call.arguments) for call in calls)
        return f"<|tool_call_start|>[{written}]<|tool_call_end|>"


OLMO3 = CallFormat(
    "olmo3",
    Olmo3Parser,
    single_trigger("<function_calls>", pythonic_lines("</function_calls>")),
    '<function_calls>get_weather(city="Paris", days=2)</function_calls>',
    templates=(TemplateWords(("<function_calls>",)),),
)
LFM2 = CallFormat(
    "mlx_lm.pythonic",
    Lfm2Parser,
    single_trigger("<|tool_call_start|>", pythonic_block("<|tool_call_end|>")),
    '<|tool_call_start|>[get_weather(city="Paris", days=2)]<|tool_call_end|>',
)
