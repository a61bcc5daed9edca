"""The route `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ref import ask_actor
from greenroom.http.answering import tools as tool_choice
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting import OnComplete
from greenroom.http.answering.current_request import answer_id, request_client, request_id, request_owner
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, JSON, STORED, described
from greenroom.http.answering.request_parameters import (
    parse_extensions,
    parse_model_key,
    parse_parameters,
    parse_truncation,
    parse_verbosity,
    refuse_unsupported,
)
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.answering.server_tools import ServerFinder
from greenroom.http.answering.tools import (
    TOOL_CHOICE,
    ArgumentCheck,
    allows_parallel_calls,
    check_names,
    custom_call,
    custom_names_of,
    parse_allowed,
    parse_custom_tool,
)
from greenroom.http.media.media_reader import MediaReader, unknown_file
from greenroom.http.openai.chat_formatter import ChatFormatter, with_tools
from greenroom.http.openai.chunk_stream import CHAT_PARAMETERS, DONE, UNSUPPORTED_IN_CHAT, without_no_limit
from greenroom.http.openai.response_format import parse_response_format
from greenroom.http.openai.stored_completions import RequestToStore, parse_request_to_store, save_completion
from greenroom.schemas.messages.messages import (
    EFFORTS,
    ContentPart,
    Effort,
    JsonObject,
    Message,
    ReasoningSettings,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    effort_named,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed
from greenroom.schemas.wire.openai_answers import ChatCompletion
from greenroom.schemas.wire.openai_chat import (
    OPENAI,
    TEXT_PARTS,
    ChatRequest,
    Content,
    FileParam,
    MessageParam,
    PartParam,
    PredictionParam,
    ToolCallParam,
    ToolParam,
)


def chat_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("chat", __name__)

    @routes.post("/v1/chat/completions")
    @described(
        "Answer a chat",
        body=ChatRequest,
        converter=OPENAI,
        answer=ChatCompletion,
        media=(JSON, EVENTS),
        problems=(*ANSWERED_BY_A_MODEL, *STORED),
    )
    async def chat_completions() -> Response:
        storing = services.settings.store_responses
        parse = partial(_parse, request_id=request_id(), client=request_client(), storing=storing)
        wire, (chat, to_store) = await services.read_request(
            ChatRequest, OPENAI, UNSUPPORTED_IN_CHAT, parse, files=True, adapts=True
        )
        if to_store is not None:
            await ask_actor(services.refs.store, CheckStoring(request_owner()), Committed)
        # The parsed request has its own copy of the messages; holding files twice would waste memory.
        wire = attrs.evolve(wire, messages=())
        formatter = ChatFormatter(wire, answer_id("chatcmpl-"), chat.choices, custom=custom_names_of(chat))
        on_complete = None
        if to_store is not None:
            save = partial(save_completion, services.refs.store, request_owner(), formatter, to_store)
            on_complete = OnComplete(save, DONE)
        stream = bool(wire.stream)
        loop = None if wire.tool_choice == "none" else ServerFinder(services).of_metadata(wire.metadata)
        return await answer_request(
            services, [chat], formatter, stream=stream, on_complete=on_complete, loop=loop
        )

    return routes


def _parse(
    wire: ChatRequest, body: JsonObject, request_id: str, client: str, storing: bool
) -> tuple[InferenceRequest, RequestToStore | None]:
    return parse_chat_request(wire, body, request_id, client), parse_request_to_store(
        wire, body, storing=storing
    )


_NO_EFFORT = "none"


def parse_chat_request(
    wire: ChatRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest:
    """Parse a chat request into a protocol-independent one. Raises ProblemError: 400 that names the offending
    field.
    """
    if not wire.messages:
        raise invalid("`messages` must hold at least one message.", "messages")
    # A continued final message takes no generation prompt.
    begun = not wire.continue_final_message
    refuse_unsupported(body, {"add_generation_prompt": (begun,)})
    wire = with_tools(wire)
    _check_arguments(wire.messages)
    media = MediaReader()
    tools = tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(wire.tools or ()))
    check_names(tools, (f"tools[{i}].{tool.type}.name" for i, tool in enumerate(wire.tools or ())))
    choice = parse_tool_choice(wire.tool_choice)
    chat = ChatInput(
        messages=tuple(_message(message, media, f"messages[{i}]") for i, message in enumerate(wire.messages)),
        tools=tools,
        tool_choice=choice,
        template_options=wire.chat_template_kwargs or {},
        continue_final_message=wire.continue_final_message or False,
        parallel_tool_calls=allows_parallel_calls(wire.parallel_tool_calls, choice),
        thinking=_thinking(wire),
        verbosity=parse_verbosity(wire.verbosity),
        prediction=_predicted(wire.prediction),
    )
    parameters, key = _parameters(body), parse_model_key(wire.model)
    response_format = parse_response_format(body)
    return InferenceRequest(
        request_id,
        key,
        chat,
        parameters,
        client,
        response_format=response_format,
        overflow=parse_truncation(wire.truncation),
        **parse_extensions(body),
    )


def _parameters(body: JsonObject) -> dict[str, Any]:
    parameters = parse_parameters(without_no_limit(body), CHAT_PARAMETERS)
    if parameters.get("top_logprobs") and not parameters.get("logprobs"):
        raise invalid("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
    return parameters


def _predicted(wire: PredictionParam | None) -> str:
    """Return the text of a prediction, none of whose tokens are used."""
    if wire is None:
        return ""
    if wire.type != "content" or wire.content is None:
        raise invalid("`prediction` must have the type 'content', and the text as `content`.", "prediction")
    return "".join(part.text or "" for part in wire.content.parts)


def _thinking(wire: ChatRequest) -> ReasoningSettings:
    """Return the reasoning settings; the more explicit field wins."""
    enabled, effort = _effort(wire)
    preserved = None
    if wire.thinking is not None:
        enabled = _thinking_enabled(wire.thinking)
        preserved = _reasoning_preserved(wire.thinking)
    if wire.enable_thinking is not None:
        enabled = wire.enable_thinking
    return ReasoningSettings(enabled, effort, preserved)


def _effort(wire: ChatRequest) -> tuple[bool | None, Effort | None]:
    value, field = wire.reasoning_effort, "reasoning_effort"
    if value is None and wire.reasoning is not None:
        value, field = wire.reasoning.get("effort"), "reasoning.effort"
    if value is None:
        return None, None
    if value == _NO_EFFORT:
        return False, None
    if (effort := effort_named(value)) is not None:
        return True, effort
    known = ", ".join(map(repr, (_NO_EFFORT, *EFFORTS)))
    raise invalid(f"`{field}` must be one of {known}.", field)


def _thinking_enabled(thinking: dict[str, Any]) -> bool | None:
    kind = thinking.get("type")
    if kind not in ("enabled", "adaptive", "disabled"):
        raise invalid("`thinking.type` must be 'enabled', 'adaptive' or 'disabled'.", "thinking.type")
    return bool(kind != "disabled")


def _reasoning_preserved(thinking: dict[str, Any]) -> bool | None:
    """Return whether earlier turns keep their reasoning, from the field that Z.ai's clients send."""
    cleared = thinking.get("clear_thinking")
    if cleared is not None and not isinstance(cleared, bool):
        raise invalid("`thinking.clear_thinking` must be true or false.", "thinking.clear_thinking")
    return None if cleared is None else not cleared


