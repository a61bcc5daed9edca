"""Parsing of the bodies of `POST /v1/responses`, its `input_tokens` and `compact`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from greenroom.actors.store.problems import storing_disabled
from greenroom.http.answering.request_parameters import (
    NeutralValues,
    ParameterTable,
    parse_extensions,
    parse_model_key,
    parse_parameters,
    parse_truncation,
    parse_verbosity,
)
from greenroom.http.answering.tools import allows_parallel_calls
from greenroom.http.responses.conversation import Conversation
from greenroom.http.responses.echo import make_echo
from greenroom.http.responses.item_bodies import stored_items
from greenroom.http.responses.response_stream import ResponseFormatter
from greenroom.http.responses.tools import check_tools, parse_chosen_mcp, parse_tool_choice, parse_tools
from greenroom.schemas.events.result_events import ServerCall
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import (
    EFFORTS,
    JsonObject,
    Message,
    ReasoningSettings,
    TextPart,
    ToolChoice,
    effort_named,
)
from greenroom.schemas.messages.requests import (
    ChatInput,
    InferenceRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
)
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredItem, Turns
from greenroom.schemas.wire.responses_items import CompactionItem, Item, ItemReference, McpTool, ResolvedItem
from greenroom.schemas.wire.responses_requests import LOGPROBS, PromptRequest, ReasoningParam, ResponseRequest
from greenroom.schemas.wire.wire import json_type

_NO_EFFORT = "none"
_PRESERVED = {"current_turn": False, "all_turns": True}


def parse_prompt_request(
    wire: PromptRequest, body: JsonObject, request_id: str, client: str = ""
) -> ParsedResponseRequest:
    """Return a parsed request of which only the prompt is wanted. Raises ProblemError: 400 that names the
    offending field.
    """
    return _parse(wire, body, request_id, client)


def parse_response_request(
    wire: ResponseRequest,
    body: JsonObject,
    *,
    answer_id: str,
    identity: tuple[str, str],
    settings: Settings,
    on_socket: bool = False,
) -> ParsedResponseRequest:
    """Return a parsed request for a response.

    Args:
        answer_id: The response's id, `resp_…`.
        identity: The request's id, and its client.
        on_socket: True if it came over a WebSocket, where requests may continue unstored responses.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    stored = _is_stored(wire, settings.store_responses)

    def new_formatter(parameters: Overrides, text_format: JsonObject) -> ResponseFormatter:
        used = {**_sampling_defaults(settings, wire.model or ""), **parameters}
        return ResponseFormatter(make_echo(wire, used, text_format, stored=stored), answer_id)

    return _parse(wire, body, *identity, new_formatter, keeps_input=stored or on_socket)


def _parse(
    wire: PromptRequest,
    body: JsonObject,
    request_id: str,
    client: str,
    new_formatter: Callable[[Overrides, JsonObject], ResponseFormatter] | None = None,
    *,
    keeps_input: bool = False,
) -> ParsedResponseRequest:
    response_format, text_format = parse_text_format(wire)
    parameters = parse_response_parameters(wire, body)
    choice = parse_tool_choice(wire.tool_choice)
    if choice.mode != "none":
        check_tools(wire.tools or ())
    chat = ChatInput(
        (),
        parse_tools(wire.tools or ()),
        choice,
        parallel_tool_calls=allows_parallel_calls(wire.parallel_tool_calls, choice),
        thinking=_thinking(wire.reasoning or ReasoningParam()),
        verbosity=parse_verbosity(wire.text and wire.text.verbosity, "text.verbosity"),
    )
    key = parse_model_key("default" if wire.model is None else wire.model)
    previous, conversation = _continued(wire)
    has_history = previous is not None or conversation is not None
    # A stored history grows without the client's notice, so it is truncated by default.
    overflow = parse_truncation("auto" if has_history and wire.truncation is None else wire.truncation)
    template = InferenceRequest(
        request_id,
        key,
        chat,
        parameters,
        client,
        response_format=response_format,
        overflow=overflow,
        **parse_extensions(body),
    )
    field = "input" if wire.messages is None else "messages"
    items = _items(wire, field, needed=not has_history)
    if body.get(field) == "" and not has_history:
        raise invalid(f"`{field}` is empty: there is nothing to answer.", field)
    return ParsedResponseRequest(
        items=items,
        field=field,
        previous=previous,
        conversation=conversation,
        instructions=wire.instructions,
        template=template,
        chat=chat,
        formatter=None if new_formatter is None else new_formatter(parameters, text_format),
        keeps_input=keeps_input,
        mcp=_mcp_tools(wire, choice),
        max_tool_calls=wire.max_tool_calls if isinstance(wire, ResponseRequest) else None,
        chosen_mcp=parse_chosen_mcp(wire.tool_choice),
    )


