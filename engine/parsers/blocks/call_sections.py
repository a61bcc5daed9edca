"""Tool calls that follow one another in a section, each between its own markers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

import attrs

from greenroom.engine.parsers.blocks.block_end import BlockEnd
from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.markers import skip_space
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_calls import stream_headed_section
from greenroom.engine.parsers.values.json_calls import normalize_object, read_value
from greenroom.engine.parsers.values.offered_tools import OfferedTools


class _SectionEnd(BlockEnd):
    """Finds the end of a section; a partial marker that may close a call stays in the body."""

    def __init__(self, start: str, end: str, common: str) -> None:
        super().__init__(start, end)
        self._common = common

    def find(self, text: str, begin: int, final: bool) -> tuple[int, int] | None:
        found = super().find(text, begin, final)
        if found is not None and self._common.startswith(text[begin + found[0] : begin + found[1]]):
            return found[1], found[1]
        return found


class SectionParser(BlockParser):
    """A format whose blocks are lists of calls, with optional white space between them.

    Attributes:
        separator: Text that may separate two calls, besides white space.
        common_end: Common prefix of the markers that end a section and a call; a text cut off within it
            certainly has no further argument.
    """

    separator: str = ""
    common_end: str = ""

    @abstractmethod
    def read_call(self, text: str, position: int, offered: OfferedTools) -> tuple[ParsedCall, int]:
        """Return the call at a position and the position of its end.

        Raises:
            Unclosed: The text ends inside a value.
            Malformed: No call begins there.
        """

    def new_block_end(self, start: str) -> BlockEnd:
        return _SectionEnd(start, self.ends[start], self.common_end)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        calls: list[ParsedCall] = []
        position = skip_space(body, 0)
        while position < len(body):
            rest = body[position : position + len(self.common_end) + 1]
            if calls and self.common_end.startswith(rest):
                break
            call, position = self.read_call(body, position, offered)
            calls.append(call)
            position = skip_space(body, position)
            if self.separator and body.startswith(self.separator, position):
                position = skip_space(body, position + len(self.separator))
        if not calls:
            raise Malformed("the section is empty")
        return calls

    def render(self, name: str, arguments: str) -> str | None:
        return self.render_all([ParsedCall(name, arguments)])


@attrs.frozen
class HeadedCallFormat:
    """A tool-call format in which the function's name precedes JSON arguments.

    Args:
        parser_id: Id of the parser and of the grammar.
        start: Marker that opens a section.
        head: Text before the arguments of a call; `{}` is the name, `{index}` the call's number or, when
            parsed, any id before the name. The parser accepts any white space for line breaks in head and
            tail.
        tail: Text after the arguments.
        between: Text written between two calls.
        end: Marker that closes a section.
        preamble_frame: See `ToolCallParser`.
    """

    parser_id: str
    start: str
    head: str
    tail: str
    between: str
    end: str
    preamble_frame: tuple[str, str] | None = None


HEADED_CALL_FORMATS = (
    HeadedCallFormat(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        "\n",
        "<｜tool▁calls▁end｜>",
    ),
    HeadedCallFormat(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "",
        "<｜tool▁calls▁end｜>",
    ),
    HeadedCallFormat(
        "mlx_lm.kimi_k2",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.{}:{index}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "",
        "<|tool_calls_section_end|>",
    ),
    HeadedCallFormat(
        "solar_open",
        "<|tool_calls|>",
        "<|tool_call:begin|>{index}<|tool_call:name|>{}<|tool_call:args|>",
        "<|tool_call:end|>",
        "",
        "<|calls|>",
        ("<|content|>", "<|end|><|begin|>assistant"),
    ),
)
"""DeepSeek V3 and R1; DeepSeek V3.1; Kimi K2; Solar Open."""


class HeadedCallParser(SectionParser):
    """Parses and renders one of these formats, whose arguments are JSON.

    Only the template writes the markers of tool results. If a model writes them, they are dropped.
    """

    dropped = ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")

    def __init__(self, call_format: HeadedCallFormat) -> None:
        self.parser_id = call_format.parser_id
        self.markers = ((call_format.start, call_format.end),)
        self._format = call_format
        self.preamble_frame = call_format.preamble_frame
        before, _, after = map(_loosely, call_format.head.partition("{}"))
        before = before.replace(r"functions\.", r"\s*(?:functions\.)?")
        before = before.replace(r"\{index\}", r"[^\s<>]{1,64}")
        after = after.replace(r":\{index\}", r"(?::[0-9]{1,9})?\s*")
        self._head = re.compile(rf"{before}\s*([^\s<>{{}}]+?)\s*{after}\s*")
        self._streamed_head = re.compile(rf"{self._head.pattern}(?=\{{)")
        self._tail = re.compile(rf"\s*{_loosely(call_format.tail)}")
        super().__init__()

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_headed_section(text, self._streamed_head, self._tail, self._format.end)

    def read_call(self, text: str, position: int, offered: OfferedTools) -> tuple[ParsedCall, int]:
        head = self._head.match(text, position)
        if head is None:
            raise Malformed("the call has no name")
        _, end = read_value(text, head.end())
        call = ParsedCall(head.group(1), normalize_object(text[head.end() : end]))
        tail = self._tail.match(text, end)
        if tail is not None:
            return call, tail.end()
        if _squeezed(self._format.tail).startswith(_squeezed(text[end:])):
            return call, len(text)  # The text was cut off after complete arguments.
        raise Malformed("the call has no end")

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        parts = self._format
        written = [
            f"{parts.head.format(call.name, index=index)}{call.arguments or '{}'}{parts.tail}"
            for index, call in enumerate(calls)
        ]
        return f"{parts.start}{parts.between.join(written)}{parts.end}"


def _loosely(text: str) -> str:
    """Return a pattern of a text in which each line break matches any white space."""
    return r"\s*".join(map(re.escape, text.split("\n")))


def _squeezed(text: str) -> str:
    return "".join(text.split())
