"""Tokenization of conversations: complete, or without their oldest turns if the client allows it."""

from __future__ import annotations

import functools
import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import attrs

from greenroom.engine.adapters.context_limits import check_text_length, collect_tokens, is_too_long
from greenroom.engine.adapters.conversation import RenderedImage
from greenroom.engine.adapters.message_normalization import add_tool_names
from greenroom.engine.adapters.placeholder_expander import PlaceholderExpander
from greenroom.engine.adapters.prompt_renderer import PromptRenderer, RenderedPrompt, SystemMessages
from greenroom.engine.adapters.reasoning_switches import PromptChanges
from greenroom.engine.tokenizer.control_tokens import unmark
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.messages import ContentPart, ImagePart, Message, TextPart, Tool
from greenroom.schemas.messages.prepared_input import OutlinedPart, PreparedImage, PromptOutline
from greenroom.schemas.messages.requests import ChatInput, Overflow
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.model_protocol import PromptContents

_STEP = 4
"""Divisor of the context length: an overlong conversation loses this fraction, so its cut stays a while."""

_SAMPLE = """\
The quick brown fox jumps over the lazy dog, and then it does the same again.
    for index, line in enumerate(lines):
        if line.startswith("def "):
            print(f"{index:4d} {line}")
"""


@attrs.frozen
class EncodedConversation:
    """A tokenized conversation.

    Args:
        tokens: Token ids of the prompt.
        dropped_messages: Number of oldest messages that were dropped.
        system_prompt: The operator's system prompt used, empty for none; None if the conversation has its
            own.
    """

    chat: ChatInput
    prompt: RenderedPrompt
    tokens: list[int]
    dropped_messages: int = 0
    system_prompt: str | None = None