def _mcp_tools(wire: PromptRequest, choice: ToolChoice) -> tuple[tuple[int, McpTool], ...]:
    offered = wire.tools or () if choice.mode != "none" else ()
    return tuple((index, tool.param) for index, tool in enumerate(offered) if isinstance(tool.param, McpTool))


def _is_stored(wire: ResponseRequest, storing: bool) -> bool:
    if wire.store and not storing:
        raise ProblemError(storing_disabled())
    stored = storing if wire.store is None else wire.store
    if wire.background and not stored:
        detail = (
            "`background` needs `store`: a response in the background can only be read once it is stored."
        )
        raise invalid(detail, "background")
    return stored


def _sampling_defaults(settings: Settings, name: str) -> Overrides:
    """Return the operator's sampling defaults for a requested name, until the model tells what it uses."""
    profile = settings.all_profiles.get(name)
    model = dict(settings.aliases).get(name, name) if profile is None else profile.model
    sources = (profile, settings.applied_to(model))
    values = {
        name: [value for source in sources if (value := getattr(source, name, None)) is not None]
        for name in ("temperature", "top_p")
    }
    return {name: given[0] for name, given in values.items() if given}


def _continued(wire: PromptRequest) -> tuple[str | None, str | None]:
    """Return the ids of the previous response and of the conversation."""
    if wire.conversation is not None and wire.conversation_id is not None:
        detail = "`conversation` and `conversation_id` are the same field: send one of them."
        raise invalid(detail, "conversation_id")
    conversation = wire.conversation.id if wire.conversation else wire.conversation_id
    return wire.previous_response_id, conversation


def _items(wire: PromptRequest, field: str, *, needed: bool) -> tuple[Item, ...]:
    if wire.input is not None and wire.messages is not None:
        raise invalid("`input` and `messages` are the same field: send one of them.", "messages")
    given = wire.messages if wire.input is None else wire.input
    if given is None and needed:
        raise missing("input")
    items = given.items if given is not None else ()
    if not items and needed:
        raise invalid(f"`{field}` must hold at least one item.", field)
    return items


def _thinking(reasoning: ReasoningParam) -> ReasoningSettings:
    preserved = _PRESERVED.get(reasoning.context or "auto")
    if reasoning.summary is not None and reasoning.generate_summary is not None:
        detail = "`reasoning.generate_summary` is the old name of `reasoning.summary`: send one of them."
        raise invalid(detail, "reasoning.generate_summary")
    if reasoning.effort is None:
        return ReasoningSettings(None, None, preserved)
    if reasoning.effort == _NO_EFFORT:
        return ReasoningSettings(False, None, preserved)
    effort = effort_named(reasoning.effort)
    if effort is None:
        known = ", ".join(map(repr, (_NO_EFFORT, *EFFORTS)))
        raise invalid(f"`reasoning.effort` must be one of {known}.", "reasoning.effort")
    return ReasoningSettings(True, effort, preserved)


_STORED = (ItemReference, CompactionItem)
"""Items whose content is read from the store, or decrypted with its key."""
_NO_TURNS = Turns(())


@attrs.frozen
class RequestWithHistory:
    """A request with its whole conversation.

    Args:
        history: Items of earlier turns, as far as the model reads them.
        stored_input: Stored form of the request's own items; empty if later requests cannot continue it.
        listed: Labels of the MCP servers whose tools the conversation shows.
    """

    request: InferenceRequest
    items: tuple[Item, ...]
    turns: Turns = _NO_TURNS
    history: tuple[Item, ...] = ()
    stored_input: tuple[StoredItem, ...] = ()
    approved: tuple[ServerCall, ...] = ()
    listed: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class ParsedResponseRequest:
    """A client's request, whose history may still have to be read from the store.

    Args:
        previous: Id of the previous response, if any; a turn of `conversation`, if that is named too.
        template: The protocol-independent request, still without messages.
        formatter: Formatter of the response; None if only the prompt is wanted.
        keeps_input: True if later requests may continue this one, so that its items are kept.
        max_tool_calls: Most calls of their tools; None for no limit.
        chosen_mcp: See `ToolLoop.chosen`.
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
    mcp: tuple[tuple[int, McpTool], ...] = ()
    max_tool_calls: int | None = None
    chosen_mcp: frozenset[tuple[str, str | None]] = frozenset()
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
        """Return the complete request. May take long if it is large. Raises ProblemError: 400 that names the
        field, 404 for an item that is not stored here.
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
        calls = tuple(conversation.calls.approved.values()), frozenset(conversation.calls.listed)
        return RequestWithHistory(request, items, turns, tuple(history), stored_input, *calls)

    def _stored_input(self, items: Sequence[Item]) -> tuple[StoredItem, ...]:
        """Return items in their stored form, without those that the history already has."""
        stem = self.formatter.answer_id.removeprefix("resp_")
        new = [item.raw for item in items if item.param != ResolvedItem(())]
        return stored_items(new, lambda prefix, index: f"{prefix}_{stem}_in{index}")


