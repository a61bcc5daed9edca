"""A model's adapter: conversations to token ids, and text to deltas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs

from greenroom.engine.adapters.context_limits import (
    DEFAULT_IMAGE_MAX_TOKENS,
    DEFAULT_RAW_MAX_TOKENS,
    check_logit_bias,
    remaining_context,
    system_checkpoint,
    turn_checkpoints,
)
from greenroom.engine.adapters.conversation import NO_MEDIA
from greenroom.engine.adapters.conversation_prompts import (
    ConversationPrompts,
    EncodedConversation,
    contents_of,
    outline_prompt,
)
from greenroom.engine.adapters.detection import ParserChoice, choose_parsers
from greenroom.engine.adapters.find_reasoning import find_switches
from greenroom.engine.adapters.image_ids import read_images
from greenroom.engine.adapters.placeholder_expander import PlaceholderExpander
from greenroom.engine.adapters.prompt_renderer import PromptRenderer
from greenroom.engine.adapters.raw_prompts import RawPrompts
from greenroom.engine.adapters.reasoning_switches import ChosenReasoning, PromptChanges, ReasoningSwitches
from greenroom.engine.adapters.request_constraints import RequestConstraints
from greenroom.engine.adapters.template_probe import probe_template, template_renderer
from greenroom.engine.catalog.families import FAMILIES, FamilyTraits
from greenroom.engine.catalog.model_files import read_optional
from greenroom.engine.formats.registry import REASONING_PARSERS, TOOL_PARSERS
from greenroom.engine.lora.files import AdapterFiles
from greenroom.engine.parsers.answer_or_calls import AnswerOrCalls
from greenroom.engine.parsers.parser import NullReasoningParser, Release
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.engine.tokenizer.control_tokens import unmark
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, Detokenizer
from greenroom.schemas.events.events import Token
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.generation import GenerationParameters, Overrides, check, resolve
from greenroom.schemas.messages.prepared_input import PreparedImage, PreparedPrompt, PromptOutline
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import ProblemError, invalid, load_failed
from greenroom.schemas.protocols.model_protocol import PromptContents
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.grammar.matcher import Matcher


class OutputAdapter:
    """Creates parsers of a model's output; keeps no state between requests.

    Output formats are detected once per load by probing the template. The result is immutable and may be
    shared, unlike the tokenizer.

    Args:
        tokenizer: Copy of the tokenizer that belongs to this adapter's thread.
        choice: Parsers of the model's calls and reasoning, and traits of its template.
    """

    def __init__(self, tokenizer: ChatTokenizer, choice: ParserChoice) -> None:
        self.tokenizer = tokenizer
        self.choice = choice
        self.tool_parser, self.reasoning_parser = choice.tool_parser, choice.reasoning_parser

    def new_stream_processor(
        self, prepared: PreparedPrompt, new_call_id: Callable[[], str], index: int = 0
    ) -> StreamProcessor:
        tools, reasoning_parser = self.tool_parser, self.reasoning_parser
        release: Release = "validated"
        matcher: Matcher | None = prepared.matcher
        if matcher is not None and matcher.constrains_calls:
            release = "immediate"
        if matcher is not None and matcher.constrains_answer:
            tools = AnswerOrCalls(tools)
            reasoning_parser = reasoning_parser if matcher.allows_reasoning else NullReasoningParser()
        return StreamProcessor(tools, reasoning_parser, prepared, new_call_id, index=index, release=release)

    def new_detokenizer(self, prepared: PreparedPrompt) -> Detokenizer:
        """Return the detokenizer of one choice; only a free answer loses a space of the vocabulary's own."""
        constrained = prepared.matcher is not None and prepared.matcher.constrains_answer
        return self.tokenizer.new_detokenizer(prepared.tokens if constrained or not prepared.parse else ())

    def token(self, ident: int) -> Token:
        return self.tokenizer.token_names.look_up(ident)


log = get_logger(__name__)


