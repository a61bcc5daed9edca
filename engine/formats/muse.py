"""Muse Spark's format: messages addressed to itself, the user or tools, with tool calls as elements.

to=self<|message|>Some reasoning.<|eom|><|start|>assistant to=user<|message|>An answer.<|eot|>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.formats.invoke_tags import InvokeSectionParser, InvokeTags, invoke_arguments
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.parsers.message_streams import (
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
    ToolCallStream,
)
from greenroom.schemas.messages.messages import Tool

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
