"""Tool-call format of Kimi K3: elements with tokens as tags, `<|open|>call tool="f" index="1"<|sep|>…`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.grammar.tagged_calls import TaggedArguments
from greenroom.engine.parsers.block_parser import SectionParser
from greenroom.engine.parsers.json_values import argument_pairs
from greenroom.engine.parsers.parser import Malformed, ParsedCall, prefix_pattern
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import ArgumentTags, TaggedCall
from greenroom.engine.parsers.streamed_values import ValueEnd

_ATTRIBUTES = r'((?:\s+\w+="[^"]*")*)\s*<\|sep\|>'
_CALL = re.compile(rf"<\|open\|>call{_ATTRIBUTES}")
_CALL_END = "<|close|>call<|sep|>"
_ARGUMENT = re.compile(rf"<\|open\|>argument{_ATTRIBUTES}")
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

    def read_call(self, text: StreamBuffer) -> IncrementalParser[None]:
        head = yield from text.match(_CALL)
        name = _attributes(head.group(1), "tool", "index").get("tool", "")
        if not name:
            raise Malformed("the call has no name")
        yield from TaggedCall(text, name, _TAGS).read()

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        start, end = self.markers[0]
        return f"{start}{''.join(_written(call, index) for index, call in enumerate(calls, 1))}{end}"


def _attributes(text: str, *known: str) -> dict[str, str]:
    """Return the attributes of a tag. Raises Malformed: an attribute occurs twice or is unknown, so its value
    would be lost.
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


_TAGS = ArgumentTags(
    _ARGUMENT,
    ValueEnd(("<|close|>argument<|sep|>",), ("<|open|>argument", "<|close|>call"), cut="<|close|>"),
    re.compile(re.escape(_CALL_END)),
    re.compile(r'<\|open\|>(?:call\s[^<>]*?tool="(?P<name>[^"<>]*)|argument\s[^<>]*?key="(?P<key>[^"<>]*))'),
    cut_tail=re.compile(rf"(?=<\|c){prefix_pattern(_CALL_END)}"),
    key=_key,
    json=(_JSON, _JSON_END),
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
