"""Parser detection by a round trip: parsing a template's rendering of known reasoning and calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property
from typing import Any, TypeVar

import attrs

from greenroom.engine.adapters.conversation import MessageConverter, as_openai_tool
from greenroom.engine.adapters.template_probe import TemplateTraits, template_unusable
from greenroom.engine.formats.registry import (
    FURTHER_NAMES,
    REASONING_PARSERS,
    TOOL_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.parsers.parser import NullToolParser, ReasoningParser, ToolCallParser, dry_run
from greenroom.engine.parsers.reasoning import AnswerTagsParser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.engine.tokenizer.control_tokens import ControlTokenMarker
from greenroom.engine.tokenizer.template_budget import TemplateLimitError
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.events.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.prepared_input import PreparedPrompt

P = TypeVar("P", ToolCallParser, ReasoningParser)


@attrs.frozen
class ParsedTurn:
    """A turn as two parsers read it."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]

    def is_like(self, turn: Message) -> bool:
        """Return whether this equals the turn given to the template, apart from reasoning."""
        same_calls = [name for name, _ in self.calls] == [call.name for call in turn.tool_calls] and all(
            _same_json(arguments, call.arguments)
            for (_, arguments), call in zip(self.calls, turn.tool_calls, strict=True)
        )
        return same_calls and self.text.strip() == turn.text.strip()


def read_turn(
    shown: RenderedTurn,
    calls: ToolCallParser,
    reasoning_parser: ReasoningParser,
    tools: tuple[Tool, ...],
    pieces: Sequence[str] = (),
    *,
    ended_by_model: bool = True,
) -> ParsedTurn:
    """Return the turn as a client would receive it if the model had written it. `pieces`: pieces in which the
    text arrives; empty for one piece; `ended_by_model`: False if the text was cut off.
    """
    prepared = PreparedPrompt(
        tokens=(0,),
        stop_token_ids=frozenset(),
        max_tokens=1,
        tools=tools,
        starts_in_reasoning=reasoning_parser.is_opened_by(shown.prompt),
    )
    processor = StreamProcessor(calls, reasoning_parser, prepared, str)
    text, reasoning, found = "", "", list[tuple[str, str]]()
    with dry_run():
        written = pieces or (shown.text,)
        deltas = [
            *(delta for piece in written for delta in processor.feed(piece)),
            *processor.finish(ended_by_model=ended_by_model),
        ]
    for delta in deltas:
        match delta:
            case TextDelta():
                text += delta.text
            case ReasoningDelta():
                reasoning += delta.text
            case ToolCallDelta(name=str() as name):
                found.append((name, delta.arguments))
            case ToolCallDelta():
                found[-1] = (found[-1][0], found[-1][1] + delta.arguments)
    return ParsedTurn(text, reasoning, tuple(found))


def find_reasoning_parser(turns: RenderedTurns, likely: str) -> ReasoningParser | None:
    """Return a parser that reads the reasoning that the template shows; None if there is none."""
    for turn in (_REASONING, *(attrs.evolve(turn, reasoning=_REASONING.reasoning) for turn in _FLAT)):
        shown = turns.show(turn)
        if shown is None or "zqthought" not in shown.text:
            continue
        for parser in _ordered(_reasoning_parsers(), likely):
            if not _may_have_written(parser, shown):
                continue
            read = read_turn(shown, _NO_CALLS, parser, ())
            if read.reasoning.strip() == "zqthought" and (turn.tool_calls or read.is_like(turn)):
                return parser
    return None


@attrs.frozen
class FoundToolParser:
    """A parser that reads calls as a template shows them. `exact`: True if nested arguments are read too."""

    parser: ToolCallParser
    traits: TemplateTraits
    exact: bool


def find_tool_parser(
    turns: RenderedTurns,
    traits: TemplateTraits,
    reasoning_parser: ReasoningParser,
    likely: str,
    only: bool = False,
) -> FoundToolParser | None:
    """Return a parser that reads the calls that the template shows; None if there is none."""
    known = _ordered(_tool_parsers(), likely)
    return find_reader(
        turns,
        traits,
        [parser for parser in known if not only or parser.parser_id == likely],
        lambda parser, shown, turn: (
            _may_read(parser, shown) and read_turn(shown, parser, reasoning_parser, TOOLS).is_like(turn)
        ),
    )


