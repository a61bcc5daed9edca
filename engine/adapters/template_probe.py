"""Probing of a model's chat template with small conversations at load."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.tokenizer.template_budget import TemplateLimitError
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.problems import ProblemError, invalid, load_failed


@attrs.frozen
class TemplateTraits:
    """Abilities of a chat template; conversations are rewritten to avoid what it cannot do.

    Args:
        system: True if it shows a system message at the start.
        system_alone: True if it shows a system message without any other message.
        late_system: True if it shows a system message after other turns, in place.
        several_systems: True if it shows more than one system message at the start.
        repeated_roles: True if two turns of the same role may follow each other.
        assistant_first: True if the assistant may have the first, or only, turn.
        parts: True if content must be a list of parts, because it does not show strings.
        tools: True if it describes tools.
        tool_calls: True if it shows calls in the history.
        tool_results: True if it has turns for tool results.
        text_beside_calls: True if it shows text and calls of the same turn.
        parallel_calls: True if it shows more than one call of the same turn.
        user_after_tool: True if a user turn may directly follow a tool result.
        arguments_as_text: True if arguments of past calls must be JSON text, not an object.
        calls_without_content: True if a turn of calls must have null content instead of an empty string.
        short_call_ids: True if call ids must be nine letters or digits, or are cut to that length.
        empty_tools: True if it needs an empty list when there are no tools.
    """

    system: bool = True
    system_alone: bool = True
    late_system: bool = True
    several_systems: bool = True
    repeated_roles: bool = True
    assistant_first: bool = True
    parts: bool = False
    tools: bool = True
    tool_calls: bool = True
    tool_results: bool = True
    text_beside_calls: bool = True
    parallel_calls: bool = True
    user_after_tool: bool = True
    arguments_as_text: bool = False
    calls_without_content: bool = False
    short_call_ids: bool = False
    empty_tools: bool = False

    @property
    def without_tools(self) -> list[Any] | None:
        """The `tools` value that the template needs when there are no tools."""
        return [] if self.empty_tools else None


def probe_template(tokenizer: ChatTokenizer) -> TemplateTraits:
    ways = [_Probe(tokenizer, *way) for way in itertools.product((False, True), repeat=2)]
    probe = next((way for way in ways if way.shows([_user()], "zquser")), ways[0])
    traits = _probe_tools(probe)
    tools = [_TOOL] if traits.tools else None
    systems = [_turn("system", "zqsystem"), _turn("system", "zqsecond")]
    system = probe.shows([systems[0], _user()], "zqsystem", "zquser")
    conversation = [_user(), _turn("assistant", "zqanswer")]
    return attrs.evolve(
        traits,
        system=system,
        system_alone=system
        and probe.shows([systems[0]], "zqsystem")
        and probe.shows_with_tools([systems[0]], tools, "zqsystem"),
        late_system=probe.shows(
            [*conversation, systems[0], _user("zqlast")], "zqanswer", "zqsystem", "zqlast"
        ),
        several_systems=probe.shows([*systems, _user()], "zqsystem", "zqsecond", "zquser"),
        repeated_roles=probe.shows([_user(), _user("zqnext")], "zquser", "zqnext")
        and probe.shows(
            [*conversation, _turn("assistant", "zqmore"), _user("zqlast")], "zqanswer", "zqmore", "zqlast"
        ),
        assistant_first=probe.shows(conversation[1:], "zqanswer")
        and probe.shows([*conversation[1:], _user()], "zqanswer", "zquser")
        and (
            not traits.tool_calls
            or probe.shows_with_tools([_calling_for(traits), _result(_SHORT_ID)], tools, "zqvalue")
        ),
        parts=probe.parts,
        empty_tools=probe.empty_tools,
    )


def template_renderer(tokenizer: ChatTokenizer, traits: TemplateTraits) -> Callable[..., str | None]:
    """Return a function that renders messages with template options; it returns None on a refusal."""
    probe = _Probe(tokenizer, traits.empty_tools, traits.parts)

    def render(messages: Sequence[TemplateMessage], **options: Any) -> str | None:
        return probe.render([{**message} for message in messages], None, **options)

    return render


def tool_renderer(
    tokenizer: ChatTokenizer, traits: TemplateTraits
) -> Callable[[list[dict[str, Any]]], str | None]:
    """Return a function that renders tools above a short conversation; it returns None on a refusal."""
    probe = _Probe(tokenizer, traits.empty_tools, traits.parts)

    def render(tools: list[dict[str, Any]]) -> str | None:
        try:
            return probe.render([_user()], tools)
        except ProblemError:  # these tools exceed a limit
            return None

    return render


def with_calls_as_text(tokenizer: ChatTokenizer, traits: TemplateTraits) -> TemplateTraits:
    if not traits.tool_calls:
        return traits
    results = _shows_bare_result(_Probe(tokenizer, traits.empty_tools, traits.parts), traits.tools)
    return attrs.evolve(
        traits, tool_calls=False, tool_results=results, text_beside_calls=True, parallel_calls=True
    )


class _Probe:
    def __init__(self, tokenizer: ChatTokenizer, empty_tools: bool, parts: bool) -> None:
        self._tokenizer = tokenizer
        self.empty_tools = empty_tools
        self.parts = parts

    def render(
        self, messages: list[TemplateMessage], tools: list[dict[str, Any]] | None = None, **options: Any
    ) -> str | None:
        if self.parts:
            messages = [as_parts(message) for message in messages]
        if tools is None and self.empty_tools:
            tools = []
        try:
            return self._tokenizer.render(messages, tools=tools, options=options)
        except TemplateLimitError as error:
            raise template_unusable(self._tokenizer.folder, error) from error
        except Exception:  # A refusal is a valid result.
            return None

    def shows(self, messages: list[TemplateMessage], *words: str) -> bool:
        return shows_in_order(self.render(messages), *words)

    def shows_with_tools(self, messages: list[TemplateMessage], tools: Any, *words: str) -> bool:
        """Return whether all words are rendered when tools are described too."""
        rendered = self.render(messages, tools)
        return rendered is not None and all(word in rendered for word in words)


def _probe_tools(probe: _Probe) -> TemplateTraits:
    rendered = probe.render([_user()], tools=[_TOOL])
    tools = rendered is not None and "zqtool" in rendered
    for as_text, bare in itertools.product((False, True), repeat=2):
        call = _calling(_SHORT_ID, as_text, bare)
        if not _shows_call(probe.render([_user(), call, _result(_SHORT_ID), *_ENDING])):
            continue
        return TemplateTraits(
            tools=tools,
            arguments_as_text=as_text,
            calls_without_content=bare,
            text_beside_calls=probe.shows(
                [_user(), {**call, "content": "zqbeside"}, _result(_SHORT_ID), *_ENDING],
                "zqbeside",
                "zqtool",
                "zqvalue",
            ),
            parallel_calls=probe.shows(_two_calls(call), "zqvalue", "zqother"),
            user_after_tool=probe.shows([_user(), call, _result(_SHORT_ID), _user("zqlast")], "zqlast"),
            short_call_ids=_needs_short_ids(probe, as_text, bare),
        )
    return TemplateTraits(tools=tools, tool_calls=False, tool_results=_shows_bare_result(probe, tools))


def _shows_bare_result(probe: _Probe, tools: bool) -> bool:
    return tools and probe.shows([_user(), _ENDING[0], _result(_SHORT_ID), *_ENDING], "zqresult")


def _two_calls(call: TemplateMessage) -> list[TemplateMessage]:
    other = json.loads(
        json.dumps(call["tool_calls"][0]).replace("zqvalue", "zqother").replace(_SHORT_ID, "zqcall002")
    )
    both = {**call, "tool_calls": [*call["tool_calls"], other]}
    return [_user(), both, _result(_SHORT_ID), _result("zqcall002"), *_ENDING]


def _needs_short_ids(probe: _Probe, as_text: bool, bare: bool) -> bool:
    short, long = (
        probe.render([_user(), _calling(ident, as_text, bare), _result(ident), *_ENDING])
        for ident in (_SHORT_ID, _LONG_ID)
    )
    return long is None or (short is not None and _SHORT_ID in short and _LONG_ID not in long)


def _shows_call(rendered: str | None) -> bool:
    """Return whether call and result are shown, with arguments not as Python's repr or quoted JSON."""
    if rendered is None or not all(word in rendered for word in ("zqtool", "zqvalue", "zqresult")):
        return False
    return "'zqkey'" not in rendered and '\\"zqkey\\"' not in rendered


