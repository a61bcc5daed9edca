"""Request bodies of Ollama's protocol: chats, completions, and its routes about models.

Source: docs/api.md and api/types.go of Ollama, August 2026.
"""

from __future__ import annotations

from typing import Annotated, Any, NewType

import attrs

from greenroom.schemas.messages.messages import MAX_CALLS, MAX_MESSAGES, MAX_TOOLS
from greenroom.schemas.wire.wire import AtMost, WireError, make_wire_converter, one_of, wrong_type

OLLAMA = make_wire_converter()


Role = NewType("Role", str)
ROLES = ("system", "user", "assistant", "tool")

MAX_IMAGES = 1_024
"""Maximum number of images in a message."""


@attrs.frozen
class FunctionCall:
    """A function call; its arguments are an object, not JSON text."""

    name: str
    arguments: dict[str, Any] | None = None


@attrs.frozen
class ToolCallParam:
    """A tool call in the history; most clients send no id."""

    function: FunctionCall
    id: str | None = None


@attrs.frozen
class MessageParam:
    """A chat message."""

    role: Role
    content: str | None = None
    thinking: str | None = None
    images: Annotated[tuple[str, ...], AtMost(MAX_IMAGES)] | None = None
    tool_calls: Annotated[tuple[ToolCallParam, ...], AtMost(MAX_CALLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


@attrs.frozen
class FunctionParam:
    """The definition of a callable function."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


@attrs.frozen
class ToolParam:
    """The definition of a tool."""

    function: FunctionParam
    type: str = "function"


@attrs.frozen
class ChatRequest:
    """The body of `POST /api/chat`; a separate table describes its options."""

    model: str
    messages: Annotated[tuple[MessageParam, ...], AtMost(MAX_MESSAGES)] | None = None
    stream: bool | None = None
    format: Any = None
    think: Any = None
    tools: Annotated[tuple[ToolParam, ...], AtMost(MAX_TOOLS)] | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None
    truncate: bool | None = None
    metadata: Any = None


@attrs.frozen
class GenerateRequest:
    """The body of `POST /api/generate`; a separate table describes its options."""

    model: str
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: Annotated[tuple[str, ...], AtMost(MAX_IMAGES)] | None = None
    stream: bool | None = None
    format: Any = None
    think: Any = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


@attrs.frozen
class ShowRequest:
    """The body of `POST /api/show`; old clients send the model as `name`."""

    model: str | None = None
    name: str | None = None


@attrs.frozen
class PullRequest:
    """The body of `POST /api/pull`; old clients send the model as `name`."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = None


@attrs.frozen
class DeleteRequest:
    """The body of `DELETE /api/delete`; old clients send the model as `name`."""

    model: str | None = None
    name: str | None = None


def _role(value: Any, _: Any) -> Role:
    # Ollama ignores the case of roles.
    return Role(one_of(ROLES, value.lower() if isinstance(value, str) else value))


OLLAMA.register_structure_hook(Role, _role)


# Request bodies of Ollama's `/api/embed` and `/api/embeddings`.
#
# Source: docs/api.md and api/types.go of Ollama, August 2026.

MAX_TEXTS = 16_384
"""Maximum number of texts in a request."""


@attrs.frozen
class Texts:
    """The texts to embed; an empty string or array only loads the model."""

    texts: tuple[str, ...]


@attrs.frozen
class EmbedRequest:
    """The body of `POST /api/embed`."""

    model: str
    input: Texts | None = None
    truncate: bool | None = None
    dimensions: int | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


@attrs.frozen
class OldEmbeddingsRequest:
    """The body of `POST /api/embeddings`."""

    model: str
    prompt: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


def _texts(value: Any, _: Any) -> Texts:
    if isinstance(value, str):
        return Texts((value,) if value else ())
    if not isinstance(value, list):
        raise wrong_type("a string or an array of strings", value)
    if len(value) > MAX_TEXTS:
        raise WireError(f"must hold at most {MAX_TEXTS} texts, but has {len(value)}")
    for item in value:
        if not isinstance(item, str):
            raise wrong_type("an array of strings", item)
    return Texts(tuple(value))


OLLAMA.register_structure_hook(Texts, _texts)
