"""Request bodies of OpenAI's chat and text completions (API reference, with others' extensions)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NewType

import attrs

from greenroom.schemas.messages.messages import MAX_CALLS, MAX_MESSAGES, MAX_PARTS, MAX_TOOLS
from greenroom.schemas.wire.wire import AtMost, WireError, make_wire_converter, wrong_type

OPENAI = make_wire_converter()


Arguments = NewType("Arguments", str)
"""The arguments of a call, as JSON text."""

Role = Literal["developer", "system", "user", "assistant", "tool", "function"]
TEXT_PARTS = ("text", "refusal")
"""Types of content parts that contain text, each under a key of the same name."""


@attrs.frozen
class ImageUrlParam:
    """The URL of an image, possibly a `data:` URL; some clients send the bare string."""

    url: str
    detail: str | None = None


@attrs.frozen
class InputAudioParam:
    """An audio file, as base64."""

    data: str
    format: str


@attrs.frozen
class FileParam:
    """A PDF or an image, as a `data:` URL or as base64."""

    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


@attrs.frozen
class PartParam:
    """A content part of a message; `type` decides which fields it has."""

    type: Literal["text", "refusal", "image_url", "input_audio", "file", "video_url", "thinking"]
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrlParam | None = None
    input_audio: InputAudioParam | None = None
    file: FileParam | None = None
    thinking: Any = None


@attrs.frozen
class Content:
    """The content of a message; a string on the wire becomes one part."""

    parts: tuple[PartParam, ...]


@attrs.frozen
class FunctionCall:
    """A function call."""

    name: str
    arguments: Arguments = Arguments("")


@attrs.frozen
class CustomCall:
    """A custom tool call."""

    name: str
    input: str


@attrs.frozen
class ToolCallParam:
    """A tool call in the history; `type` decides which other fields it has."""

    id: str
    function: FunctionCall | None = None
    type: str = "function"
    custom: CustomCall | None = None


@attrs.frozen
class MessageParam:
    """A message of the request. The fields `reasoning…` are names for its reasoning."""

    role: Role
    content: Content | None = None
    name: str | None = None
    tool_calls: Annotated[tuple[ToolCallParam, ...], AtMost(MAX_CALLS)] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    reasoning_details: Any = None


@attrs.frozen
class FunctionParam:
    """The definition of a callable function."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


@attrs.frozen
class ToolParam:
    """The definition of a tool; `http/answering/tools.py` parses custom ones."""

    type: str
    function: FunctionParam | None = None
    custom: Any = None


@attrs.frozen
class StreamOptions:
    """Options of a streamed response.

    Args:
        include_status: True for news of the queue and of the prompt, while the client waits.
        include_explain: True for a usage with the member `greenroom`, which explains what the request cost.
    """

    include_usage: bool | None = None
    include_status: bool | None = None
    include_explain: bool | None = None


@attrs.frozen
class PredictionParam:
    """The text that a client expects as the answer, or much of it."""

    type: str
    content: Content | None = None


@attrs.frozen
class ChatRequest:
    """The body of a chat request, without generation parameters and response formats.

    Separate tables describe those (`greenroom.http.openai.chunk_stream` and `response_format`).
    """

    model: str
    messages: Annotated[tuple[MessageParam, ...], AtMost(MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    tools: Annotated[tuple[ToolParam, ...], AtMost(MAX_TOOLS)] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[tuple[FunctionParam, ...], AtMost(MAX_TOOLS)] | None = None
    function_call: Any = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    thinking: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    truncation: Any = None
    verbosity: Any = None
    store: bool | None = None
    service_tier: Any = None
    prediction: PredictionParam | None = None
    metadata: Any = None


_Parts = Annotated[tuple[PartParam, ...], AtMost(MAX_PARTS)]


def _content(value: Any, _: Any) -> Content | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Content((PartParam("text", value),))
    if not isinstance(value, list):
        raise wrong_type("a string or an array of parts", value)
    return Content(OPENAI.structure(value, _Parts))


def _image_url(value: Any, _: Any) -> ImageUrlParam | None:
    if value is None:
        return None
    return ImageUrlParam(value) if isinstance(value, str) else OPENAI.structure(value, ImageUrlParam)


def _arguments(value: Any, _: Any) -> Arguments:
    if isinstance(value, dict):
        # Some clients return the arguments as a decoded object.
        return Arguments(json.dumps(value, ensure_ascii=False))
    if not isinstance(value, str):
        raise WireError("must be a string that holds JSON")
    return Arguments(value)


OPENAI.register_structure_hook(Arguments, _arguments)
OPENAI.register_structure_hook(Content | None, _content)
OPENAI.register_structure_hook(ImageUrlParam | None, _image_url)


MAX_PROMPTS = 128
"""Maximum number of prompts in a request; each gets its own answer."""


@attrs.frozen
class Prompts:
    """The prompts to continue; each yields one choice."""

    prompts: tuple[str | tuple[int, ...], ...]


@attrs.frozen
class CompletionRequest:
    """The body of a completion request; separate tables describe parameters and formats, as for a chat."""

    model: str
    prompt: Prompts
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Any = None
    max_tokens: Any = None
    n: Any = None
    best_of: Any = None


def _prompts(value: Any, _: Any) -> Prompts:
    if isinstance(value, str):
        return Prompts((value,))
    if not isinstance(value, list):
        raise wrong_type("a string, an array of strings, or arrays of token ids", value)
    if not value:
        raise WireError("must not be empty")
    if not isinstance(value[0], str | list):
        return Prompts((_tokens(value),))
    if len(value) > MAX_PROMPTS:
        raise WireError(f"must hold at most {MAX_PROMPTS} prompts")
    return Prompts(tuple(prompt if isinstance(prompt, str) else _tokens(prompt) for prompt in value))


def _tokens(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        raise WireError("must be a string, an array of strings, or arrays of token ids")
    return tuple(value)


OPENAI.register_structure_hook(Prompts, _prompts)
