"""Tokenization of conversations: complete, or without their oldest turns if the client allows it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import attrs

from greenroom.engine.adapters.conversation.message_normalization import add_tool_names
from greenroom.engine.adapters.prompts.context_limits import check_text_length, collect_tokens, is_too_long
from greenroom.engine.adapters.prompts.oldest_turns import (
    first_fitting,
    starts_on_grid,
    turn_starts,
    without_oldest,
)
from greenroom.engine.adapters.prompts.placeholder_expander import PlaceholderExpander
from greenroom.engine.adapters.prompts.prompt_renderer import PromptRenderer, RenderedPrompt
from greenroom.engine.adapters.prompts.system_messages import SystemMessages
from greenroom.engine.adapters.reasoning.switches import PromptChanges
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.messages import Message
from greenroom.schemas.messages.prepared_input import PreparedImage
from greenroom.schemas.messages.requests import ChatInput, Overflow
from greenroom.schemas.problems import ProblemError

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
        chat: Rendered part of the conversation.
        prompt: Rendered prompt.
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
        renderer: Renderer of prompts.
        context_length: Limit on prompt and answer together, in tokens.
        system_prompt: Default system prompt of conversations without one.
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
            chat: Conversation of the request.
            changes: Changes to the prompt that switch the model's reasoning.
            overflow: Handling of conversations that are too long.
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
        """Return the images of a conversation, with the positions of their tokens."""
        if self._images is None:
            return ()
        images = self._images.images_in_order(encoded.prompt, encoded.chat)
        return self._images.spans(images, encoded.tokens)

    def shown_text(self, encoded: EncodedConversation) -> str:
        """Return a conversation's text, with images as the template writes them."""
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
        """Return a tokenized conversation; None if it has more than `room` tokens."""
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