def _message(message: MessageParam, media: MediaReader, field: str) -> Message:
    role: Role = "system" if message.role == "developer" else message.role  # type: ignore[assignment]
    from_assistant = role == "assistant"
    content = content_parts(message.content, role, media, f"{field}.content")
    if message.content is None and role in ("system", "user"):
        raise missing(f"{field}.content")
    if role == "tool" and not message.tool_call_id:
        name = f"{field}.tool_call_id"
        raise invalid(f"`{name}` is required in a tool message.", name, "missing_required_parameter")
    if from_assistant and not content and message.refusal:
        content = (TextPart(message.refusal),)
    return Message(
        role=role,
        content=content,
        reasoning=reasoning_of(message) if from_assistant else None,
        tool_calls=_tool_calls(message, field) if from_assistant else (),
        tool_call_id=message.tool_call_id if role == "tool" else None,
        name=message.name,
    )


def _tool_calls(message: MessageParam, field: str) -> tuple[ToolCall, ...]:
    calls = message.tool_calls or ()
    return tuple(_tool_call(call, f"{field}.tool_calls[{i}]") for i, call in enumerate(calls))


def _tool_call(call: ToolCallParam, field: str) -> ToolCall:
    if call.type == "custom":
        if call.custom is None:
            raise missing(f"{field}.custom")
        return custom_call(call.id, call.custom.name, call.custom.input)
    if call.type != "function":
        raise _unknown_kind(f"{field}.type")
    if call.function is None:
        raise missing(f"{field}.function")
    return ToolCall(call.id, call.function.name, call.function.arguments or "{}")


def _check_arguments(messages: Sequence[MessageParam]) -> None:
    arguments = ArgumentCheck()
    for i, message in enumerate(messages):
        for j, call in enumerate(message.tool_calls or ()):
            if call.function is not None:
                field = f"messages[{i}].tool_calls[{j}].function.arguments"
                arguments.check(call.function.arguments, field)


