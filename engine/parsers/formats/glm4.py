"""The formats of the GLM-4 models."""

from __future__ import annotations

import json
import re
from typing import Any

from greenroom.engine.parsers.block_stream import BlockParser
from greenroom.engine.parsers.json_calls import dump_json, normalize_object, parse_json_calls
from greenroom.engine.parsers.markers import prefix_pattern
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed

_NAME = re.compile(r"\s*([^\s<>{}\[\]]+)\s*")
_KEY = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>", re.DOTALL)
_VALUE_END = re.compile(r"</arg_value>\s*(?=<arg_key>|\Z)")


class Glm4NativeParser(BlockParser):
    """GLM-4.5 to 4.7: `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>…</tool_call>`.

    Strings are written without quotes, so that the tool's schema decides what a value is.
    """

    parser_id = "glm4_native"
    markers = (("<tool_call>", "</tool_call>"),)
    body_start = re.compile(r"\s*(?:\Z|[{\[]|[^\s<>{}\[\]]+\s*(?:\Z|<))")

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        if body.lstrip().startswith(("{", "[")):  # Some of these models fall back on JSON.
            return parse_json_calls(body)
        head = _NAME.match(body)
        if head is None:
            raise Malformed("the call has no name")
        name, position = head.group(1), head.end()
        arguments: dict[str, Any] = {}
        while position < len(body):
            key = _KEY.match(body, position)
            if key is None:
                raise Malformed("an argument is not a pair of key and value")
            end = _VALUE_END.search(body, key.end())
            if end is None:
                raise Unclosed("a value has no end")
            argument = key.group(1).strip()
            arguments[argument] = offered.parse_value(name, argument, body[key.end() : end.start()])
            position = end.end()
        return [ParsedCall(name, dump_json(arguments))]

    def is_whole(self, body: str, rest: str) -> bool:
        return rest.startswith("</") or body.lstrip().startswith(("{", "["))

    def render(self, name: str, arguments: str) -> str:
        try:
            pairs = dict(json.loads(arguments or "{}"))
        except (ValueError, TypeError):  # A client's history may hold anything.
            return f"<tool_call>{name}\n{arguments}\n</tool_call>"
        lines = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{value if isinstance(value, str) else dump_json(value)}"
            for key, value in pairs.items()
        ]
        return f"<tool_call>{name}\n" + "".join(f"{line}</arg_value>\n" for line in lines) + "</tool_call>"


class Glm4XmlParser(BlockParser):
    """GLM-4: `<tool_call><name>fn</name><arguments>{…}</arguments>`, closed by `</tool_call>` or not."""

    parser_id = "glm4_xml"
    markers = (("<tool_call>", "</arguments>"),)
    trailer = "</tool_call>"
    body_start = re.compile(rf"\s*(?:\Z|<name>|{prefix_pattern('<name>')}\Z)")
    streamed_header = re.compile(r"\s*<name>\s*([^<>]+?)\s*</name>\s*<arguments>\s*(?=\{)")
    _body = re.compile(r"\s*<name>\s*([^<>]+?)\s*</name>\s*<arguments>(.*)\Z", re.DOTALL)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        parts = self._body.match(body)
        if parts is None:
            raise Malformed("the call has no name or no arguments")
        return [ParsedCall(parts.group(1), normalize_object(parts.group(2).strip() or "{}"))]

    def render(self, name: str, arguments: str) -> str:
        return f"<tool_call><name>{name}</name><arguments>{arguments or '{}'}</arguments></tool_call>"
