"""The format of gpt-oss: reasoning in the channel `analysis`, calls addressed to `functions.NAME`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import alternatives
from greenroom.engine.grammar.call_syntax import Body, CallSyntax
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.message_streams import (
    CALL_END,
    CHANNEL,
    CONTROL_TOKENS,
    START,
    HarmonyMessages,
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
        r"(?:(?!<\|message\|>).)*\bto=(?:functions\.)?+([^\s<]+)(?:(?!<\|message\|>).)*<\|message\|>",
        re.DOTALL,
    )

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_headed_call(text, self._header, may_be_bare=True)

    def is_whole(self, body: str, rest: str) -> bool:
        return body.rstrip().endswith("}")


def _message(behind_role: bool) -> Body:
    """Return the body of a message to a tool, behind the start of the tool's name.

    Args:
        behind_role: True if the role names the recipient, so that the channel may follow.
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