def _tool(tool: ToolParam, field: str) -> Tool:
    if tool.type == "custom":
        return parse_custom_tool(tool.custom, f"{field}.custom")
    if tool.type != "function":
        raise _unknown_kind(f"{field}.type")
    if tool.function is None:
        raise missing(f"{field}.function")
    if not tool.function.name:
        raise invalid(f"`{field}.function.name` is empty.", f"{field}.function.name")
    return Tool(
        name=tool.function.name,
        description=tool.function.description or "",
        parameters=tool.function.parameters or {},
        strict=tool.function.strict or False,
    )


def _unknown_kind(field: str) -> ProblemError:
    return invalid(f"`{field}` must be 'function' or 'custom'.", field, "unsupported_parameter")


SHOWN_BY: tuple[Role, ...] = ("user", "tool")  # Roles whose messages may contain more than text


def content_parts(
    content: Content | None, role: Role, media: MediaReader, field: str
) -> tuple[ContentPart, ...]:
    """Return the parts of a message's content. Raises ProblemError: 400 that names the field; 501 for a
    video.
    """
    parts = enumerate(content.parts if content else ())
    said = ((i, part) for i, part in parts if not (part.type == "thinking" and role == "assistant"))
    return tuple(_part(part, role, media, f"{field}[{i}]") for i, part in said)


def reasoning_of(message: MessageParam) -> str | None:
    """Return an assistant's reasoning, wherever other servers and their clients put it; None without any.

    Those are vLLM's and OpenRouter's fields, and parts of type `thinking`, such as Mistral's.
    """
    for text in (message.reasoning_content, message.reasoning):
        if text and isinstance(text, str):
            return text
    details = message.reasoning_details if isinstance(message.reasoning_details, list) else ()
    parts = message.content.parts if message.content else ()
    thoughts = [*details, *(part.thinking for part in parts if part.type == "thinking")]
    return "".join(map(_thought, thoughts)) or None


def _thought(thought: Any) -> str:
    if isinstance(thought, list):
        return "".join(map(_thought, thought))
    text = thought.get("text") if isinstance(thought, dict) else thought
    return text if isinstance(text, str) else ""


def _part(part: PartParam, role: Role, media: MediaReader, field: str) -> ContentPart:
    if part.type in TEXT_PARTS:
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise missing(f"{field}.{part.type}")
        return TextPart(text)
    if part.type == "thinking":
        detail = f"`{field}` is 'thinking', but only assistant messages may hold reasoning."
        raise invalid(detail, field, "unsupported_content")
    if role not in SHOWN_BY:
        detail = f"`{field}` is {part.type!r}, but only user and tool messages may hold more than text."
        raise invalid(detail, field, "unsupported_content")
    match part:
        case PartParam(type="image_url", image_url=image) if image is not None:
            return media.image(image.url, f"{field}.image_url.url", image.detail)
        case PartParam(type="input_audio", input_audio=audio) if audio is not None:
            return media.recording(audio.data, audio.format, f"{field}.input_audio")
        case PartParam(type="file", file=file) if file is not None:
            return _file(file, media, f"{field}.file")
        case PartParam(type="video_url"):
            detail = f"`{field}` is a video; videos are not supported. Send single frames as images."
            raise ProblemError(Problem(501, "not_implemented", detail, field))
    raise missing(f"{field}.{part.type}")


def _file(file: FileParam, media: MediaReader, field: str) -> ContentPart:
    if file.file_id is not None:
        raise unknown_file(f"{field}.file_id")
    if file.file_data is None:
        raise missing(f"{field}.file_data")
    return media.file(file.file_data, f"{field}.file_data", file.filename)


def parse_tool_choice(value: Any) -> ToolChoice:
    """Return the tool choice of a request. Raises ProblemError (400) that names the field."""
    return tool_choice.parse_tool_choice(
        value, _tool_name, _allowed, "but must be 'function', 'custom' or 'allowed_tools'"
    )


def _allowed(value: JsonObject) -> ToolChoice:
    field = f"{TOOL_CHOICE}.allowed_tools"
    wrapped = value.get("allowed_tools")
    if not isinstance(wrapped, dict):
        raise missing(field)
    choice, tools = parse_allowed(wrapped, field)
    names = tuple(_tool_name(tool, f"{field}.tools[{index}]") for index, tool in enumerate(tools))
    return attrs.evolve(choice, allowed=names)


def _tool_name(value: Any, field: str) -> str:
    kind = "custom" if isinstance(value, dict) and value.get("type") == "custom" else "function"
    wrapped = value.get(kind) if isinstance(value, dict) else None
    # Clients of the Responses API, which has no wrapping object, omit it here too.
    name = wrapped.get("name") if isinstance(wrapped, dict) else None
    if name is None and isinstance(value, dict):
        name = value.get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{field}.{kind}.name")
    return name
