"""Formats that put tool calls of a common shape between markers of their own."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.formats.hermes import JSON_BODY, HermesJsonParser
from greenroom.engine.parsers.formats.pythonic import parse_pythonic_calls, render_pythonic_call
from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_calls import stream_json_calls
from greenroom.engine.parsers.streaming.streamed_python import stream_python_calls, stream_python_or_json
from greenroom.engine.parsers.thoughts.thought_markers import COHERE_STRUCTURE
from greenroom.engine.parsers.values.json_calls import parse_json_calls, render_json_call
from greenroom.engine.parsers.values.offered_tools import OfferedTools


class _OneBlock(BlockParser):
    """A format that puts all tool calls of a turn in one block."""

    @abstractmethod
    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        """Return a block of tool calls as text."""

    def render(self, name: str, arguments: str) -> str:
        return self.render_block([ParsedCall(name, arguments)])

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return self.render_block(calls)


class MinimaxM1Parser(_OneBlock, HermesJsonParser):
    """MiniMax M1: JSON objects, one per line, between `<tool_calls>` and `</tool_calls>`."""

    parser_id = "minimax_m1"
    markers: Markers = (("<tool_calls>", "</tool_calls>"),)

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        lines = [render_json_call(call.name, call.arguments) for call in calls]
        return "\n".join(["<tool_calls>", *lines, "</tool_calls>"])


class AprielParser(MinimaxM1Parser):
    """Apriel: an array of calls between MiniMax M1's markers."""

    parser_id = "apriel"

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        array = ", ".join(render_json_call(call.name, call.arguments) for call in calls)
        return f"<tool_calls>[{array}]</tool_calls>"


class Cohere2Parser(_OneBlock):
    """Command R7B and Command A: an array of actions after `<|START_ACTION|>`."""

    parser_id = "cohere2"
    markers = (("<|START_ACTION|>", "<|END_ACTION|>"),)
    body_start = JSON_BODY
    dropped = COHERE_STRUCTURE

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_json_calls(text, self.ends[start])

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_json_calls(body)

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        actions = (_action(call, f'"tool_call_id": "{number}", ') for number, call in enumerate(calls))
        return f"<|START_ACTION|>{_actions(actions)}<|END_ACTION|>"


class CommandRParser(_OneBlock):
    """Command R and R+: an array of actions in a fenced code block after the word `Action:`."""

    parser_id = "command_r"
    markers = (("Action:\n```json", "```"), ("Action: ```json", "```"), ("Action:```json", "```"))
    body_start = JSON_BODY

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_json_calls(text, self.ends[start])

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_json_calls(body)

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        return f"Action:\n```json\n{_actions(map(_action, calls))}\n```"


class Olmo3Parser(_OneBlock):
    """OLMo 3: Python calls, one per line, between `<function_calls>` and `</function_calls>`."""

    parser_id = "olmo3"
    markers = (("<function_calls>", "</function_calls>"),)
    body_start = re.compile(r"\s*(?:\Z|\[|\w[\w.:/-]*(?:\Z|[ \t]*\())")

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_python_calls(text, self.ends[start])

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_pythonic_calls(body, offered)

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        lines = "\n".join(render_pythonic_call(call.name, call.arguments) for call in calls)
        return f"<function_calls>{lines}</function_calls>"


class Lfm2Parser(_OneBlock):
    """LFM 2: a list of Python calls after `<|tool_call_start|>`; some of its models write JSON."""

    parser_id = "mlx_lm.pythonic"
    markers = (("<|tool_call_start|>", "<|tool_call_end|>"),)
    body_start = re.compile(r"\s*(?:\Z|[\[{]|\w[\w.:/-]*(?:\Z|[ \t]*\())")

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_python_or_json(text, self.ends[start])

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        as_json = re.match(r"\s*\[?\s*\{", body)
        return parse_json_calls(body) if as_json else parse_pythonic_calls(body, offered)

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        written = ", ".join(render_pythonic_call(call.name, call.arguments) for call in calls)
        return f"<|tool_call_start|>[{written}]<|tool_call_end|>"


def _action(call: ParsedCall, first: str = "") -> str:
    """Return a call as JSON with Cohere's keys."""
    json = render_json_call(call.name, call.arguments, "parameters")
    return json.replace('{"name"', f'{{{first}"tool_name"', 1)


def _actions(actions: Iterable[str]) -> str:
    return "[\n    " + ",\n    ".join(actions) + "\n]"
