"""Formats that put calls of a common shape between markers of their own."""

from __future__ import annotations

import re

from greenroom.engine.parsers.base import Markers, ParsedCall
from greenroom.engine.parsers.block_stream import BlockParser
from greenroom.engine.parsers.hermes import JSON_BODY, HermesJsonParser
from greenroom.engine.parsers.json_calls import parse_json_calls, render_json_call
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.pythonic import parse_pythonic_calls, render_pythonic_call
from greenroom.engine.parsers.qwen3_coder import Qwen3CoderParser
from greenroom.engine.parsers.thought_markers import COHERE_STRUCTURE


class MinimaxM1Parser(HermesJsonParser):
    """MiniMax M1: JSON objects, one per line, between `<tool_calls>` and `</tool_calls>`."""

    parser_id = "minimax_m1"
    markers: Markers = (("<tool_calls>", "</tool_calls>"),)

    def render(self, name: str, arguments: str) -> str:
        return f"<tool_calls>\n{render_json_call(name, arguments)}\n</tool_calls>"


class AprielParser(MinimaxM1Parser):
    """Apriel: an array of calls between the same markers."""

    parser_id = "apriel"
    streamed_header = None

    def render(self, name: str, arguments: str) -> str:
        return f"<tool_calls>[{render_json_call(name, arguments)}]</tool_calls>"


class Cohere2Parser(BlockParser):
    """Command R7B and Command A: an array of actions after `<|START_ACTION|>`."""

    parser_id = "cohere2"
    markers = (("<|START_ACTION|>", "<|END_ACTION|>"),)
    body_start = JSON_BODY
    dropped = COHERE_STRUCTURE

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_json_calls(body)

    def render(self, name: str, arguments: str) -> str:
        return f"<|START_ACTION|>[\n    {_action(name, arguments, 0)}\n]<|END_ACTION|>"


class CommandRParser(BlockParser):
    """Command R and R+: an array of actions in a fence of Markdown after the word `Action:`."""

    parser_id = "command_r"
    markers = (("Action:\n```json", "```"), ("Action: ```json", "```"), ("Action:```json", "```"))
    body_start = JSON_BODY

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_json_calls(body)

    def render(self, name: str, arguments: str) -> str:
        return f"Action: ```json\n[\n    {_action(name, arguments)}\n]\n```"


class Olmo3Parser(BlockParser):
    """OLMo 3: calls as Python, one per line, between `<function_calls>` and `</function_calls>`."""

    parser_id = "olmo3"
    markers = (("<function_calls>", "</function_calls>"),)
    body_start = re.compile(r"\s*(?:\Z|\[|[A-Za-z_][\w.:/-]*(?:\Z|[ \t]*\())")

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_pythonic_calls(body, offered)

    def render(self, name: str, arguments: str) -> str:
        return f"<function_calls>{render_pythonic_call(name, arguments)}</function_calls>"


class SeedOssParser(Qwen3CoderParser):
    """Seed-OSS: Qwen's tags inside `<seed:tool_call>`, values on the line of their tag."""

    parser_id = "seed_oss"
    markers = (("<seed:tool_call>", "</seed:tool_call>"), ("<function=", "</function>"))
    trailer = "</seed:tool_call>"

    def render(self, name: str, arguments: str) -> str:
        inside = super().render(name, arguments).removeprefix("<tool_call>").removesuffix("</tool_call>")
        return f"<seed:tool_call>{inside}</seed:tool_call>"


def _action(name: str, arguments: str, number: int | None = None) -> str:
    """Return a call in Cohere's words."""
    call = render_json_call(name, arguments, "parameters").replace('{"name"', '"tool_name"', 1)
    return ("{" if number is None else f'{{"tool_call_id": "{number}", ') + call
