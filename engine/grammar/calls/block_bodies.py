"""Grammars of tool-call blocks and sections that are described by format tables."""

from __future__ import annotations

import json
from typing import Any

from greenroom.engine.grammar.calls.call_heads import call_head
from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
from greenroom.engine.grammar.calls.json_call_bodies import Body, json_call
from greenroom.engine.grammar.calls.text_arguments import json_arguments
from greenroom.engine.grammar.lark.grammar_builder import SPACE, GrammarBuilder, literal
from greenroom.engine.parsers.blocks.call_sections import HeadedCallFormat
from greenroom.engine.parsers.formats.json_block import JsonBlockFormat, Shape


def keyed_call(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool = False) -> str:
    """Return the expression of a JSON object whose only key is the tool's name, or of an array of them."""
    if any(tool.grammar is not None for tool in tools):
        written = [
            f'{literal(f"{{{json.dumps(tool.name)}: ")} {json_arguments(text, tool)} "}}"' for tool in tools
        ]
        one = text.rule(" | ".join(written))
        return f'"[" {SPACE} {one} ({SPACE} "," {SPACE} {one})* {SPACE} "]"' if many else one
    base = "#/items" if many else "#"
    calls = []
    for index, tool in enumerate(tools):
        pointer = tool.name.replace("~", "~0").replace("/", "~1")
        properties = {tool.name: tool.schema(f"{base}/anyOf/{index}/properties/{pointer}")}
        closed = {"required": [tool.name], "additionalProperties": False}
        calls.append({"type": "object", "properties": properties, **closed})
    call: Any = {"anyOf": calls}
    return text.json({"type": "array", "minItems": 1, "items": call} if many else call)


def json_block(shape: Shape, key: str, end: str) -> Body:
    """Return the body of a block of JSON calls, up to and including its end marker.

    Args:
        shape: Shape of the JSON.
        key: Key of the arguments.
        end: End marker; empty if the JSON value ends the block.
    """

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        listed = shape != "object"
        several = many and listed
        keyed = shape == "keyed list"
        calls = keyed_call(text, tools, several) if keyed else json_call(text, tools, key, several)
        written = f'"[" {calls} "]"' if listed and not several else calls
        closing = f"{SPACE} {text.fixed_text(end)}" if end else ""
        return f"{SPACE} {written} {closing}"

    return body


def block_triggers(block_format: JsonBlockFormat) -> tuple[tuple[str, Body], ...]:
    """Return the triggers of a block format: each start marker with the body behind it."""
    triggers = []
    for start, end in block_format.markers:
        if start.isalpha():  # Text may mention such a word; followed by a bracket, it is a call.
            triggers.append((f"{start}[", _open_list(block_format.key)))
        else:
            triggers.append((start, json_block(block_format.shape, block_format.key, end)))
    return tuple(triggers)


def _open_list(key: str) -> Body:
    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = json_call(text, tools, key)
        more = f'("," {SPACE} {call})*' if many else ""
        return f'{SPACE} {call} {more} {SPACE} "]"'

    return body


def headed_calls(call_format: HeadedCallFormat) -> Body:
    """Return the body of a section of calls whose names precede their arguments."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        tail, end = text.fixed_text(call_format.tail), text.fixed_text(call_format.end)

        def written(tool: ConstrainedTool) -> str:
            head = call_head(text, call_format.head, tool.plain_name)
            return f"{head} {json_arguments(text, tool)} {tail}"

        call = text.rule(" | ".join(map(written, tools)))
        return f"{call} ({SPACE} {call})* {SPACE} {end}" if many else f"{call} {end}"

    return body


def functionary_calls(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    """Return the expression of calls addressed to tools, behind the separator at the prompt's end."""
    written = [f"{text.fixed_text(tool.plain_name)} /\\n/ {json_arguments(text, tool)}" for tool in tools]
    call = text.rule(" | ".join(written))
    return f"{call} ({text.fixed_text('>>>')} {call})*" if many else call