# The generation parameters of responses, by their names on the wire.
#
# Each generation parameter is in one of these tables; the other members of a request are in its wire type.

_EXTENSIONS = (
    "top_k",
    "min_p",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "seed",
    "repetition_penalty",
    "logit_bias",
    "xtc_probability",
    "xtc_threshold",
    "thinking_budget",
)
"""Parameters of this server's chat API that OpenAI's Responses API lacks."""

RESPONSE_PARAMETERS: ParameterTable = {
    **{name: name for name in _EXTENSIONS},
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_output_tokens": "max_tokens",
    "top_logprobs": "top_logprobs",
    "reasoning.max_tokens": "thinking_budget",
}
"""Internal name of each parameter of `POST /v1/responses`, by its name on the wire."""

UNSUPPORTED: NeutralValues = {
    "access_programs.cyber": ("standard",),
    "context_management": ([],),
    "image.context_compression": ("auto", "disabled"),
    "moderation": (),
    "n": (1,),
    "personality": (),
    "prompt": (),
    "reasoning.mode": ("standard",),
    "service_tier": ("auto", "default", "flex"),
}


def parse_response_parameters(wire: PromptRequest, body: JsonObject) -> dict[str, Any]:
    """Return the generation parameters that a client has set.

    Raises:
        ProblemError: 400 that names the field.
    """
    parameters = parse_parameters(body, RESPONSE_PARAMETERS)
    included = isinstance(wire, ResponseRequest) and LOGPROBS in (wire.include or ())
    if included or parameters.get("top_logprobs"):
        parameters["logprobs"] = True
    return parameters


TEXT: JsonObject = {"type": "text"}


def parse_text_format(wire: PromptRequest) -> tuple[ResponseFormat | None, JsonObject]:
    """Return the requested format, and the form in which the response repeats it. Raises ProblemError: 400
    that names the field: it is invalid, or was sent under two names.
    """
    named = wire.text.format if wire.text else None
    if named is not None and wire.response_format is not None:
        raise invalid("`text.format` and `response_format` are the same field: send one.", "response_format")
    if named is not None:
        return _format(named, "text.format")
    if wire.response_format is None:
        return None, TEXT
    wrapped = wire.response_format.get("json_schema")
    if isinstance(wrapped, dict):
        # The chat API nests these members one level deeper.
        return _format({**wrapped, "type": wire.response_format.get("type")}, "response_format.json_schema")
    return _format(wire.response_format, "response_format")


def _format(value: JsonObject, field: str) -> tuple[ResponseFormat | None, JsonObject]:
    match value.get("type"):
        case "text":
            return None, TEXT
        case "json_object":
            return JsonObjectFormat(field), {"type": "json_object"}
        case "json_schema":
            return _json_schema(value, field)
        case _:
            name = f"{field}.type"
            raise invalid(f"`{name}` must be 'text', 'json_object' or 'json_schema'.", name)


def _json_schema(value: JsonObject, field: str) -> tuple[ResponseFormat, JsonObject]:
    schema = value.get("schema")
    if schema is None:
        raise missing(f"{field}.schema")
    name = _optional(value, "name", str, "a string", field)
    description = _optional(value, "description", str, "a string", field)
    strict = bool(_optional(value, "strict", bool, "a boolean", field))
    echo = {
        "type": "json_schema",
        "name": name or "",
        **({} if description is None else {"description": description}),
        "schema": schema,
        "strict": strict,
    }
    return JsonSchemaFormat(schema, name or "", strict, f"{field}.schema"), echo


def _optional(value: JsonObject, name: str, kind: type[Any], expected: str, field: str) -> Any:
    member = value.get(name)
    if member is not None and not isinstance(member, kind):
        detail = f"`{field}.{name}` must be {expected}, but is {json_type(member)}."
        raise invalid(detail, f"{field}.{name}")
    return member
