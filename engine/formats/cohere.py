"""Tool-call formats of Cohere's models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.formats.json_blocks import JSON_BODY
from greenroom.engine.grammar.call_bodies import tagged_array
from greenroom.engine.grammar.call_syntax import CallSyntax, single_trigger
from greenroom.engine.parsers.block_parser import OneBlockParser
from greenroom.engine.parsers.json_values import render_json_call
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.engine.parsers.reasoning import COHERE_STRUCTURE
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_json_calls


class Cohere2Parser(OneBlockParser):
    """Command R7B and Command A: an array of actions after `<|START_ACTION|>`."""

    parser_id = "cohere2"
    markers = (("<|START_ACTION|>", "<|END_ACTION|>"),)
    body_start = JSON_BODY
    dropped = COHERE_STRUCTURE

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_json_calls(text)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        actions = (_action(call, f'"tool_call_id": "{number}", ') for number, call in enumerate(calls))
        return f"<|START_ACTION|>{_actions(actions)}<|END_ACTION|>"


class CommandRParser(OneBlockParser):
    """Command R and R+: an array of actions in a fenced code block after the word `Action:`."""

    parser_id = "command_r"
    markers = (("Action:\n```json", "```"), ("Action: ```json", "```"), ("Action:```json", "```"))
    body_start = JSON_BODY

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_json_calls(text)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return f"Action:\n```json\n{_actions(map(_action, calls))}\n```"


def _action(call: ParsedCall, first: str = "") -> str:
    json = render_json_call(call.name, call.arguments, "parameters")
    return json.replace('{"name"', f'{{{first}"tool_name"', 1)


def _actions(actions: Iterable[str]) -> str:
    return "[\n    " + ",\n    ".join(actions) + "\n]"


COHERE2 = CallFormat(
    "cohere2",
    Cohere2Parser,
    single_trigger(
        "<|START_ACTION|>", tagged_array("<|END_ACTION|>", "parameters", "tool_name", numbered=True)
    ),
    "<|START_ACTION|>[\n"
    '    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": '
    '"Paris", "days": 2}}\n'
    "]<|END_ACTION|>",
    templates=(TemplateWords(("<|START_ACTION|>",)),),
)
COMMAND_R = CallFormat(
    "command_r",
    CommandRParser,
    CallSyntax(
        tuple(
            (f"Action:{space}```json", tagged_array("```", "parameters", "tool_name"))
            for space in ("\n", " ", "")
        )
    ),
    "Action:\n```json\n[\n"
    '    {"tool_name": "get_weather", "parameters": {"city": "Paris", "days": 2}}\n'
    "]\n```",
    templates=(TemplateWords(("Action:", "```json", "tool_name")),),
)
