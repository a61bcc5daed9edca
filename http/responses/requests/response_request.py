"""Parsing of `POST /v1/responses` and its `input_tokens` to protocol-independent requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from greenroom.http.answering.requests.request_parameters import (
    parse_model_key,
    parse_truncation,
    parse_verbosity,
)
from greenroom.http.answering.tools.tool_choice import allows_parallel_calls
from greenroom.http.responses.items.conversation import Conversation
from greenroom.http.responses.requests.parameters import parse_response_parameters
from greenroom.http.responses.requests.text_format import parse_text_format
from greenroom.http.responses.tools.tool_choice import parse_tool_choice
from greenroom.http.responses.tools.tools import parse_tools
from greenroom.schemas.messages.messages import JsonObject, Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.messages.thinking import EFFORTS, Thinking, effort_named
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.responses.items import CompactionItem, Item, ReferenceItem
from greenroom.schemas.responses.requests import PromptRequest, ReasoningParam

_NO_EFFORT = "none"
_PRESERVED = {"current_turn": False, "all_turns": True}


@attrs.frozen
class AskedResponse:
    """A parsed request, whose history may still have to be read from the store.

    Args:
        items: The request's own items.
        field: Name of the member with the items.
        previous: Id of the previous response, if any; a turn of `conversation`, if that is named too.
        conversation: Id of the conversation that the response belongs to, if any.
        text_format: The text format, as the response repeats it.
    """

    items: tuple[Item, ...]
    field: str
    previous: str | None
    conversation: str | None
    text_format: JsonObject
    _instructions: str | None
    _template: InferenceRequest
    _chat: ChatInput

    @property
    def has_history(self) -> bool:
        """True if the request continues a stored response or conversation."""
        return self.previous is not None or self.conversation is not None

    @property
    def may_be_cut(self) -> bool:
        """True if the oldest turns are dropped from a conversation that is too long."""
        return self._template.overflow == "drop_oldest"

    @property
    def stands_alone(self) -> bool:
        """True if the request needs nothing from the store."""
        elsewhere = (ReferenceItem, CompactionItem)
        return not self.has_history and not any(isinstance(item.param, elsewhere) for item in self.items)

    @property
    def history_field(self) -> str:
        """Name of the member that refers to the history."""
        return "conversation" if self.previous is None else "previous_response_id"

    @property
    def parameters(self) -> dict[str, object]:
        """The generation parameters of the request."""
        return dict(self._template.overrides)

    def request(
        self,
        history: Sequence[Item] = (),
        items: Sequence[Item] | None = None,
        proceed: Callable[[], None] | None = None,
        system_prompt: str | None = None,
    ) -> InferenceRequest:
        """Return the protocol-independent request.

        Args:
            history: Items of earlier turns.
            items: The request's own items with references resolved; None if there are no references.
            proceed: See `Conversation`.
            system_prompt: See `ChatInput`.

        Raises:
            ProblemError: 400 that names the field, 404 for an item that is not stored here.
        """
        conversation = Conversation(proceed=proceed)
        conversation.read(history, self.history_field)
        conversation.read(self.items if items is None else items, self.field)
        system = (Message("system", (TextPart(self._instructions),)),) if self._instructions else ()
        messages = (*system, *conversation.messages())
        known = {tool.name for tool in self._chat.tools}
        joined = (
            attrs.evolve(tool, described=False) for tool in conversation.tools if tool.name not in known
        )
        tools = (*self._chat.tools, *joined)
        chat = attrs.evolve(self._chat, messages=messages, tools=tools, system_prompt=system_prompt)
        return attrs.evolve(self._template, input=chat)


def parse_response_request(
    wire: PromptRequest, body: JsonObject, request_id: str, client: str = ""
) -> AskedResponse:
    """Return the parsed request.

    Args:
        wire: `body` in structured form.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    response_format, text_format = parse_text_format(wire)
    parameters = parse_response_parameters(wire, body)
    choice = parse_tool_choice(wire.tool_choice)
    chat = ChatInput(
        (),
        parse_tools(wire.tools or ()),
        choice,
        parallel_tool_calls=allows_parallel_calls(wire.parallel_tool_calls, choice),
        thinking=_thinking(wire.reasoning or ReasoningParam()),
        verbosity=parse_verbosity(wire.text and wire.text.verbosity, "text.verbosity"),
    )
    key = parse_model_key("default" if wire.model is None else wire.model)
    previous, conversation = _kept(wire)
    kept = previous is not None or conversation is not None
    # A stored history grows without the client's notice, so it is truncated by default.
    overflow = parse_truncation("auto" if kept and wire.truncation is None else wire.truncation)
    template = InferenceRequest(
        request_id, key, chat, parameters, client, response_format=response_format, overflow=overflow
    )
    field = "input" if wire.messages is None else "messages"
    items = _items(wire, field, needed=not kept)
    return AskedResponse(items, field, previous, conversation, text_format, wire.instructions, template, chat)


def _kept(wire: PromptRequest) -> tuple[str | None, str | None]:
    """Return the ids of the previous response and of the conversation."""
    if wire.conversation is not None and wire.conversation_id is not None:
        detail = "`conversation` and `conversation_id` are two names for one thing."
        raise invalid(detail, "conversation_id")
    conversation = wire.conversation.id if wire.conversation else wire.conversation_id
    return wire.previous_response_id, conversation


def _items(wire: PromptRequest, field: str, *, needed: bool) -> tuple[Item, ...]:
    if wire.input is not None and wire.messages is not None:
        raise invalid("`input` and `messages` are two names for one thing.", "messages")
    given = wire.messages if wire.input is None else wire.input
    if given is None and needed:
        raise missing("input")
    items = given.items if given is not None else ()
    if not items and needed:
        raise invalid(f"`{field}` must hold at least one item.", field)
    return items


def _thinking(asked: ReasoningParam) -> Thinking:
    preserved = _PRESERVED.get(asked.context or "auto")
    if asked.summary is not None and asked.generate_summary is not None:
        detail = "`reasoning.generate_summary` is the old name of `reasoning.summary`: send one of them."
        raise invalid(detail, "reasoning.generate_summary")
    if asked.effort is None:
        return Thinking(None, None, preserved)
    if asked.effort == _NO_EFFORT:
        return Thinking(False, None, preserved)
    effort = effort_named(asked.effort)
    if effort is None:
        known = ", ".join(map(repr, (_NO_EFFORT, *EFFORTS)))
        raise invalid(f"`reasoning.effort` must be one of {known}.", "reasoning.effort")
    return Thinking(True, effort, preserved)