def find_reader(
    turns: RenderedTurns,
    traits: TemplateTraits,
    parsers: Sequence[ToolCallParser],
    reads: Callable[[ToolCallParser, RenderedTurn, Message], bool],
) -> FoundToolParser | None:
    """Return the first parser that reads a turn with calls; None if there is none."""
    if not traits.tool_calls:
        return None
    for turn, exact in (*((turn, True) for turn in _NESTED), *((turn, False) for turn in _FLAT)):
        beside, parallel = bool(turn.content), len(turn.tool_calls) > 1
        if (beside and not traits.text_beside_calls) or (parallel and not traits.parallel_calls):
            continue
        shown = turns.show(turn)
        if shown is None:
            continue
        for parser in parsers:
            if reads(parser, shown, turn):
                seen = attrs.evolve(
                    traits,
                    text_beside_calls=traits.text_beside_calls and beside,
                    parallel_calls=traits.parallel_calls and parallel,
                )
                return FoundToolParser(parser, seen, exact)
    return None


def _may_read(parser: ToolCallParser, shown: RenderedTurn) -> bool:
    return any(start in shown.text for start, _ in parser.markers) or bool(
        parser.begins_call(shown.text.lstrip())
    )


def _may_have_written(parser: ReasoningParser, shown: RenderedTurn) -> bool:
    if isinstance(parser, AnswerTagsParser) and parser.answer[0] not in shown.text:
        return False
    return any(marker in shown.prompt + shown.text for pair in parser.markers for marker in pair)


def _ordered(parsers: tuple[P, ...], likely: str) -> list[P]:
    return sorted(parsers, key=lambda parser: parser.parser_id != likely)


@cache
def _tool_parsers() -> tuple[ToolCallParser, ...]:
    own = TOOL_PARSERS.keys() - FURTHER_NAMES.keys() - {"null"}
    return tuple(make_tool_parser(parser_id) for parser_id in TOOL_PARSERS if parser_id in own)


@cache
def _reasoning_parsers() -> tuple[ReasoningParser, ...]:
    return tuple(make_reasoning_parser(parser_id) for parser_id in REASONING_PARSERS if parser_id != "null")


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _says(*calls: ToolCall, text: str = "") -> Message:
    return Message("assistant", (TextPart(text),) if text else (), tool_calls=calls)


def _call(number: int, **arguments: Any) -> ToolCall:
    name = f"zqtool_{number}"
    return ToolCall(f"functions.{name}:{number - 1}", name, json.dumps(arguments))  # Kimi reads names in ids.


_NO_CALLS = NullToolParser()
_REASONING = Message("assistant", (TextPart("zqanswer"),), reasoning="zqthought")
_DEPTH = {"zqinner": ["zqone", 2, True], "zqother": {"zqlast": 1.5}}
_BOTH = (_call(1, zqkey="zq value, two", zqnumber=3, zqdepth=_DEPTH), _call(2, zqkey="zqother"))
_NESTED = tuple(_says(*calls, text=text) for calls in (_BOTH, _BOTH[:1]) for text in ("zqbeside", ""))
_FLAT = (_says(_BOTH[1], text="zqbeside"), _says(_BOTH[1]))
_PROPERTIES = {"zqkey": {"type": "string"}, "zqnumber": {"type": "integer"}, "zqdepth": {"type": "object"}}
TOOLS = tuple(
    Tool(
        f"zqtool_{number}", "zqpurpose", {"type": "object", "properties": _PROPERTIES, "required": ["zqkey"]}
    )
    for number in (1, 2)
)
"""Tools of the probe's calls."""


_BOUNDARIES = " \n\t>]▷"  # Characters that end a marker, so that the text behind it starts cleanly

_REASONING_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"enable_thinking": True, "thinking": True},
    {"enable_thinking": False, "thinking": False},
)


@attrs.frozen
class RenderedTurn:
    """An assistant turn as a template renders it. `text`: text of the turn, up to the token that ends it."""

    prompt: str
    text: str


