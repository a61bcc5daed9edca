"""Requests to models for programs that run a system of their own: in two calls, or with tools that are called
in a loop, of MCP servers and of the program itself.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Sequence
from typing import Any, Unpack, get_type_hints

import attrs
import msgspec

from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System
from greenroom.actors.tools.conversation import ToolConversation
from greenroom.schemas.events.events import Failed, TextDelta
from greenroom.schemas.events.result_events import ServerCall
from greenroom.schemas.messages.generation import Parameters, parameters
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall, check_text
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RequestInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.tools_protocol import PythonTool, ToolLoop, ToolSource
from greenroom.schemas.settings.caller import is_allowed


def generate(
    system: System, asked: RequestInput, *, model: str = "default", **values: Unpack[Parameters]
) -> Generation:
    """Return a started request; iterate over it for its events, and leave its context to end it.

    Args:
        model: A hub id, the name of a folder, or an alias; `default` is the first model of the settings.

    Raises:
        ProblemError: A parameter is out of its range, `model` is no string, or a string holds half of a
            surrogate pair. If the model refuses the request, its last event is `Failed` instead.
    """
    return Generation(system.pool, _request(asked, model, values))


def _request(asked: RequestInput, model: str, values: Parameters) -> InferenceRequest:
    if not isinstance(model, str):  # a setting of the program that is missing, or what its user has sent
        raise invalid(f"`model` is of type {type(model).__name__}, but it must be a string.", "model")
    check_text("", asked)
    check_text("model", model)
    for name, value in values.items():
        check_text(name, value)
    return InferenceRequest(uuid.uuid4().hex, ModelKey(model), asked, parameters(**values))


def chat_input(conversation: str | Sequence[Message]) -> ChatInput:
    """Return the input of a question, or of a conversation."""
    if isinstance(conversation, str):
        conversation = (Message("user", (TextPart(conversation),)),)
    return ChatInput(tuple(conversation))


async def chat(
    system: System,
    conversation: str | Sequence[Message],
    *,
    model: str = "default",
    **values: Unpack[Parameters],
) -> str:
    """Return the visible answer to a question, or to a conversation.

    Args:
        model: A hub id, the name of a folder, or an alias; `default` is the first model of the settings.

    Raises:
        ProblemError: The request failed.
    """
    answer = ""
    with generate(system, chat_input(conversation), model=model, **values) as generation:
        async for event in generation:
            match event:
                case TextDelta(text, 0):
                    answer += text
                case Failed(problem):
                    raise ProblemError(problem)
    return answer


@attrs.frozen
class ConversationOptions:
    """Options of a conversation with tools.

    Args:
        max_turns: Most generations of the model.
        allowed_tools: Names or patterns of the tools on offer; None for all.
        functions: Functions that the model may call, described by name, docstring and annotations. Those that
            are no coroutine functions run on a thread.
        servers: Names of MCP servers of the settings; None for all.
        model: A hub id, the name of a folder, or an alias; `default` is the first model of the settings.
    """

    max_turns: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    allowed_tools: Sequence[str] | None = None
    functions: Sequence[PythonTool] = ()
    servers: Sequence[str] | None = None
    model: str = "default"
    parameters: Parameters = attrs.field(factory=lambda: Parameters())


@attrs.frozen
class ConversationResult:
    """The result of a conversation with tools."""

    final_message: str
    tool_calls_executed: tuple[ToolCall, ...]
    turns_taken: int


async def run_conversation(
    system: System, messages: str | Sequence[Message], options: ConversationOptions | None = None
) -> ConversationResult:
    """Run a conversation until the model answers without calling a tool, or a limit is reached.

    Raises:
        ProblemError: The request failed, or a parameter is out of its range.
        ValueError: See `converse`.

    Example:
        def weather(city: str, days: int = 1) -> str:
            "Return the weather of a city."
            return f"Rain in {city}."


        options = ConversationOptions(max_turns=5, functions=(weather,))
        result = await run_conversation(system, "What is the weather in Paris?", options)
        print(result.final_message, result.tool_calls_executed, result.turns_taken)
    """
    calls: list[ToolCall] = []
    text = ""
    with converse(system, messages, options) as events:
        async for event in events:
            match event:
                case TextDelta(piece):
                    text += piece
                case ServerCall(ident, _, name, arguments):
                    calls.append(ToolCall(ident, name, arguments))
                    text = ""
                case Failed(problem):
                    raise ProblemError(problem)
    return ConversationResult(text, tuple(calls), events.turns)


def converse(
    system: System, messages: str | Sequence[Message], options: ConversationOptions | None = None
) -> ToolConversation:
    """Return a started conversation; iterate over it for its events, and leave its context to end it.

    Raises:
        ProblemError: A parameter is out of its range, such as `n`, which must be 1.
        ValueError: There is no MCP server of such a name, or a function cannot be described.
    """
    options = options or ConversationOptions()
    known = system.settings.tool_servers
    names = tuple(known) if options.servers is None else tuple(options.servers)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no MCP server {unknown[0]!r} in the settings")
    allowed = None if options.allowed_tools is None else tuple(options.allowed_tools)
    sources = tuple(ToolSource(name, known[name], name, allowed=allowed) for name in names)
    described = ((describe_function(function), function) for function in options.functions)
    functions = tuple((tool, call) for tool, call in described if is_allowed(allowed or (), tool.name))
    request = _request(chat_input(messages), options.model, options.parameters)
    if request.choices > 1:
        raise invalid("`n` must be 1 in a conversation with tools.", "n")
    loop = ToolLoop(sources, functions, options.max_turns)
    return ToolConversation(system.pool, system.refs.tools, request, loop)


def describe_function(function: PythonTool) -> Tool:
    """Return a function as a tool: its name, its docstring, and a schema of its annotations.

    Raises:
        ValueError: It has no name, a parameter that cannot be given by name, or a type without a JSON form.
    """
    try:
        name, types = function.__name__, get_type_hints(function)
    except (AttributeError, NameError, TypeError) as error:  # of a `partial`, or a type that is not imported
        raise ValueError(f"{function!r}: {error}") from error
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"{name}: `{parameter.name}` cannot be given by its name")
        field = parameter.name, types.get(parameter.name, Any)
        fields.append(field if parameter.default is parameter.empty else (*field, parameter.default))
    try:
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        _, definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
    parameters_schema = {**definitions.pop("Arguments"), **({"$defs": definitions} if definitions else {})}
    parameters_schema.pop("title", None)
    return Tool(name, inspect.getdoc(function) or "", parameters_schema, param=f"functions.{name}")
