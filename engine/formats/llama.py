"""Tool-call formats of the Llama 3 and 4 models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import alternatives, json_call, pythonic_list
from greenroom.engine.grammar.call_syntax import CallSyntax, no_call, single_trigger
from greenroom.engine.grammar.grammar_builder import SPACE
from greenroom.engine.parsers.block_format import BlockEnd, JsonBlockEnd
from greenroom.engine.parsers.block_parser import (
    BareBlockParser,
    BlockParser,
    OneBlockParser,
    begins_bare_json,
)
from greenroom.engine.parsers.json_values import PythonScanner, render_json_call
from greenroom.engine.parsers.parser import TOOL_NAME, ParsedCall, skip_space
from greenroom.engine.parsers.python_values import render_pythonic_call
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_headed_call
from greenroom.engine.parsers.streamed_python import read_python_or_json

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


_NAMED = re.compile(r"([^\s<>{}]+)>")


class LlamaXmlParser(BlockParser):
    """`<function=name>{…}</function>`: the format that Llama 3 documents for custom tools."""

    parser_id = "llama_xml"
    markers = (("<function=", "</function>"),)
    body_start = re.compile(r"[^\s<>{}]*(?:\Z|>\s*(?:\Z|\{|<))")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_headed_call(text, _NAMED, may_be_bare=True)

    def is_whole(self, body: str, rest: str) -> bool:
        return body.rstrip().endswith("}")

    def render(self, name: str, arguments: str) -> str:
        return f"<function={name}>{arguments or '{}'}</function>"


class LlamaPythonParser(BlockParser):
    """`<|python_tag|>module.method(args)<|eom_id|>`: Llama 3 in an `ipython` environment.

    The end marker is usually a stop token and absent from the text. JSON after the tag is parsed too.
    """

    parser_id = "llama_python"
    markers = (("<|python_tag|>", "<|eom_id|>"),)

    def new_block_end(self, start: str) -> BlockEnd:
        return _TagEnd(start, self.ends[start], following=start)

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_python_or_json(text)

    def render(self, name: str, arguments: str) -> str:
        return f"<|python_tag|>{render_json_call(name, arguments, 'parameters')}"


class LlamaJsonParser(BareBlockParser, LlamaPythonParser):
    """`{"name": …, "parameters": …}` as the whole answer, as Llama 3.1 to 3.3's templates request.

    Semicolons separate several calls. The tag of `LlamaPythonParser` is parsed too.
    """

    parser_id = "llama_json"
    json_header = re.compile("")
    trailer = ";"

    def begins_bare(self, text: str) -> bool | None:
        return begins_bare_json(text)

    def new_block_end(self, start: str) -> BlockEnd:
        if not start:
            return JsonBlockEnd("", self.json_header)
        return _JsonTagEnd(start, self.ends[start], following=start)

    def render(self, name: str, arguments: str) -> str:
        return render_json_call(name, arguments, "parameters")


class _TagEnd(BlockEnd):
    """Finds the end of a tag's block: its end marker or the next tag.

    The block counts as complete without an end marker too.
    """

    def is_cut_short(self, body_end: int, end: int) -> bool:
        return False


class _JsonTagEnd(_TagEnd):
    def __init__(self, start: str, end: str, following: str) -> None:
        super().__init__(start, end, following)
        self._json = JsonBlockEnd(start, re.compile(r"[ \t\r\n]*(?=\{)"))
        self._is_json = False

    def find(self, text: str, begin: int, final: bool) -> tuple[int, int] | None:
        self._is_json = self._is_json or text.startswith("{", skip_space(text, begin + len(self._start)))
        return self._json.find(text, begin, final) if self._is_json else super().find(text, begin, final)

    def goes_on(self, piece: str) -> bool:
        return self._json.goes_on(piece) if self._is_json else super().goes_on(piece)


class BarePythonicParser(BareBlockParser, OneBlockParser):
    """`[get_weather(city="Paris"), …]` as the whole answer: Llama 3.2 and 4, ToolACE.

    Llama 4 may enclose it in `<|python_start|>` and `<|python_end|>`, and may write JSON instead.
    """

    parser_id = "bare_pythonic"
    markers = (("<|python_start|>", "<|python_end|>"), ("<|python_tag|>", "<|eom_id|>"))
    json_header = re.compile("")
    trailer = ";"
    _bare = re.compile(rf"\[\s*{TOOL_NAME}\(")
    _bare_so_far = re.compile(rf"\[\s*(?:{TOOL_NAME})?\Z")

    def begins_bare(self, text: str) -> bool | None:
        if self._bare.match(text):
            return True
        return None if self._bare_so_far.match(text) else begins_bare_json(text)

    def new_block_end(self, start: str) -> BlockEnd:
        return BlockEnd(start, self.ends[start]) if start else JsonBlockEnd("", re.compile(""), PythonScanner)

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_python_or_json(text)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return f"[{', '.join(render_pythonic_call(call.name, call.arguments) for call in calls)}]"


def _function(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    end = text.fixed_text("</function>")

    def written(tool: ConstrainedTool, json: str) -> str:
        return f"{text.fixed_text(tool.plain_name + '>')} {json} {end}"

    return alternatives(tools, written, text)


def _json_behind_tag(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    return f"{SPACE} {json_call(text, tools, 'parameters')}"


def _bare_json(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    call = json_call(text, tools, "parameters")
    return f'{call} (";" {SPACE} {call})*' if many else call


LLAMA_XML = CallFormat(
    "llama_xml",
    LlamaXmlParser,
    single_trigger("<function=", _function),
    '<function=get_weather>{"city": "Paris", "days": 2}</function>',
    templates=(TemplateWords(("<function=",), distinctive=False),),
)
LLAMA_PYTHON = CallFormat(
    "llama_python",
    LlamaPythonParser,
    single_trigger("<|python_tag|>", _json_behind_tag, single_block=True),
    '<|python_tag|>get_weather.call(city="Paris", days=2)<|eom_id|>',
    templates=(TemplateWords(("<|python_tag|>",), absent=('"parameters"',), distinctive=False),),
)
LLAMA_JSON = CallFormat(
    "llama_json",
    LlamaJsonParser,
    CallSyntax((("", _bare_json),), single_block=True, plain=no_call("{", "<|python_tag|>")),
    '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}',
    templates=(
        TemplateWords(
            ('{"name": function name, "parameters"',),
            absent=("<|python_tag|>", "<|python_start|>", "[func_name1("),
        ),
        TemplateWords(("<|python_tag|>", '"parameters"'), distinctive=False),
    ),
)
BARE_PYTHONIC = CallFormat(
    "bare_pythonic",
    BarePythonicParser,
    CallSyntax(
        (("", pythonic_list),), single_block=True, plain=no_call("[{", "<|python_start|>", "<|python_tag|>")
    ),
    '[get_weather(city="Paris", days=2)]',
    templates=(TemplateWords(("<|python_start|>",)), TemplateWords(("[func_name1(",))),
)
