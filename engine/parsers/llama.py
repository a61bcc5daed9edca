"""The formats of the Llama 3 models."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.engine.parsers.base import (
    Malformed,
    ParsedCall,
    ParserEvent,
    Release,
    ToolCallStream,
)
from greenroom.engine.parsers.block_stream import BlockParser, BlockStream
from greenroom.engine.parsers.json_calls import normalize_object, parse_json_calls, render_json_call
from greenroom.engine.parsers.markers import WHITESPACE
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.python_calls import parse_python_calls
from greenroom.schemas.messages import Tool


class LlamaXmlParser(BlockParser):
    """`<function=name>{…}</function>`: the format Llama 3 documents for custom tools."""

    parser_id = "llama_xml"
    markers = (("<function=", "</function>"),)
    body_start = re.compile(r"[^\s<>{}]*(?:\Z|>\s*(?:\Z|\{|<))")
    streamed_header = re.compile(r"([^\s<>{}]+)>\s*(?=\{)")
    _body = re.compile(r"([^\s<>{}]+)>(.*)\Z", re.DOTALL)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        parts = self._body.match(body)
        if parts is None:
            raise Malformed("the call has no name")
        return [ParsedCall(parts.group(1), normalize_object(parts.group(2).strip() or "{}"))]

    def render(self, name: str, arguments: str) -> str:
        return f"<function={name}>{arguments or '{}'}</function>"


class LlamaPythonParser(BlockParser):
    """`<|python_tag|>module.method(args)<|eom_id|>`: Llama 3 in an `ipython` environment.

    The end marker is usually a stop token and never seen. JSON after the tag is read as well.
    """

    parser_id = "llama_python"
    markers = (("<|python_tag|>", "<|eom_id|>"),)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        body = body.strip()
        return parse_json_calls(body) if body.startswith("{") else parse_python_calls(body, offered)

    def render(self, name: str, arguments: str) -> str:
        return f"<|python_tag|>{render_json_call(name, arguments, 'parameters')}"


class LlamaJsonParser(LlamaPythonParser):
    """`{"name": …, "parameters": …}` as the whole answer: what the templates of Llama 3.1 to 3.3 ask for.

    Several calls are separated by semicolons. The tag of `LlamaPythonParser` is understood too.
    """

    parser_id = "llama_json"
    json_header = re.compile("")
    trailer = ";"

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return _BareJsonStream(self, OfferedTools(tools), release)

    def render(self, name: str, arguments: str) -> str:
        return render_json_call(name, arguments, "parameters")


_BARE_STARTS = ('{"name":', '{"type":"function"', '{"function":', '{"parameters":')
_JSON_SPACE = re.compile(r"[ \t\r\n]+")


class _BareJsonStream(BlockStream):
    """A block without markers: an object that starts the answer, or follows another such object."""

    def __init__(self, parser: BlockParser, offered: OfferedTools, release: Release) -> None:
        super().__init__(parser, offered, release)
        self._only_calls_so_far = True

    def _read_text(self, events: list[ParserEvent]) -> bool:
        if not self._only_calls_so_far:
            return super()._read_text(events)
        text = self._pending.lstrip(WHITESPACE)
        dense = _JSON_SPACE.sub("", text) if text.startswith("{") else text
        if dense.startswith(_BARE_STARTS):
            self._padding += self._pending[: len(self._pending) - len(text)]
            self._pending = text
            self._open_block("")
            return True
        marker = next(iter(self._parser.ends))
        undecided = any(start.startswith(dense) for start in _BARE_STARTS) or marker.startswith(text)
        if undecided and not self._final:
            return False
        self._only_calls_so_far = text.startswith(marker)
        return super()._read_text(events)

    def _return_as_text(self, events: list[ParserEvent], reason: str, end: int) -> bool:
        self._only_calls_so_far = False
        return super()._return_as_text(events, reason, end)
