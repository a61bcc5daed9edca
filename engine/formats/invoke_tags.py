"""Calls as elements with attributes: `<invoke name="f"><parameter name="k">v</parameter></invoke>`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_syntax import CallSyntax, single_trigger
from greenroom.engine.grammar.tagged_calls import TaggedArguments
from greenroom.engine.parsers.block_parser import SectionParser
from greenroom.engine.parsers.json_values import argument_pairs, written_value
from greenroom.engine.parsers.parser import Markers, ParsedCall, prefix_pattern
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import ArgumentTags, TaggedCall
from greenroom.engine.parsers.streamed_values import ValueEnd


class InvokeTags:
    """Parses and renders the elements of one model family. `typed`: True if an attribute marks strings;
    otherwise the tool's schema decides.
    """

    def __init__(self, prefix: str, typed: bool = False) -> None:
        self._prefix = prefix
        self._typed = typed
        name = re.escape(prefix)
        self._invoke = re.compile(rf'<{name}invoke\s+name="([^"<>]+)"\s*(/?)>')
        end = f"</{prefix}invoke>"
        self._tags = ArgumentTags(
            re.compile(
                rf'<{name}parameter\s+name="(?P<key>[^"]+)"(?:\s+string="(?P<string>true|false)")?\s*>'
            ),
            ValueEnd(
                (f"</{prefix}parameter>",),
                (f"<{prefix}parameter", end),
                exact_followers=re.compile(rf"<{name}parameter\s+name=|{re.escape(end)}"),
                cut=end,
            ),
            re.compile(re.escape(end)),
            re.compile(
                rf'<{name}invoke\s+name="(?P<name>[^"<>]+)"|<{name}parameter\s+name="(?P<key>[^"<>]+)"'
            ),
            cut_tail=re.compile(rf"(?=</){prefix_pattern(end)}\s*"),
        )

    def read(self, text: StreamBuffer) -> IncrementalParser[None]:
        """Parse the call that comes next. Raises Unclosed: A whole block ends inside a value. Raises
        Malformed: no call comes next.
        """
        head = yield from text.match(self._invoke)
        if head.group(2):
            text.begin_call(head.group(1))
            text.add("{}")
            text.end_call()
        else:
            yield from TaggedCall(text, head.group(1), self._tags).read()

    def render(self, call: ParsedCall) -> str:
        tag, pairs = self._prefix, argument_pairs(call.arguments)
        if pairs is None:
            return f'<{tag}invoke name="{call.name}">\n{call.arguments}\n</{tag}invoke>'
        lines = "".join(f"{self._argument(key, value)}\n" for key, value in pairs.items())
        return f'<{tag}invoke name="{call.name}">\n{lines}</{tag}invoke>'

    def _argument(self, key: str, value: object) -> str:
        string = isinstance(value, str)
        kind = f' string="{"true" if string else "false"}"' if self._typed else ""
        return f'<{self._prefix}parameter name="{key}"{kind}>{written_value(value)}</{self._prefix}parameter>'


class InvokeSectionParser(SectionParser):
    body_start = re.compile(r"\s*(?:\Z|<)")
    common_end = "</"
    tags: InvokeTags

    def read_call(self, text: StreamBuffer) -> IncrementalParser[None]:
        return self.tags.read(text)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        start, end = self.markers[0]
        return "\n".join([start, *map(self.tags.render, calls), end])


class DeepseekDsmlParser(InvokeSectionParser):
    """DeepSeek V3.2 and later: an attribute of each value tells whether it is a string.

    The section is `function_calls`, from V4 on `tool_calls`.
    """

    parser_id = "deepseek_dsml"
    markers = (
        ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    )
    common_end = "</｜DSML｜"
    tags = InvokeTags("｜DSML｜", typed=True)


class MinimaxM2Parser(InvokeSectionParser):
    """MiniMax M2: elements between `<minimax:tool_call>` and `</minimax:tool_call>`."""

    parser_id = "mlx_lm.minimax_m2"
    markers = (("<minimax:tool_call>", "</minimax:tool_call>"),)
    tags = InvokeTags("")


class Step3Parser(InvokeSectionParser):
    """Step 3: a section of elements, each between markers."""

    parser_id = "step3"
    markers: Markers = (("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),)
    tags = InvokeTags("steptml:")
    _head = re.compile(r"<｜tool_call_begin｜>\s*(?:function\s*<｜tool_sep｜>\s*)?(?=<s)")
    _tail = "<｜tool_call_end｜>"

    def read_call(self, text: StreamBuffer) -> IncrementalParser[None]:
        yield from text.match(self._head)
        yield from self.tags.read(text)
        yield from text.expect_cut(self._tail)
        yield from text.take_any(["<｜tool_sep｜>"])

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        start, end = self.markers[0]
        written = [
            f"<｜tool_call_begin｜>function<｜tool_sep｜>{self.tags.render(call)}{self._tail}"
            for call in calls
        ]
        return "\n".join([start, *written, end])


def invoke_arguments(prefix: str) -> TaggedArguments:
    return TaggedArguments(
        head=f'<{prefix}invoke name="{{}}">\n',
        before=f'<{prefix}parameter name="{{}}">',
        end=f"</{prefix}parameter>",
        tail=f"</{prefix}invoke>",
        space="",
    )


_DSML = attrs.evolve(invoke_arguments("｜DSML｜"), before='<｜DSML｜parameter name="{}" string="{string}">')
_STEP3 = invoke_arguments("steptml:")
_STEP3 = attrs.evolve(
    _STEP3,
    head=f"<｜tool_call_begin｜>function<｜tool_sep｜>{_STEP3.head}",
    tail=f"{_STEP3.tail}<｜tool_call_end｜>",
)

DEEPSEEK_DSML = CallFormat(
    "deepseek_dsml",
    DeepseekDsmlParser,
    CallSyntax(
        tuple(
            (f"<｜DSML｜{name}>", _DSML.section(f"</｜DSML｜{name}>"))
            for name in ("function_calls", "tool_calls")
        )
    ),
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    templates=(TemplateWords(("｜DSML｜",)),),
)
STEP3 = CallFormat(
    "step3",
    Step3Parser,
    single_trigger("<｜tool_calls_begin｜>", _STEP3.section("<｜tool_calls_end｜>")),
    "<｜tool_calls_begin｜>\n"
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">\n'
    '<steptml:parameter name="city">Paris</steptml:parameter>\n'
    '<steptml:parameter name="days">2</steptml:parameter>\n'
    "</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
    templates=(TemplateWords(("steptml:invoke",)),),
)
MINIMAX_M2 = CallFormat(
    "mlx_lm.minimax_m2",
    MinimaxM2Parser,
    single_trigger("<minimax:tool_call>", invoke_arguments("").section("</minimax:tool_call>")),
    '<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n'
    '<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
)