class Adapter(OutputAdapter):
    """Translates between requests and one loaded model; keeps no state between requests.

    The chat template's abilities are found by rendering with it when the adapter is made; families add only
    what no template reveals (`greenroom.engine.catalog.families`).

    Args:
        tokenizer: Copy of the tokenizer that belongs to this adapter's thread.
        settings: Settings; used are `max_context`, `tool_injection`, `explain`, `inspect` and the operator's
            generation parameters.
        choice: Parsers of the model's calls and reasoning, and traits of its template.
        stop_token_ids: Tokens that end a turn.
        known_switches: Reasoning switches of the model's family, for templates that reveal none.
        images: Writer of image placeholders into prompts; None for text models.

    Attributes:
        takes_images: True if the model takes images.
        context_length: Limit on prompt and answer together, in tokens.
        default_overrides: Generation parameters that the model's makers recommend.
        configured: Generation parameters that the operator has set.
        traits: Traits of the chat template; None if there is no template.
        reasoning: Switches of the model's reasoning.
    """

    takes_images = False

    def __init__(
        self,
        record: CapabilityRecord,
        tokenizer: ChatTokenizer,
        settings: Settings,
        choice: ParserChoice,
        stop_token_ids: frozenset[int],
        known_switches: ReasoningSwitches | None = None,
        system_prompt: str = "",
        images: PlaceholderExpander | None = None,
    ) -> None:
        super().__init__(tokenizer, choice)
        self.record = record
        self.traits = choice.traits
        self.stop_token_ids = stop_token_ids
        self.context_length = min(record.context, settings.max_context or record.context)
        self.thinking = _find_reasoning(record, tokenizer, choice, known_switches)
        self.default_overrides = recommended_parameters(tokenizer)
        self._adapter_files = AdapterFiles(settings.adapter_bytes)
        self.configured = configured_parameters(settings)
        self._constraints = RequestConstraints(
            tokenizer, stop_token_ids, choice.tool_parser, choice.reasoning_parser
        )
        self._raw_prompts = RawPrompts(tokenizer, self.context_length)
        media = images.media if images is not None else NO_MEDIA
        renderer = PromptRenderer(tokenizer, choice, tool_injection=settings.tool_injection, media=media)
        self._conversations = ConversationPrompts(
            tokenizer, renderer, self.context_length, system_prompt, images
        )
        self._image_ids = settings.images_ids == "on"
        self._explains, self._inspects = settings.explain, bool(settings.inspect or settings.log_content)

    def prepare_input(self, request: InferenceRequest) -> PreparedPrompt:
        """Tokenize a request, resolve its parameters, and check both against the model. Raises ProblemError:
        400 for anything that the request or the model's template cannot do.
        """
        parameters = self._parameters(request)
        if isinstance(request.input, RawInput):
            prepared = self._prepare_raw(request, request.input, parameters)
        else:
            prepared = self._prepare_chat(request, parameters, *self._read_chat(request))
        return self._with_adapter(request, prepared)

    def _with_adapter(self, request: InferenceRequest, prepared: PreparedPrompt) -> PreparedPrompt:
        """Return a prepared prompt with the request's LoRA adapter opened, if it names one."""
        if request.applied is None:
            return prepared
        return attrs.evolve(prepared, adapter=self._adapter_files.open(request.applied))

    def render_prompt(self, request: InferenceRequest) -> PromptContents:
        """Return the contents of a request's prompt. Raises ProblemError: 400 for anything that the request
        or the model's template cannot do.
        """
        if not isinstance(request.input, RawInput):
            return self._render_read(request, self._read_chat(request)[0])
        tokens = self._raw_prompts.encode(request.input, may_be_empty=True)
        text = request.input.prompt if isinstance(request.input.prompt, str) else None
        return contents_of(tokens, text, self.tokenizer, self.context_length)

    def _read_chat(self, request: InferenceRequest) -> tuple[ChatInput, str]:
        """Return a conversation in the form for this kind of model, and the text appended to the answer."""
        if not isinstance(request.input, ChatInput):
            raise ProblemError(wrong_kind(request.key.model, self.record.model_type, request.input))
        messages = request.input.messages
        read = read_images(messages, request.key.model, takes_images=self.takes_images, ids=self._image_ids)
        return attrs.evolve(request.input, messages=read.messages), read.appendix

    def _parameters(self, request: InferenceRequest) -> GenerationParameters:
        configured = {**self.configured, **request.defaults}
        return resolve(request.overrides, configured, self.default_overrides)

    def _render_read(self, request: InferenceRequest, chat: ChatInput) -> PromptContents:
        parameters = self._parameters(request)
        reasoning = _choose_reasoning(self.thinking, request.id, chat, parameters)
        encoded = self._conversations.encode(chat, reasoning.changes, request.overflow, parameters.max_tokens)
        text = self._conversations.shown_text(encoded)
        contents = contents_of(encoded.tokens, text, self.tokenizer, self.context_length)
        return attrs.evolve(contents, dropped_messages=encoded.dropped_messages)

    def _prepare_raw(
        self, request: InferenceRequest, raw: RawInput, parameters: GenerationParameters
    ) -> PreparedPrompt:
        tokens = self._raw_prompts.encode(raw)
        echo = self._raw_prompts.echo(raw, tokens)
        # If nothing is generated, the prompt may fill the context.
        fitting = tokens if raw.answered else tokens[: self.context_length - 1]
        most = self._answer_length(fitting, parameters, DEFAULT_RAW_MAX_TOKENS)
        most = most if raw.answered else 0
        matcher = self._constraints.new_matcher(request, parameters)
        own_stops = frozenset(parameters.stop_token_ids) | self._raw_prompts.stop_tokens(raw)
        return PreparedPrompt(
            tokens=tuple(tokens),
            stop_token_ids=self.stop_token_ids | own_stops,
            end_of_turn_ids=self.stop_token_ids,
            stop=() if _constrains(matcher) else parameters.stop,
            parse=False,
            max_tokens=most,
            parameters=attrs.evolve(parameters, max_tokens=most),
            checkpoints=turn_checkpoints(fitting, self.stop_token_ids),
            matcher=matcher,
            echo=echo,
        )

    def _prepare_chat(
        self, request: InferenceRequest, parameters: GenerationParameters, chat: ChatInput, appendix: str
    ) -> PreparedPrompt:
        """Return the prepared prompt of a conversation from which `_read_chat` has read the images."""
        reasoning = _choose_reasoning(self.thinking, request.id, chat, parameters)
        encoded = self._conversations.encode(chat, reasoning.changes, request.overflow, parameters.max_tokens)
        prompt, tokens = encoded.prompt, encoded.tokens
        if not tokens:
            raise invalid("The conversation is empty: there is nothing to answer.", "messages")
        images = self._conversations.prepared_images(encoded)
        default = self.context_length // 2
        default = min(default, DEFAULT_IMAGE_MAX_TOKENS) if images else default
        most = self._answer_length(tokens, parameters, default)
        checkpoints = turn_checkpoints(tokens, self.stop_token_ids)
        if system_end := system_checkpoint(
            self.tokenizer, self.stop_token_ids, encoded.chat, prompt.text, tokens
        ):
            checkpoints = tuple(sorted({system_end, *checkpoints}))
        matcher = self._constraints.new_matcher(
            request, parameters, opens_reasoning=prompt.opens_reasoning, may_reason=reasoning.may_reason
        )
        is_constrained = _constrains(matcher)
        notices = filter(None, (reasoning.notice, "" if matcher is None else matcher.constraint.notice))
        return PreparedPrompt(
            tokens=tuple(tokens),
            stop_token_ids=self.stop_token_ids | frozenset(parameters.stop_token_ids),
            end_of_turn_ids=self.stop_token_ids,
            control_tokens={} if is_constrained else self.tokenizer.controls_by_id,
            starts_in_reasoning=prompt.opens_reasoning,
            tools=chat.tool_choice.callable(prompt.tools),
            stop=() if is_constrained else parameters.stop,
            max_tokens=most,
            parameters=attrs.evolve(self._about(images, request, parameters), max_tokens=most),
            checkpoints=checkpoints,
            matcher=matcher,
            dropped_messages=encoded.dropped_messages,
            images=images,
            appendix="" if is_constrained else appendix,
            system_prompt=encoded.system_prompt,
            notice=" ".join(notices),
            predicted=_count(
                self.tokenizer.encode_prompt(chat.prediction, begins=False), self.context_length
            ),
            rendered=unmark(self._conversations.shown_text(encoded)) if self._inspects else "",
            outline=self._outline(chat, encoded),
        )

    def _about(
        self, images: tuple[PreparedImage, ...], request: InferenceRequest, parameters: GenerationParameters
    ) -> GenerationParameters:
        """Return the parameters of an answer about images; the parameters as they are for text."""
        return parameters

    def _outline(self, chat: ChatInput, encoded: EncodedConversation) -> PromptOutline | None:
        if not self._explains:
            return None
        dropped = encoded.dropped_messages
        return outline_prompt(chat.messages, encoded.chat.messages, encoded.prompt.tools, dropped)

    def _answer_length(self, tokens: list[int], parameters: GenerationParameters, default: int) -> int:
        """Return the largest number of tokens that may follow a prompt."""
        remaining = remaining_context(tokens, self.context_length)
        check_logit_bias(parameters.logit_bias, self.tokenizer)
        return min(parameters.max_tokens or max(1, default), remaining)


