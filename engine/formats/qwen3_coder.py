"""Tool-call formats of Qwen 3 Coder and its successors, and of Seed-OSS."""

from __future__ import annotations

import re

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_syntax import CallSyntax
from greenroom.engine.grammar.tagged_calls import TaggedArguments
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.json_values import argument_pairs, written_value
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import Markers, prefix_pattern
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import ArgumentTags, TaggedCall, read_json_calls
from greenroom.engine.parsers.streamed_values import ValueEnd

_HEAD = re.compile(r"<function=([^\s<>]+)>")
_END = "</function>"
_TAGS = ArgumentTags(
    re.compile(r"<parameter=(?P<key>[^\s<>]+)>"),
    ValueEnd(("</parameter>",), ("<parameter=", _END), cut=_END, line_break=True),
    re.compile(_END),
    re.compile(r"<function=(?P<name>[^\s<>]+)|<parameter=(?P<key>[^\s<>]+)"),
    cut_tail=re.compile(rf"(?:{prefix_pattern(_END)})?"),
)
# After the first characters of the end tag, no further argument can follow.
_SHOWN_END = re.compile(r"</(?:f[a-z]*>?\s*)?\Z")


class Qwen3CoderParser(BlockParser):
    """Qwen 3: `<tool_call><function=name><parameter=key>value</parameter>…</function></tool_call>`.

    Values are unquoted and on lines of their own; the tool's schema decides their types. These models often
    omit the outer tag, so a lone function is parsed too.
    """

    parser_id = "qwen3_coder"
    markers: Markers = (("<tool_call>", "</tool_call>"), ("<function=", "</function>"))
    trailer = "</tool_call>"
    read_with_start = ("<function=",)
    body_start = re.compile(
        rf"\s*(?:\Z|[{{\[]|<function=|{prefix_pattern('<function=')}\Z|[^\s<>{{\[]+(?:\Z|>\s*(?:\Z|[<{{])))"
    )

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        if start not in self.read_with_start and (yield from text.peek()) == "{":
            yield from read_json_calls(text)
            return
        while True:
            if (
                text.started
            ):  # Before a further call, some models open another block without closing this one.
                yield from text.take_any([self.markers[0][0]])
            yield from text.peek()
            head = yield from text.match(_HEAD)
            yield from TaggedCall(text, head.group(1), _TAGS).read()
            if start in self.read_with_start or (yield from text.take_end()):
                return

    def new_text(
        self, offered: OfferedTools, start: str, body: str = "", *, complete: bool = False
    ) -> StreamBuffer:
        closed = f"{body}{_END}" if complete and start in self.read_with_start else body
        return super().new_text(offered, start, closed, complete=complete)

    def is_whole(self, body: str, rest: str) -> bool:
        return rest.startswith("</") or body.lstrip().startswith("{") or bool(_SHOWN_END.search(body))

    def render(self, name: str, arguments: str) -> str:
        start, end = self.markers[0]
        return f"{start}\n<function={name}>\n{self._rendered(arguments)}</function>\n{end}"

    def _rendered(self, arguments: str) -> str:
        pairs = argument_pairs(arguments)
        if pairs is None:
            return f"{arguments}\n"
        return "".join(f"{self._argument(key, value)}\n" for key, value in pairs.items())

    def _argument(self, key: str, value: object) -> str:
        return f"<parameter={key}>\n{written_value(value)}\n</parameter>"


class SeedOssParser(Qwen3CoderParser):
    """Seed-OSS: Qwen's tags inside `<seed:tool_call>`, with each value on the line of its tag."""

    parser_id = "seed_oss"
    markers = (("<seed:tool_call>", "</seed:tool_call>"), ("<function=", "</function>"))
    trailer = "</seed:tool_call>"

    def _argument(self, key: str, value: object) -> str:
        written = written_value(value)
        space = "" if written.strip("\n") == written else "\n"  # The parser strips one line break per end.
        return f"<parameter={key}>{space}{written}{space}</parameter>"


_ARGUMENTS = TaggedArguments(
    head="<function={}>", before="<parameter={}>", end="</parameter>", tail="</function>", space="\n"
)
_SEED_ARGUMENTS = attrs.evolve(_ARGUMENTS, space="", close="</seed:tool_call>", trimmed="\n")

QWEN3_CODER = CallFormat(
    "qwen3_coder",
    Qwen3CoderParser,
    CallSyntax(
        # These models often omit the outer tag.
        (("<tool_call>", _ARGUMENTS.block()), ("<function=", _ARGUMENTS.alone("<function=")))
    ),
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    mlx_lm_names=("qwen3_coder",),
)
SEED_OSS = CallFormat(
    "seed_oss",
    SeedOssParser,
    CallSyntax(
        (("<seed:tool_call>", _SEED_ARGUMENTS.block()), ("<function=", _SEED_ARGUMENTS.alone("<function=")))
    ),
    "<seed:tool_call>\n<function=get_weather>\n"
    "<parameter=city>Paris</parameter>\n<parameter=days>2</parameter>\n"
    "</function>\n</seed:tool_call>",
    templates=(TemplateWords(("<seed:tool_call>",)),),
)