class ConversationPrompts:
    """Tokenizes the conversations of one model.

    Args:
        tokenizer: Tokenizer of the model.
        context_length: Limit on prompt and answer together, in tokens.
        images: Writer of image tokens; None for text models.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        renderer: PromptRenderer,
        context_length: int,
        system_prompt: str = "",
        images: PlaceholderExpander | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._renderer = renderer
        self._context_length = context_length
        self._system_messages = SystemMessages(system_prompt)
        self._images = images

    def encode(
        self, chat: ChatInput, changes: PromptChanges, overflow: Overflow, max_tokens: int | None
    ) -> EncodedConversation:
        """Return a conversation as token ids that fit the context.

        Args:
            max_tokens: Limit on the answer in tokens. `drop_oldest` leaves that many if possible, but no more
                than a quarter of the context.

        Raises:
            ProblemError: 400 for anything that the request or the template cannot do.
        """
        default = self._system_messages.default_of(chat)
        encoded = self._encode_fitting(self._system_messages.complete(chat), changes, overflow, max_tokens)
        return attrs.evolve(encoded, system_prompt=default)

    def _encode_fitting(
        self, chat: ChatInput, changes: PromptChanges, overflow: Overflow, max_tokens: int | None
    ) -> EncodedConversation:
        if overflow == "refuse":
            return self._encode(chat, changes)
        length = self._context_length
        room = length - max(1, min(max_tokens or length, length // 4))
        fitting = None if self._is_too_long(chat.messages) else self._encode_within(chat, changes, room)
        return fitting or self._encode_rest(chat, changes, room)

    def prepared_images(self, encoded: EncodedConversation) -> tuple[PreparedImage, ...]:
        if self._images is None:
            return ()
        images = self._images.images_in_order(encoded.prompt, encoded.chat)
        return self._images.spans(images, encoded.tokens)

    def shown_text(self, encoded: EncodedConversation) -> str:
        text = encoded.prompt.text
        return text if self._images is None else self._images.shown_text(text)

    def _encode_rest(self, chat: ChatInput, changes: PromptChanges, room: int) -> EncodedConversation:
        messages = chat.messages
        # Errors must name positions in the client's complete conversation.
        add_tool_names(messages)
        starts = turn_starts(messages)

        def attempt(start: int) -> EncodedConversation | None:
            kept = without_oldest(messages, start)
            if self._is_too_long(kept):
                return None
            encoded = self._encode_within(attrs.evolve(chat, messages=kept), changes, room)
            return encoded and attrs.evolve(encoded, dropped_messages=len(messages) - len(kept))

        coarse = starts_on_grid(messages, starts, self._step)
        fine = [start for start in starts if not coarse or start > coarse[-1]]
        fitting = first_fitting(coarse, attempt) or first_fitting(fine, attempt)
        return fitting or self._encode_last_turn(chat, changes, starts)

    def _encode_last_turn(
        self, chat: ChatInput, changes: PromptChanges, starts: list[int]
    ) -> EncodedConversation:
        """Return the last turn alone, even if it leaves too few tokens for the answer."""
        kept = without_oldest(chat.messages, starts[-1] if starts else 0)
        dropped = len(chat.messages) - len(kept)
        try:
            encoded = self._encode(attrs.evolve(chat, messages=kept), changes)
        except ProblemError as refused:
            if not dropped or refused.problem.code != "context_length_exceeded":
                raise
            detail = f"{refused.problem.detail} That is without the {dropped} messages of all earlier turns."
            raise ProblemError(attrs.evolve(refused.problem, detail=detail)) from None
        return attrs.evolve(encoded, dropped_messages=dropped)

    def _encode(self, chat: ChatInput, changes: PromptChanges) -> EncodedConversation:
        check_text_length(_characters(chat.messages), self._tokenizer, self._context_length)
        prompt = self._renderer.render(chat, changes)
        check_text_length(len(prompt.text), self._tokenizer, self._context_length)
        pieces = self._encode_prompt(prompt, chat)
        tokens = collect_tokens(pieces, len(prompt.text), self._context_length)
        return EncodedConversation(chat, prompt, tokens)

    def _encode_within(
        self, chat: ChatInput, changes: PromptChanges, room: int
    ) -> EncodedConversation | None:
        prompt = self._renderer.render(chat, changes)
        tokens: list[int] = []
        for piece in self._encode_prompt(prompt, chat):
            tokens += piece
            if len(tokens) > room:
                return None
        return EncodedConversation(chat, prompt, tokens)

    def _encode_prompt(self, prompt: RenderedPrompt, chat: ChatInput) -> Iterator[list[int]]:
        if self._images is None:
            return self._tokenizer.encode_rendered(prompt.text)
        return self._images.encode(prompt, chat)

    def _is_too_long(self, messages: Iterable[Message]) -> bool:
        return is_too_long(_characters(messages), self._tokenizer, self._context_length)

    @functools.cached_property
    def _step(self) -> int:
        """About a quarter of the context in bytes of text, estimated with this tokenizer."""
        tokens = sum(map(len, self._tokenizer.encode_rendered(_SAMPLE)))
        return max(1, self._context_length * len(_SAMPLE) // tokens // _STEP)


def _characters(messages: Iterable[Message]) -> int:
    return sum(len(message.text) for message in messages)


# Selection of the oldest turns to drop so that the rest of a conversation fits the context.
#
# A client sends its whole conversation each time. Dropping just enough would make every prompt start at
# another turn, and the prefix cache would match only the system message. So cuts lie on a grid that depends
# on the start of the conversation alone: as it grows, its cut stays until a whole step more must go.

T = TypeVar("T")

_BYTES_OF_MARKS = 32  # Estimated size of the markup around a message, in bytes
_BYTES_OF_TOKEN = 4  # Estimated size of a token in bytes of text; images have only tokens


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Return the indices of user messages where a shortened conversation may start.

    No such start separates a call from its result. The last one is the start of the last turn, which
    always stays.
    """
    last_results: dict[int, int] = {}
    callers: dict[str | None, int] = {}
    for at, message in enumerate(messages):
        callers.update((call.id, at) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id in callers:
            last_results[callers[message.tool_call_id]] = at
    starts = []
    answered_until, begun = -1, False
    for at, message in enumerate(messages):
        if message.role == "user" and begun and answered_until < at:
            starts.append(at)
        begun = begun or message.role != "system"
        answered_until = max(answered_until, last_results.get(at, -1))
    return starts


def without_oldest(messages: Sequence[Message], start: int) -> tuple[Message, ...]:
    """Return a conversation from `start` on, with the system messages before it."""
    system = (message for message in messages[:start] if message.role == "system")
    return (*system, *messages[start:])


def starts_on_grid(messages: Sequence[Message], starts: Sequence[int], step: int) -> list[int]:
    """Return the starts at which the dropped text first exceeds a multiple of `step` bytes of UTF-8."""
    on_grid = []
    dropped, due, at = 0, step, 0
    for start in starts:
        dropped += sum(_size(message) for message in messages[at:start])
        at = start
        if dropped >= due:
            on_grid.append(start)
            due = (dropped // step + 1) * step
    return on_grid


def first_fitting(starts: Sequence[int], attempt: Callable[[int], T | None]) -> T | None:
    """Return the result of `attempt` for the earliest start that fits; None if none fits.

    Searches from the end with doubling strides, then by bisection, so that no attempt is much larger than the
    result, however long the conversation is.

    Args:
        attempt: Function that returns None if the conversation does not fit from a start.
    """
    too_early, fits, found = -1, len(starts), None
    stride = 1
    while fits - too_early > 1:
        at = max(fits - stride, too_early + 1) if too_early < 0 else (too_early + fits) // 2
        result = attempt(starts[at])
        if result is None:
            too_early = at
        else:
            fits, found = at, result
            stride *= 2
    return found


def _size(message: Message) -> int:
    calls = (call.name + call.arguments for call in message.tool_calls)
    texts = (message.text, message.reasoning or "", *calls)
    images = sum(part.tokens for part in message.content if isinstance(part, RenderedImage))
    written = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return _BYTES_OF_MARKS + written + _BYTES_OF_TOKEN * images


def contents_of(
    tokens: Sequence[int], text: str | None, tokenizer: ChatTokenizer, context: int
) -> PromptContents:
    """Return the contents of a prompt.

    Args:
        tokens: Token ids of the prompt.
        text: Tokenized text with control tokens marked; None if the prompt came as token ids.
        tokenizer: Tokenizer of the model.
        context: Limit on prompt and answer together, in tokens.
    """
    shown = tokenizer.decode(tokens) if text is None else unmark(text)
    pieces = tuple(tokenizer.token_names.look_up(ident).bytes for ident in tokens)
    return PromptContents(tuple(tokens), pieces, shown, context)


_DIGEST_BYTES = 12


def outline_prompt(
    sent: Sequence[Message], rendered: Sequence[Message], tools: Iterable[Tool], dropped: int
) -> PromptOutline:
    """Return the outline of a conversation.

    Ids of calls are left out, since few templates show them and some clients change them.

    Args:
        rendered: Messages that the template renders: those of the request, or the latest of them, perhaps
            behind a system message of the operator.
        dropped: Number of oldest messages that were left out.
    """
    written = len(rendered) + dropped - len(sent)
    messages = []
    for at, message in enumerate(rendered):
        index: int | None = at - written
        if at < written:
            index = None
        elif dropped and message is not sent[at - written]:
            index = at - written + dropped
        digest, size = _digest_message(message)
        messages.append(OutlinedPart(digest, size, index, message.role))
    described = [_digest_tool(tool, index) for index, tool in enumerate(tools)]
    return PromptOutline(tuple(messages), tuple(described), dropped)


def _digest_message(message: Message) -> tuple[bytes, int]:
    hasher = blake2b(digest_size=_DIGEST_BYTES)
    size = 0
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments))
    texts = (message.role, message.name or "", message.reasoning or "", *calls)
    contents = (part.text if isinstance(part, TextPart) else _digest_media(part) for part in message.content)
    for piece in (*texts, *contents):
        data = piece if isinstance(piece, bytes) else str(piece).encode("utf-8", "surrogatepass")
        size += len(data)
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.digest(), size


def _digest_media(part: ContentPart) -> bytes:
    if isinstance(part, RenderedImage):
        digest: bytes = part.processed.digest
        return digest
    return part.digest if isinstance(part, ImagePart) else type(part).__name__.encode()


def _digest_tool(tool: Tool, index: int) -> OutlinedPart:
    data = _packed((tool.name, tool.description, tool.parameters, tool.described))
    return OutlinedPart(blake2b(data, digest_size=_DIGEST_BYTES).digest(), len(data), index)


def _packed(value: Any) -> bytes:
    try:
        return marshal.dumps(value, 2)  # later versions also depend on the objects' identities
    except ValueError:  # a program's own mapping
        return repr(value).encode("utf-8", "surrogatepass")
