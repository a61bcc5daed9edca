"""Parsing of the bodies of `POST /v1/responses`, its `input_tokens` and `compact`."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.actors.store.database.problems import storing_disabled
from greenroom.http.answering.explanation_body import parse_explained
from greenroom.http.answering.requests.request_parameters import (
    parse_model_key,
    parse_priority,
    parse_truncation,
    parse_verbosity,
)
from greenroom.http.answering.tools.tool_choice import allows_parallel_calls
from greenroom.http.responses.output.echo import make_echo
from greenroom.http.responses.output.response_formatter import ResponseFormatter
from greenroom.http.responses.requests.parameters import parse_response_parameters
from greenroom.http.responses.requests.response_request import ParsedResponseRequest
from greenroom.http.responses.requests.text_format import parse_text_format
from greenroom.http.responses.tools.tool_choice import parse_tool_choice
from greenroom.http.responses.tools.tools import check_tools, parse_tools
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.reasoning import EFFORTS, ReasoningSettings, effort_named
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.responses.items import Item
from greenroom.schemas.responses.requests import PromptRequest, ReasoningParam, ResponseRequest
from greenroom.schemas.settings.settings import Settings

_NO_EFFORT = "none"
_PRESERVED = {"current_turn": False, "all_turns": True}


def parse_prompt_request(
    wire: PromptRequest, body: JsonObject, request_id: str, client: str = ""
) -> ParsedResponseRequest:
    """Return a parsed request of which only the prompt is wanted.

    Args:
        wire: `body` in structured form.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
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
        wire: `body` in structured form.
        answer_id: The response's id, `resp_…`.
        identity: The request's id, and its client.
        settings: The server's settings, with its defaults.
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
        priority=parse_priority(body),
        explained=parse_explained(body),
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
    )


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
