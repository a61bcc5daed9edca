"""Assistant turns as a template renders them, which is the text that a model would have to write."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any

import attrs

from greenroom.engine.adapters.conversation.message_converter import MessageConverter
from greenroom.engine.adapters.conversation.tool_prompt import as_openai_tool
from greenroom.engine.adapters.templates.chat_template import template_unusable
from greenroom.engine.adapters.templates.template_probe import TemplateTraits
from greenroom.engine.parsers.null import NullToolParser
from greenroom.engine.tokenizer.control_tokens import ControlTokenMarker
from greenroom.engine.tokenizer.rendering.budget import TemplateLimitError
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall

_BOUNDARIES = " \n\t>]▷"
"""Characters that end a marker, so that the text behind it starts cleanly."""

_REASONING_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"enable_thinking": True, "thinking": True},
    {"enable_thinking": False, "thinking": False},
)


@attrs.frozen
class RenderedTurn:
    """An assistant turn as a template renders it.

    Args:
        prompt: Text before the turn.
        text: Text of the turn, up to the token that ends it.
    """

    prompt: str
    text: str


class RenderedTurns:
    """Renders single turns with a model's own template.

    Args:
        tokenizer: Tokenizer with the template.
        traits: Traits of the template; turns are converted by them as those of requests are.
        stop_texts: Texts of the tokens that end a turn.
        tools: Tools that the conversation offers, if the template describes tools.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        traits: TemplateTraits,
        stop_texts: Collection[str],
        tools: tuple[Tool, ...],
    ) -> None:
        self._tokenizer = tokenizer
        self._traits = traits
        self._stop_texts = tuple(stop_texts)
        self._tools = [as_openai_tool(tool) for tool in tools] if traits.tools else traits.without_tools
        self._marker = ControlTokenMarker(tokenizer.control_tokens)

    def show(self, turn: Message) -> RenderedTurn | None:
        """Return the turn as the template renders it; None if part of its text or calls is missing."""
        words = [turn.text, *(call.name for call in turn.tool_calls)]
        results = [_result(call) for call in turn.tool_calls]
        endings = ([], results, [USER]) if results else ([], [USER])
        for ending in endings:
            rendered = self._render([USER, turn, *ending], prompts=False)
            if rendered is not None and all(word in rendered for word in words):
                shown = self._cut(rendered, whole=not ending)
                if shown is not None and all(word in shown.text for word in words):
                    return shown
        return None

    def description(self) -> str:
        """Return a prompt in which the template describes tools; empty if it describes none."""
        return (self._render([USER]) or "") if self._tools else ""

    def _render(self, messages: list[Message], *, prompts: bool = True, **options: Any) -> str | None:
        """Return a rendered conversation; None if the template refuses it.

        Args:
            prompts: True to end with the start of the assistant's next turn.
        """
        converter = MessageConverter(self._traits, NullToolParser(), self._marker)
        try:
            return self._tokenizer.render(
                converter.convert(messages),
                tools=self._tools,
                add_generation_prompt=prompts,
                options=options,
            )
        except TemplateLimitError as error:
            raise template_unusable(self._tokenizer.folder, error) from error
        except Exception:  # A refusal is a valid result.
            return None

    def _cut(self, rendered: str, whole: bool) -> RenderedTurn | None:
        """Return the text behind the prompt, up to the first token that ends a turn.

        Args:
            whole: True if nothing follows the turn, so that its end need not be found.
        """
        behind_user = rendered.find(USER.text) + len(USER.text)
        skipped = (_skip(opening, rendered, behind_user) for opening in self._openings)
        start = max(skipped, default=behind_user)
        ends = [at for text in self._stop_texts if (at := rendered.find(text, start)) >= 0]
        if ends:
            return RenderedTurn(rendered[:start], rendered[start : min(ends)])
        if not whole:
            return None
        turn = rendered[start:].rstrip().removesuffix(self._answered[1].strip())
        return RenderedTurn(rendered[:start], turn)

    @cached_property
    def _openings(self) -> list[str]:
        """Texts between a user message and the assistant's output, with and without reasoning."""
        rendered = [self._render([USER], **options) for options in _REASONING_OPTIONS]
        openings = [text[text.rfind(USER.text) + len(USER.text) :] for text in rendered if text is not None]
        return openings if any(openings) else [self._answered[0].partition(USER.text)[2]]

    @cached_property
    def _answered(self) -> tuple[str, str]:
        """Texts that the template writes before and after an answer."""
        rendered = self._render([USER, ANSWER], prompts=False) or ""
        before, _, behind = rendered.rpartition(ANSWER.text)
        return before, behind


def _skip(opening: str, rendered: str, position: int) -> int:
    """Return the end of the prefix that `rendered` shares with a turn's opening, apart from white space.

    If the two differ, the prefix ends behind a marker.
    """
    at, boundary = 0, position
    while at < len(opening) and position < len(rendered):
        if opening[at] == rendered[position]:
            at, position = at + 1, position + 1
        elif rendered[position].isspace():
            position += 1
        elif opening[at].isspace():
            at += 1
        else:
            return boundary
        if rendered[position - 1] in _BOUNDARIES:
            boundary = position
    return position if at == len(opening) else boundary


def _result(call: ToolCall) -> Message:
    return Message("tool", (TextPart("zqresult"),), tool_call_id=call.id)


USER = Message("user", (TextPart("zquser"),))
"""User message that the turns answer."""

ANSWER = Message("assistant", (TextPart("zqanswer"),))
