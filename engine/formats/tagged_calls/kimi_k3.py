"""Tool-call format of Kimi K3: elements with tokens as tags, `<|open|>call tool="f" index="1"<|sep|>…`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.calls.call_syntax import single_trigger
from greenroom.engine.grammar.calls.tagged_arguments import TaggedArguments
from greenroom.engine.parsers.blocks.call_sections import SectionParser
from greenroom.engine.parsers.markers import prefix_pattern, skip_space
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_tags import StreamedTags, stream_tagged_call
from greenroom.engine.parsers.streaming.streamed_values import ValueEnd
from greenroom.engine.parsers.values.json_calls import dump_json, normalize_object, read_value
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.engine.parsers.values.tagged_arguments import argument_pairs

_ATTRIBUTES = r'((?:\s+\w+="[^"]*")*)\s*<\|sep\|>'
_CALL = re.compile(rf"<\|open\|>call{_ATTRIBUTES}")
_CALL_END = re.compile(r"\s*<\|close\|>call<\|sep\|>")
_CUT_END = re.compile(rf"\s*(?:{prefix_pattern('<|close|>call<|sep|>')})\Z")
_ARGUMENT = re.compile(rf"\s*<\|open\|>argument{_ATTRIBUTES}")
_VALUE_END = re.compile(
    rf"<\|close\|>argument<\|sep\|>(?=\s*(?:<\|open\|>argument|<\|close\|>call|(?:{prefix_pattern('<|close|>')})?\Z))"
)
_JSON = re.compile(rf"\s*<\|open\|>json{_ATTRIBUTES}")
_JSON_END = re.compile(r"\s*<\|close\|>json<\|sep\|>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


class KimiK3Parser(SectionParser):
    """Kimi K3: each argument states its type; one JSON object may replace the arguments."""

    parser_id = "mlx_lm.kimi_k3"
    markers = (("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),)
    body_start = re.compile(r"\s*(?:\Z|<)")
    common_end = "<|close|>"

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        while not (text.begun and (yield from text.take_any([self.ends[start]]))):
            yield from text.peek()
            head = yield from text.match(_CALL)
            yield from stream_tagged_call(
                text, _attributes(head.group(1), "tool", "index").get("tool", ""), _TAGS
            )

    def read_call(self, text: str, position: int, offered: OfferedTools) -> tuple[ParsedCall, int]:
        head = _CALL.match(text, position)
        name = _attributes(head.group(1), "tool", "index").get("tool") if head is not None else None
        if head is None or not name:
            raise Malformed("the call has no name")
        arguments, position = _read_arguments(name, text, head.end(), offered)
        end = _CALL_END.match(text, position)
        if end is not None:
            return ParsedCall(name, arguments), end.end()
        if text.startswith("<|c", skip_space(text, position)) and _CUT_END.match(text, position):
            return ParsedCall(name, arguments), len(text)  # The text is cut off, but no argument can follow.
        raise Malformed("the call has no end")

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        start, end = self.markers[0]
        return f"{start}{''.join(_written(call, index) for index, call in enumerate(calls, 1))}{end}"


def _read_arguments(name: str, text: str, position: int, offered: OfferedTools) -> tuple[str, int]:
    opened = _JSON.match(text, position)
    if opened is not None:
        _attributes(opened.group(1), "type")
        _, end = read_value(text, opened.end())
        closed = _JSON_END.match(text, end)
        if closed is None:
            raise Malformed("the arguments have no end")
        return normalize_object(text[opened.end() : end]), closed.end()
    arguments: dict[str, Any] = {}
    while argument := _ARGUMENT.match(text, position):
        end_tag = _VALUE_END.search(text, argument.end())
        if end_tag is None:
            raise Unclosed("a value has no end")
        attributes, value = (
            _attributes(argument.group(1), "key", "type"),
            text[argument.end() : end_tag.start()],
        )
        key = attributes.get("key")
        if not key or key in arguments:
            raise Malformed("an argument has no name, or comes twice")
        is_string = attributes.get("type") == "string"
        arguments[key] = value if is_string else offered.parse_value(name, key, value)
        position = end_tag.end()
    return dump_json(arguments), position


def _attributes(text: str, *known: str) -> dict[str, str]:
    """Return the attributes of a tag.

    Raises:
        Malformed: An attribute occurs twice or is unknown, so its value would be lost.
    """
    pairs = _ATTRIBUTE.findall(text)
    attributes = {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in pairs}
    if len(attributes) < len(pairs) or not attributes.keys() <= set(known):
        raise Malformed("an attribute would be lost")
    return attributes


def _quoted(text: str) -> str:
    return '"' + text.replace("&", "&amp;").replace('"', "&quot;") + '"'


def _written(call: ParsedCall, index: int) -> str:
    pairs = argument_pairs(call.arguments)
    if pairs is None:
        inside = f'<|open|>json type="object"<|sep|>{call.arguments}<|close|>json<|sep|>'
    else:
        inside = "".join(_argument(key, value) for key, value in pairs.items())
    return f'<|open|>call tool={_quoted(call.name)} index="{index}"<|sep|>{inside}<|close|>call<|sep|>'


def _argument(key: str, value: object) -> str:
    kind = _TYPES.get(type(value), "null")
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f'<|open|>argument key={_quoted(key)} type="{kind}"<|sep|>{written}<|close|>argument<|sep|>'


def _key(argument: re.Match[str]) -> tuple[str, bool]:
    attributes = _attributes(argument.group(1), "key", "type")
    return attributes.get("key", ""), attributes.get("type") == "string"


_TAGS = StreamedTags(
    _ARGUMENT,
    ValueEnd("<|close|>argument<|sep|>", ("<|open|>argument", "<|close|>call")),
    _CALL_END,
    _key,
    (_JSON, _JSON_END),
)

_TAGGED = TaggedArguments(
    head='<|open|>call tool="{}" index="{index}"<|sep|>',
    before='<|open|>argument key="{}" type="{type}"<|sep|>',
    end="<|close|>argument<|sep|>",
    tail="<|close|>call<|sep|>",
    space="",
    around_json=('<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>"),
)

KIMI_K3 = CallFormat(
    "mlx_lm.kimi_k3",
    KimiK3Parser,
    single_trigger("<|open|>tools<|sep|>", _TAGGED.section("<|close|>tools<|sep|>")),
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>'
    'argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|><|open|>'
    'argument key="days" type="number"<|sep|>2<|close|>argument<|sep|><|close|>'
    "call<|sep|><|close|>tools<|sep|>",
)
