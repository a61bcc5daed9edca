"""Formats of addressed messages: gpt-oss (channels, calls to `functions.NAME`) and Muse Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.formats.invoke_tags import InvokeSectionParser, InvokeTags, invoke_arguments
from greenroom.engine.grammar.call_bodies import alternatives
from greenroom.engine.grammar.call_syntax import Body, CallSyntax, single_trigger
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.message_streams import (
    CALL_END,
    CHANNEL,
    CONTROL_TOKENS,
    MESSAGE,
    RECIPIENT,
    START,
    HarmonyMessages,
    Kind,
    MessageReasoningStream,
    MessageToolStream,
)
from greenroom.engine.parsers.parser import (
    NullToolStream,
    ReasoningParser,
    ReasoningStream,
    Release,
    ToolCallParser,
    ToolCallStream,
)
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_headed_call
from greenroom.schemas.messages.messages import Tool

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


REASONING_START, REASONING_END = "<|channel|>analysis<|message|>", "<|end|>"


class HarmonyReasoningParser(ReasoningParser):
    """Parses messages in the channel `analysis` as reasoning and others without a recipient as the answer.

    Tool calls pass through unchanged for the tool-call parser.
    """

    parser_id = "harmony"
    markers = ((REASONING_START, REASONING_END),)
    forced_end = f"{REASONING_END}{START}assistant"
    answer_starts = tuple(
        f"{start}<|channel|>final{kind}<|message|>"
        for start in ("", f"{START}assistant")
        for kind in ("", " <|constrain|>json")
    )

    def reads_outside_reasoning(self, token: str) -> bool:
        return token in CONTROL_TOKENS

    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        return MessageReasoningStream(HarmonyMessages("thought" if starts_open else "outside"))


class HarmonyParser(ToolCallParser):
    """gpt-oss: `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`."""

    parser_id = "harmony"
    markers = ((CHANNEL, CALL_END), (START, CALL_END))
    preamble_frame = ("<|channel|>commentary<|message|>", f"{REASONING_END}{START}assistant")

    def __init__(self) -> None:
        self._calls = _AddressedCalls()

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return MessageToolStream(self._calls.new_stream(tools, release), HarmonyMessages())

    def reads_outside_calls(self, token: str) -> bool:
        return token in CONTROL_TOKENS

    def render(self, name: str, arguments: str) -> str:
        header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        return f"{header}{arguments or '{}'}{CALL_END}"


class _AddressedCalls(BlockParser):
    """Parser of messages with a recipient, each from its header to its end marker."""

    parser_id = "harmony"
    markers = ((CHANNEL, CALL_END), (START, CALL_END))
    _header = re.compile(
        r"(?=(?:(?!<\|message\|>).)*+<\|message\|>)"
        r"(?:(?!<\|message\|>).)*\bto=(?:functions\.)?+([^\s<]++)(?:(?!<\|message\|>).)*+<\|message\|>",
        re.DOTALL,
    )

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_headed_call(text, self._header, may_be_bare=True)

    def is_whole(self, body: str, rest: str) -> bool:
        return body.rstrip().endswith("}")


def _message(behind_role: bool) -> Body:
    """Return the body of a message to a tool, behind the start of the tool's name. `behind_role`: True if the
    role names the recipient, so that the channel may follow.
    """

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        channel = f"({text.fixed_text('<|channel|>commentary')})?" if behind_role else ""
        json, message = text.fixed_text("<|constrain|>json"), text.fixed_text("<|message|>")
        end = text.fixed_text("<|call|>")

        def written(tool: ConstrainedTool, arguments: str) -> str:
            header = f'{text.fixed_text(tool.plain_name)} {channel} (" "? {json} | " json")?'
            return f"{header} {message} {arguments} {end}"

        return alternatives(tools, written, text)

    return body


HARMONY = CallFormat(
    "harmony",
    HarmonyParser,
    CallSyntax(
        (
            ("<|channel|>commentary to=functions.", _message(behind_role=False)),
            ("<|channel|>analysis to=functions.", _message(behind_role=False)),
            ("<|start|>assistant to=functions.", _message(behind_role=True)),
        ),
        single_block=True,
        lead="<|start|>assistant",
    ),
    '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": '
    '"Paris", "days": 2}<|call|>',
    templates=(TemplateWords(("<|channel|>", "<|message|>")),),
)


# Muse Spark's format: messages addressed to itself, the user or tools, with tool calls as elements.
#
# to=self<|message|>Some reasoning.<|eom|><|start|>assistant to=user<|message|>An answer.<|eot|>

_MESSAGE_ENDS = ("<|eom|>", "<|eot|>")
_CONTROL_TOKENS = (START, MESSAGE, *_MESSAGE_ENDS)


class _MuseMessages(HarmonyMessages):
    """Messages without channels: the recipient decides the kind; a message to a tool holds a call."""

    openings = (START,)
    ends = _MESSAGE_ENDS

    def _kind_of(self, header: re.Match[str]) -> Kind:
        recipient = RECIPIENT.search(header["role"])
        return "thought" if recipient is not None and recipient.group(1) == "self" else "answer"


class MuseReasoningParser(ReasoningParser):
    """Parses messages to `self` as reasoning."""

    parser_id = "muse"
    markers = (("to=self<|message|>", "<|eom|>"),)
    forced_end = f"<|eom|>{START}assistant to=user<|message|>"
    answer_starts = tuple(f"{start} to=user<|message|>" for start in ("", f"{START}assistant"))

    def reads_outside_reasoning(self, token: str) -> bool:
        return token in _CONTROL_TOKENS

    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        return MessageReasoningStream(_MuseMessages("thought" if starts_open else "outside"))


class MuseParser(InvokeSectionParser):
    """Elements with the prefix `atem:`, between `<atem:function_calls>` and `</atem:function_calls>`."""

    parser_id = "mlx_lm.muse_spark"
    markers = (("<atem:function_calls>", "</atem:function_calls>"),)
    common_end = "</atem:"
    tags = InvokeTags("atem:")

    def reads_outside_calls(self, token: str) -> bool:
        return token in _CONTROL_TOKENS or super().reads_outside_calls(token)

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        stream = super().new_stream(tools, release)
        return stream if isinstance(stream, NullToolStream) else MessageToolStream(stream, _MuseMessages())


MUSE = CallFormat(
    "mlx_lm.muse_spark",
    MuseParser,
    single_trigger("<atem:function_calls>", invoke_arguments("atem:").section("</atem:function_calls>")),
    '<atem:function_calls>\n<atem:invoke name="get_weather">\n'
    '<atem:parameter name="city">Paris</atem:parameter>\n'
    '<atem:parameter name="days">2</atem:parameter>\n</atem:invoke>\n'
    "</atem:function_calls>",
)
