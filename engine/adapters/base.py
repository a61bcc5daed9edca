"""What every family's adapter does: a conversation in, tokens out; text in, deltas out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import attrs

from greenroom.engine.adapters.chat_template import TemplateTraits, probe_template
from greenroom.engine.adapters.checkpoints import system_end, turn_ends
from greenroom.engine.adapters.constraints import Constraints
from greenroom.engine.adapters.context_limits import (
    RAW_MAX_TOKENS,
    check_prompt_length,
    check_text_length,
    refuse_unknown_tokens,
    room_left,
)
from greenroom.engine.adapters.parameter_defaults import configured_parameters, recommended_parameters
from greenroom.engine.adapters.prompt import PromptWriter
from greenroom.engine.adapters.tool_prompt import FALLBACK_FORMAT
from greenroom.engine.parsers.answer_or_calls import AnswerOrCalls
from greenroom.engine.parsers.contract import Release, ThinkingParser, ToolCallParser
from greenroom.engine.parsers.null import NullThinkingParser
from greenroom.engine.parsers.registry import tool_parser as registered_tool_parser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.engine.tokenizer.token_names import TokenNames
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, Detokenizer
from greenroom.schemas.capabilities import CapabilityRecord, Family
from greenroom.schemas.events import ReasoningDelta, TextDelta, Token, ToolCallDelta
from greenroom.schemas.generation import GenerationParameters, resolve
from greenroom.schemas.messages import ToolCall
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.problems import invalid
from greenroom.schemas.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.grammar.matcher import Matcher

_TURN_ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
)
"""Tokens that end a turn in whichever vocabulary has them, declared as such or not."""


@attrs.frozen
class Completion:
    """A whole answer, read.

    Args:
        stopped: The stop string that ended it, if one did.
    """

    text: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    stopped: str | None


class Adapter:
    """Speaks for one loaded model: made once, dies with it, and keeps nothing between requests.

    What a template can do is found by trying it when the adapter is made; families only say what no
    template shows.

    Args:
        record: What is known of the model.
        tokenizer: The copy that belongs to the thread on which this adapter is used.
        settings: `max_context`, `tool_injection` and the operator's generation parameters matter here.
        tool_parser: Format of the model's calls.
        thinking_parser: Format of its thoughts.

    Attributes:
        context: Tokens of prompt and answer together.
        stop_token_ids: Tokens that end a turn.
        default_overrides: Parameters that the model's makers recommend.
        traits: What the chat template does; None if there is no template.
        native_tools: The template describes tools itself.
    """

    family: ClassVar[Family] = "default"
    default_tool_parser: ClassVar[str] = "null"
    default_thinking_parser: ClassVar[str] = "null"
    turn_ends: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        record: CapabilityRecord,
        tokenizer: ChatTokenizer,
        settings: Settings,
        tool_parser: ToolCallParser,
        thinking_parser: ThinkingParser,
    ) -> None:
        self.record = record
        self.tokenizer = tokenizer
        self.thinking_parser = thinking_parser
        self.context = min(record.context, settings.max_context or record.context)
        self.traits: TemplateTraits | None = (
            probe_template(tokenizer) if tokenizer.has_chat_template else None
        )
        seen = self.traits is not None and self.traits.tools
        self.native_tools = seen if record.native_tools is None else record.native_tools
        self.tool_parser = tool_parser = self._fit_for_tools(tool_parser, settings)
        self.default_overrides = recommended_parameters(tokenizer)
        self.stop_token_ids = self._stop_token_ids()
        self._configured = configured_parameters(settings)
        self._token_names = TokenNames(tokenizer.wrapped)
        self._constraints = Constraints(tokenizer, self.stop_token_ids, tool_parser, thinking_parser)
        self._prompts = PromptWriter(
            tokenizer,
            self.traits,
            tool_parser,
            thinking_parser,
            native_tools=self.native_tools,
            tool_injection=settings.tool_injection,
        )

    def prepare_input(self, request: InferenceRequest) -> PreparedInput:
        """Tokenize a request, resolve its parameters, and check both against the model.

        Raises:
            ProblemError: 400 for whatever the request or the model's template cannot do.
        """
        parameters = resolve(request.overrides, self._configured, self.default_overrides)
        if isinstance(request.input, RawInput):
            tokens = self._raw_tokens(request.input)
            prepared = self._prepared(tokens, parameters, RAW_MAX_TOKENS, parse=False)
            return _held(prepared, self._constraints.matcher(request, parameters))
        return self._prepare_chat(request, request.input, parameters)

    def new_stream_processor(
        self, prepared: PreparedInput, new_call_id: Callable[[], str], index: int = 0
    ) -> StreamProcessor:
        """The reader of one choice's text."""
        tools, thoughts = self.tool_parser, self.thinking_parser
        release: Release = "validated"
        matcher: Matcher | None = prepared.matcher
        if matcher is not None and matcher.holds_calls:
            release = "immediate"
        if matcher is not None and matcher.holds_answer:
            tools = AnswerOrCalls(tools)
            thoughts = thoughts if matcher.thinks else NullThinkingParser()
        return StreamProcessor(tools, thoughts, prepared, new_call_id, index=index, release=release)

    def new_detokenizer(self, prepared: PreparedInput) -> Detokenizer:
        """The detokenizer of one choice: a free answer loses its leading space, any other text is kept."""
        held = prepared.matcher is not None and prepared.matcher.holds_answer
        return self.tokenizer.new_detokenizer(prepared.tokens if held or not prepared.parse else ())

    def token(self, ident: int) -> Token:
        """One token as clients see it in log-probabilities."""
        return self._token_names(ident)

    def process_complete(
        self, text: str, prepared: PreparedInput, new_call_id: Callable[[], str]
    ) -> Completion:
        """Read a whole answer; the same road as a stream's."""
        processor = self.new_stream_processor(prepared, new_call_id)
        texts, thoughts, calls = list[str](), list[str](), dict[int, ToolCall]()
        for delta in [*processor.feed(text), *processor.finish()]:
            match delta:
                case TextDelta():
                    texts.append(delta.text)
                case ReasoningDelta():
                    thoughts.append(delta.text)
                case ToolCallDelta():
                    call = calls.get(delta.call) or ToolCall(delta.id or "", delta.name or "", "")
                    calls[delta.call] = attrs.evolve(call, arguments=call.arguments + delta.arguments)
        reasoning = "".join(thoughts) if thoughts else None
        return Completion("".join(texts), reasoning, tuple(calls.values()), processor.stopped)

    def _fit_for_tools(self, parser: ToolCallParser, settings: Settings) -> ToolCallParser:
        """The parser, unless tools can be offered and it cannot read what the model will be told to write."""
        if self.native_tools:
            unfit = parser.parser_id == "null"
        else:
            unfit = settings.tool_injection and parser.render("name", "{}") is None
        return registered_tool_parser(FALLBACK_FORMAT) if unfit else parser

    def _prepare_chat(
        self, request: InferenceRequest, chat: ChatInput, parameters: GenerationParameters
    ) -> PreparedInput:
        characters = sum(len(part.text) for message in chat.messages for part in message.content)
        check_text_length(characters, self.tokenizer, self.context)
        prompt = self._prompts.write(chat)
        check_prompt_length(prompt.text, self.tokenizer, self.context)
        tokens = self.tokenizer.encode_rendered(prompt.text)
        if not tokens:
            raise invalid("The conversation is empty: there is nothing to answer.", "messages")
        prepared = self._prepared(tokens, parameters, self.context // 2, parse=True)
        tools = chat.tool_choice.callable(prompt.tools)
        prepared = attrs.evolve(prepared, starts_in_thinking=prompt.opens_thought, tools=tools)
        if system := system_end(self.tokenizer, self.stop_token_ids, chat, prompt.text, tokens):
            prepared = attrs.evolve(prepared, checkpoints=tuple(sorted({system, *prepared.checkpoints})))
        matcher = self._constraints.matcher(request, parameters, opens_thought=prompt.opens_thought)
        return _held(prepared, matcher)

    def _raw_tokens(self, raw: RawInput) -> list[int]:
        if not raw.prompt:
            raise invalid("`prompt` is empty: there is nothing to continue.", "prompt")
        if isinstance(raw.prompt, str):
            check_prompt_length(raw.prompt, self.tokenizer, self.context)
            return self.tokenizer.encode_prompt(raw.prompt)
        most = self.tokenizer.vocab_size
        for index, ident in enumerate(raw.prompt):
            if isinstance(ident, bool) or not isinstance(ident, int) or not 0 <= ident < most:
                field = f"prompt[{index}]"
                raise invalid(f"`{field}` is no token of this model: ids go from 0 to {most - 1}.", field)
        return list(raw.prompt)

    def _prepared(
        self, tokens: list[int], parameters: GenerationParameters, default_length: int, *, parse: bool
    ) -> PreparedInput:
        room = room_left(tokens, self.context)
        refuse_unknown_tokens(parameters.logit_bias, self.tokenizer)
        length = parameters.max_tokens or max(1, default_length)
        return PreparedInput(
            tokens=tuple(tokens),
            stop_token_ids=self.stop_token_ids | frozenset(parameters.stop_token_ids),
            max_tokens=min(length, room),
            parameters=parameters,
            stop=parameters.stop,
            parse=parse,
            checkpoints=turn_ends(tokens, self.stop_token_ids),
        )

    def _stop_token_ids(self) -> frozenset[int]:
        added = self.tokenizer.added_tokens
        ends = {added[token] for token in (*_TURN_ENDS, *self.turn_ends) if token in added}
        return self.tokenizer.eos_token_ids | ends


def _held(prepared: PreparedInput, matcher: Matcher | None) -> PreparedInput:
    """The input with what holds its answer, which no stop string may then cut short."""
    if matcher is None:
        return prepared
    stop = () if matcher.holds_answer else prepared.stop
    return attrs.evolve(prepared, matcher=matcher, stop=stop)