def _turn(role: str, content: str) -> TemplateMessage:
    return {"role": role, "content": content}


def _user(content: str = "zquser") -> TemplateMessage:
    return _turn("user", content)


def _calling(call_id: str, as_text: bool, bare: bool) -> TemplateMessage:
    arguments: Any = '{"zqkey": "zqvalue"}' if as_text else {"zqkey": "zqvalue"}
    function = {"name": "zqtool", "arguments": arguments}
    message: TemplateMessage = {"role": "assistant", "content": None if bare else ""}
    return {**message, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def _calling_for(traits: TemplateTraits) -> TemplateMessage:
    return _calling(_SHORT_ID, traits.arguments_as_text, traits.calls_without_content)


def _result(call_id: str) -> TemplateMessage:
    return {"role": "tool", "content": "zqresult", "tool_call_id": call_id, "name": "zqtool"}


_SHORT_ID, _LONG_ID = "zqcall001", "call_zq0123456789abcdef"
_ENDING = [_turn("assistant", "zqanswer"), _user("zqlast")]
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "zqtool",
        "description": "zqpurpose",
        "parameters": {
            "type": "object",
            "properties": {"zqkey": {"type": "string", "description": "zqmeaning"}},
            "required": ["zqkey"],
        },
    },
}


TemplateMessage = dict[str, Any]
"""Message in the shape that Hugging Face's chat templates read."""

TEMPLATE_ERROR = "chat_template_error"  # Error code of a template's refusal

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
    """Return the conversation as rendered prompt text. Raises ProblemError: 400 with the template's own
    message, or with the limit that it exceeds.
    """
    try:
        return tokenizer.render(
            messages, tools=tools, continue_final_message=continue_final_message, options=dict(options or {})
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
    """Refuse template options that would override the server's own. Raises ProblemError: 400 that names the
    option.
    """
    for name in options:
        if name in RESERVED_OPTIONS or name.startswith("_") or not name.isidentifier():
            raise invalid(f"`{field}.{name}` is not an option that a request may set.", f"{field}.{name}")