def _count(pieces: Iterable[list[int]], most: int) -> int:
    """Return the number of tokens; no text is read beyond `most`."""
    counted = 0
    for piece in pieces:
        counted += len(piece)
        if counted >= most:
            return most
    return counted


def _find_reasoning(
    record: CapabilityRecord, tokenizer: ChatTokenizer, choice: ParserChoice, known: ReasoningSwitches | None
) -> ReasoningSwitches:
    if choice.traits is None:
        return ReasoningSwitches()
    found = find_switches(
        template_renderer(tokenizer, choice.traits),
        tokenizer.chat_template,
        choice.reasoning_parser.markers,
        takes_system=choice.traits.system,
        known=known,
    )
    fails = record.probed is not None and record.probed.supports_toggle is False
    return attrs.evolve(found, off=None) if fails else found


def _choose_reasoning(
    reasoning: ReasoningSwitches, request_id: str, chat: ChatInput, parameters: GenerationParameters
) -> ChosenReasoning:
    chosen = reasoning.choose(chat.thinking, parameters.thinking_budget, chat.template_options)
    if not chosen.honoured:
        asked = attrs.asdict(chat.thinking)
        log.info("thinking not switched", request_id=request_id, reason=chosen.notice, **asked)
    return chosen


def _constrains(matcher: Matcher | None) -> bool:
    """Return whether a grammar holds the whole answer, which then has no stop strings."""
    return matcher is not None and matcher.constrains_answer


