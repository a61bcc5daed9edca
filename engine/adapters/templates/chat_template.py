"""Rendering of conversations with a model's chat template."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from greenroom.engine.tokenizer.rendering.budget import TemplateLimitError
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.problems import ProblemError, invalid, load_failed

TemplateMessage = dict[str, Any]
"""Message in the shape that Hugging Face's chat templates read."""

TEMPLATE_ERROR = "chat_template_error"
"""Error code of a template's refusal."""

RESERVED_OPTIONS = frozenset(
    {
        "add_generation_prompt",
        "bos_token",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "dict",
        "documents",
        "eos_token",
        "max_length",
        "messages",
        "namespace",
        "padding",
        "raise_exception",
        "range",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "self",
        "strftime_now",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Template options that requests must not set, because the server or the renderer uses them."""


def as_parts(message: TemplateMessage) -> TemplateMessage:
    """Return the message with its text as a list of content parts."""
    if not isinstance(message.get("content"), str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def render_conversation(
    tokenizer: ChatTokenizer,
    messages: list[TemplateMessage],
    *,
    tools: list[dict[str, Any]] | None = None,
    continue_final_message: bool = False,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Return the conversation as rendered prompt text.

    Raises:
        ProblemError: 400 with the template's own message, or with the limit that it exceeds.
    """
    try:
        return tokenizer.render(
            messages,
            tools=tools,
            continue_final_message=continue_final_message,
            options=dict(options or {}),
        )
    except ProblemError:
        raise
    except TemplateLimitError as error:
        detail = f"The model's chat template was stopped at this conversation: {error}."
        raise invalid(detail, "messages", TEMPLATE_ERROR) from error
    except Exception as error:  # A template may do anything that Jinja's sandbox allows.
        reason = str(error).strip() or type(error).__name__
        detail = f"The model's chat template refuses this conversation: {reason[:500]}"
        raise invalid(detail, "messages", TEMPLATE_ERROR) from error


def template_unusable(folder: Path, error: TemplateLimitError) -> ProblemError:
    return ProblemError(load_failed(folder.name, f"its chat template was stopped: {error}."))


def shows_in_order(rendered: str | None, *words: str) -> bool:
    """Return whether all words are in a rendered conversation, in that order."""
    if rendered is None or not all(word in rendered for word in words):
        return False
    return all(rendered.index(first) < rendered.index(later) for first, later in pairwise(words))


def check_options(options: Mapping[str, Any], field: str = "chat_template_kwargs") -> None:
    """Refuse template options that would override the server's own.

    Raises:
        ProblemError: 400 that names the option.
    """
    for name in options:
        if name in RESERVED_OPTIONS or name.startswith("_") or not name.isidentifier():
            raise invalid(f"`{field}.{name}` is not an option that a request may set.", f"{field}.{name}")
