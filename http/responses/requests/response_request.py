"""A request of the Responses API: as the client sent it, and with the history that it continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from greenroom.http.responses.items.conversation import Conversation
from greenroom.http.responses.items.item_bodies import stored_items
from greenroom.http.responses.output.response_formatter import ResponseFormatter
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.responses.items import CompactionItem, Item, ItemReference, ResolvedItem
from greenroom.schemas.stored import StoredItem, Turns

_STORED = (ItemReference, CompactionItem)
"""Items whose content is read from the store, or decrypted with its key."""
_NO_TURNS = Turns(())


@attrs.frozen
class RequestWithHistory:
    """A request with its whole conversation.

    Args:
        request: Protocol-independent request.
        items: The request's own items, with references resolved.
        turns: Earlier turns, as they were read.
        history: Items of earlier turns, as far as the model reads them.
        stored_input: Stored form of the request's own items; empty if later requests cannot continue it.
    """

    request: InferenceRequest
    items: tuple[Item, ...]
    turns: Turns = _NO_TURNS
    history: tuple[Item, ...] = ()
    stored_input: tuple[StoredItem, ...] = ()


@attrs.frozen(kw_only=True)
class ParsedResponseRequest:
    """A client's request, whose history may still have to be read from the store.

    Args:
        items: The request's own items.
        field: Name of the member with the items.
        previous: Id of the previous response, if any; a turn of `conversation`, if that is named too.
        conversation: Id of the conversation that the response belongs to, if any.
        instructions: The request's instructions, if any.
        template: The protocol-independent request, still without messages.
        chat: Its chat input, still without messages.
        formatter: Formatter of the response; None if only the prompt is wanted.
        keeps_input: True if later requests may continue this one, so that its items are kept.
        self_contained: The complete request if it needs nothing from the store, else None.
    """

    items: tuple[Item, ...]
    field: str
    previous: str | None
    conversation: str | None
    _instructions: str | None
    _template: InferenceRequest
    _chat: ChatInput
    _formatter: ResponseFormatter | None = None
    keeps_input: bool = False
    self_contained: RequestWithHistory | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Complete the request, on the thread that parses it, if it needs nothing from the store."""
        elsewhere = self.has_history or any(isinstance(item.param, _STORED) for item in self.items)
        object.__setattr__(self, "self_contained", None if elsewhere else self.with_history(self.items))

    @property
    def formatter(self) -> ResponseFormatter:
        assert self._formatter is not None
        return self._formatter

    @property
    def stored(self) -> bool:
        return bool(self.formatter.echo.members["store"])

    @property
    def background(self) -> bool:
        return bool(self.formatter.echo.members["background"])

    @property
    def has_history(self) -> bool:
        """True if the request continues a stored response or conversation."""
        return self.previous is not None or self.conversation is not None

    @property
    def may_be_cut(self) -> bool:
        """True if the oldest turns are dropped from a conversation that is too long."""
        return self._template.overflow == "drop_oldest"

    @property
    def history_field(self) -> str:
        """Name of the member that refers to the history."""
        return "conversation" if self.previous is None else "previous_response_id"

    def with_history(
        self,
        items: tuple[Item, ...],
        turns: Turns = _NO_TURNS,
        history: Sequence[Item] = (),
        proceed: Callable[[], None] | None = None,
    ) -> RequestWithHistory:
        """Return the complete request. May take long if it is large.

        Args:
            items: The request's own items, with references resolved.
            turns: See `RequestWithHistory`.
            history: See `RequestWithHistory`.
            proceed: See `Conversation`.

        Raises:
            ProblemError: 400 that names the field, 404 for an item that is not stored here.
        """
        conversation = Conversation(proceed=proceed)
        conversation.read(history, self.history_field)
        conversation.read(items, self.field)
        system = (Message("system", (TextPart(self._instructions),)),) if self._instructions else ()
        messages = (*system, *conversation.messages())
        known = {tool.name for tool in self._chat.tools}
        joined = (
            attrs.evolve(tool, described=False) for tool in conversation.tools if tool.name not in known
        )
        tools = (*self._chat.tools, *joined)
        chat = attrs.evolve(self._chat, messages=messages, tools=tools, system_prompt=turns.system_prompt)
        request = attrs.evolve(self._template, input=chat)
        stored_input = self._stored_input(items) if self.keeps_input else ()
        return RequestWithHistory(request, items, turns, tuple(history), stored_input)

    def _stored_input(self, items: Sequence[Item]) -> tuple[StoredItem, ...]:
        """Return items in their stored form, without those that the history already has."""
        stem = self.formatter.answer_id.removeprefix("resp_")
        new = [item.raw for item in items if item.param != ResolvedItem(())]
        return stored_items(new, lambda prefix, index: f"{prefix}_{stem}_in{index}")