def make_adapter(
    record: CapabilityRecord,
    tokenizer: ChatTokenizer,
    settings: Settings,
    system_prompt: str = "",
    make: Callable[..., Adapter] = Adapter,
) -> Adapter:
    """Return the adapter of a model, for the thread that owns the tokenizer.

    Args:
        make: Adapter class; it takes the arguments of a text model's adapter.

    Raises:
        ProblemError: 503 `load_failed` if the record names an unknown parser.
    """
    family = FAMILIES.get(record.family, FAMILIES["default"])
    stop_token_ids = find_stop_token_ids(tokenizer, family.end_of_turn_tokens)
    stop_texts = [text for text, ident in tokenizer.added_tokens.items() if ident in stop_token_ids]
    traits = probe_template(tokenizer) if tokenizer.has_chat_template else None
    record = _without_forgotten_parsers(record)
    try:
        choice = choose_parsers(record, settings, tokenizer, traits, family, stop_texts)
    except LookupError as error:
        detail = f"its capability record names an unknown parser ({error})"
        raise ProblemError(load_failed(tokenizer.folder.name, detail)) from error
    switches = _known_switches(family)
    return make(record, tokenizer, settings, choice, stop_token_ids, switches, system_prompt)


def _without_forgotten_parsers(record: CapabilityRecord) -> CapabilityRecord:
    probed = record.probed
    if probed is None:
        return record
    calls, reasoning = record.tool_parser, record.reasoning_parser
    if calls == probed.tool_parser_id and calls not in TOOL_PARSERS:
        calls = None
    if reasoning == probed.thinking_parser_id and reasoning not in REASONING_PARSERS:
        reasoning = None
    return attrs.evolve(record, tool_parser=calls, reasoning_parser=reasoning)


def _known_switches(family: FamilyTraits) -> ReasoningSwitches | None:
    if family.reasoning_lines is not None:
        on, off = family.reasoning_lines
        return ReasoningSwitches(PromptChanges(system=on), PromptChanges(system=off))
    if family.reasoning_words is not None:
        on, off = family.reasoning_words
        return ReasoningSwitches(PromptChanges(user=on), PromptChanges(user=off))
    if family.empty_reasoning:
        return ReasoningSwitches(PromptChanges(), PromptChanges(prompt_end=family.empty_reasoning))
    return None


_END_OF_TURN_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|flush|>",
    "<|calls|>",
)
"""Tokens that end a turn in any vocabulary that has them, declared as such or not."""


def find_stop_token_ids(tokenizer: ChatTokenizer, of_family: tuple[str, ...]) -> frozenset[int]:
    """Return the ids of the tokens that end a turn: declared, well-known and the family's. `tokenizer`:
    tokenizer of the model; `of_family`: end-of-turn tokens of the model's family.
    """
    added = tokenizer.added_tokens
    ends = {added[token] for token in (*_END_OF_TURN_TOKENS, *of_family) if token in added}
    return tokenizer.eos_token_ids | ends


_RECOMMENDED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Parameters read from generation_config.json; the lengths in it are leftovers of training scripts."""


def recommended_parameters(tokenizer: ChatTokenizer) -> Overrides:
    """Return the recommendations in the model's generation_config.json; skip values out of range."""
    config = read_optional(tokenizer.folder / "generation_config.json")
    recommended = {}
    for name in _RECOMMENDED:
        try:
            recommended[name] = check(name, config[name])
        except (KeyError, ProblemError):
            continue
    return recommended


def configured_parameters(settings: Settings) -> Overrides:
    names = (field.name for field in attrs.fields(GenerationParameters))
    values = {name: getattr(settings, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