class RenderedTurns:
    """Renders single turns with a model's own template. `tokenizer`: tokenizer with the template;
    `stop_texts`: texts of the tokens that end a turn.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        traits: TemplateTraits,
        stop_texts: Collection[str],
        tools: tuple[Tool, ...],
    ) -> None:
        self._tokenizer = tokenizer
        self._traits = traits
        self._stop_texts = tuple(stop_texts)
        self._tools = [as_openai_tool(tool) for tool in tools] if traits.tools else traits.without_tools
        self._marker = ControlTokenMarker(tokenizer.control_tokens)

    def show(self, turn: Message) -> RenderedTurn | None:
        """Return the turn as the template renders it; None if part of its text or calls is missing."""
        words = [turn.text, *(call.name for call in turn.tool_calls)]
        results = [_result(call) for call in turn.tool_calls]
        endings = ([], results, [USER]) if results else ([], [USER])
        for ending in endings:
            rendered = self._render([USER, turn, *ending], prompts=False)
            if rendered is not None and all(word in rendered for word in words):
                shown = self._cut(rendered, whole=not ending)
                if shown is not None and all(word in shown.text for word in words):
                    return shown
        return None

    def description(self) -> str:
        return (self._render([USER]) or "") if self._tools else ""

    def _render(self, messages: list[Message], *, prompts: bool = True, **options: Any) -> str | None:
        """Return a rendered conversation; None if the template refuses it. `prompts`: True to end with the
        start of the assistant's next turn.
        """
        converter = MessageConverter(self._traits, NullToolParser(), self._marker)
        try:
            return self._tokenizer.render(
                converter.convert(messages), tools=self._tools, add_generation_prompt=prompts, options=options
            )
        except TemplateLimitError as error:
            raise template_unusable(self._tokenizer.folder, error) from error
        except Exception:  # A refusal is a valid result.
            return None

    def _cut(self, rendered: str, whole: bool) -> RenderedTurn | None:
        """Return the text behind the prompt, up to the first token that ends a turn. `whole`: True if nothing
        follows the turn, so that its end need not be found.
        """
        behind_user = rendered.find(USER.text) + len(USER.text)
        skipped = (_skip(opening, rendered, behind_user) for opening in self._openings)
        start = max(skipped, default=behind_user)
        ends = [at for text in self._stop_texts if (at := rendered.find(text, start)) >= 0]
        if ends:
            return RenderedTurn(rendered[:start], rendered[start : min(ends)])
        if not whole:
            return None
        turn = rendered[start:].rstrip().removesuffix(self._answered[1].strip())
        return RenderedTurn(rendered[:start], turn)

    @cached_property
    def _openings(self) -> list[str]:
        """Texts between a user message and the assistant's output, with and without reasoning."""
        rendered = [self._render([USER], **options) for options in _REASONING_OPTIONS]
        openings = [text[text.rfind(USER.text) + len(USER.text) :] for text in rendered if text is not None]
        return openings if any(openings) else [self._answered[0].partition(USER.text)[2]]

    @cached_property
    def _answered(self) -> tuple[str, str]:
        """Texts that the template writes before and after an answer."""
        rendered = self._render([USER, ANSWER], prompts=False) or ""
        before, _, behind = rendered.rpartition(ANSWER.text)
        return before, behind


def _skip(opening: str, rendered: str, position: int) -> int:
    """Return the end of the prefix that `rendered` shares with a turn's opening, apart from white space.

    If the two differ, the prefix ends behind a marker.
    """
    at, boundary = 0, position
    while at < len(opening) and position < len(rendered):
        if opening[at] == rendered[position]:
            at, position = at + 1, position + 1
        elif rendered[position].isspace():
            position += 1
        elif opening[at].isspace():
            at += 1
        else:
            return boundary
        if rendered[position - 1] in _BOUNDARIES:
            boundary = position
    return position if at == len(opening) else boundary


def _result(call: ToolCall) -> Message:
    return Message("tool", (TextPart("zqresult"),), tool_call_id=call.id)


USER = Message("user", (TextPart("zquser"),))  # User message that the turns answer

ANSWER = Message("assistant", (TextPart("zqanswer"),))
