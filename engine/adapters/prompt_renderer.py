"""Rendering of a chat request as the model's prompt text, with its system messages in one place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import attrs

from greenroom.engine.adapters.conversation import (
    NO_MEDIA,
    MessageConverter,
    UnshownParameters,
    as_openai_tool,
    full_descriptions,
    numbers_in_parts,
    tool_prompt,
)
from greenroom.engine.adapters.detection import ParserChoice, renders
from greenroom.engine.adapters.message_quirks import (
    PLAIN_FORMS,
    MessageQuirks,
    find_message_quirks,
    render_turns,
)
from greenroom.engine.adapters.reasoning_switches import NO_CHANGES, PromptChanges
from greenroom.engine.adapters.template_probe import (
    TEMPLATE_ERROR,
    TemplateMessage,
    TemplateTraits,
    check_options,
    render_conversation,
    template_renderer,
    tool_renderer,
)
from greenroom.engine.tokenizer.control_tokens import ControlTokenMarker, unmark
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import JsonObject, Message, TextPart, Tool
from greenroom.schemas.messages.requests import ChatInput, Verbosity
from greenroom.schemas.problems import ProblemError, invalid

log = get_logger(__name__)


@attrs.frozen
class RenderedPrompt:
    """A rendered conversation.

    Args:
        text: Prompt text, with control tokens of user text marked.
        opens_reasoning: True if the prompt ends inside reasoning.
        image_parts: Numbers of the images and audio passed to the template as content parts, in order.
    """

    text: str
    tools: tuple[Tool, ...]
    opens_reasoning: bool
    image_parts: tuple[int, ...] = ()


class PromptRenderer:
    """Renders chat requests for one model.

    Args:
        tokenizer: Tokenizer with the chat template.
        choice: Parsers of the model's calls and reasoning, and traits of its template.
        tool_injection: True if tools that the template does not describe may be in the system message.
        media: Media that the template takes as content parts, by role.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        choice: ParserChoice,
        *,
        tool_injection: bool,
        media: Mapping[str, Collection[str]] = NO_MEDIA,
    ) -> None:
        self._tokenizer = tokenizer
        self._traits = choice.traits
        self._tool_parser = choice.tool_parser
        self._reasoning_parser = choice.reasoning_parser
        self._native_tools = choice.native_tools
        self._tool_injection = tool_injection
        self._media = media
        self._marker = ControlTokenMarker(tokenizer.control_tokens)
        self._forms = self._find_forms()
        self._unshown: UnshownParameters | None = None
        if self._traits is not None and choice.native_tools:
            self._unshown = UnshownParameters(tool_renderer(tokenizer, self._traits))
        self._has_warned = False

    def render(self, chat: ChatInput, changes: PromptChanges = NO_CHANGES) -> RenderedPrompt:
        """Return the prompt of a chat request.

        Tools that the template fails to describe, or of which it leaves out parameters, are described in the
        system message.

        Raises:
            ProblemError: 400 for anything that the request or the template cannot do.
        """
        traits = self._check(chat)
        offered = () if chat.tool_choice.mode == "none" else chat.tools
        try:
            text, images = self._render(chat, traits, changes, offered, native=self._native_tools)
        except ProblemError as refused:
            may_inject = offered and self._native_tools and self._tool_injection
            if refused.problem.code != TEMPLATE_ERROR or not may_inject or not renders(self._tool_parser):
                raise
            try:
                text, images = self._render(chat, traits, changes, offered, native=False)
            except ProblemError:
                raise refused from None
        return RenderedPrompt(text, offered, self._opens_reasoning(text, chat), images)

    def _render(
        self,
        chat: ChatInput,
        traits: TemplateTraits,
        changes: PromptChanges,
        offered: tuple[Tool, ...],
        *,
        native: bool,
    ) -> tuple[str, tuple[int, ...]]:
        """Return the prompt's text, and the numbers of the images that the template got as content parts."""
        described = [self._mark(tool) for tool in offered if tool.described]
        instructions = self._tool_instructions(described, native=native) if described else ""
        render = partial(
            render_conversation,
            self._tokenizer,
            tools=[as_openai_tool(tool) for tool in described if native] or traits.without_tools,
            continue_final_message=chat.continue_final_message,
            options=self._mark_json({**changes.options, **chat.template_options}, "chat_template_kwargs"),
        )

        images: tuple[int, ...] = ()

        def convert(forms: MessageQuirks) -> list[TemplateMessage]:
            nonlocal images
            converter = MessageConverter(traits, self._tool_parser, self._marker, forms, self._media)
            converted = converter.convert(chat.messages, instructions, changes)
            images = numbers_in_parts(converted)
            return converted

        text = render_turns(convert, render, self._forms, without_content=traits.calls_without_content)
        ended = text if chat.continue_final_message else text + self._reasoning_end(text, changes)
        return ended, images

    def _find_forms(self) -> MessageQuirks:
        if self._traits is None:
            return PLAIN_FORMS
        render = template_renderer(self._tokenizer, self._traits)
        source = self._tokenizer.chat_template
        return find_message_quirks(render, source, self._traits, self._tool_parser, self._reasoning_parser)

    def _check(self, chat: ChatInput) -> TemplateTraits:
        if self._traits is None:
            detail = "This model has no chat template: it continues raw text only, under /v1/completions."
            raise invalid(detail, "messages", "no_chat_template")
        if not chat.messages:
            raise invalid("`messages` is empty: there is nothing to answer.", "messages")
        if chat.continue_final_message and chat.messages[-1].role != "assistant":
            field = "continue_final_message"
            raise invalid(f"`{field}` needs an assistant's message at the end.", field)
        check_options(chat.template_options)
        return self._traits

    def _tool_instructions(self, described: Sequence[Tool], *, native: bool) -> str:
        if native:
            partly = [tool for tool in described if self._hides_parameters(tool)]
            return full_descriptions(partly) if partly and self._tool_injection else ""
        if not self._tool_injection:
            detail = (
                "This model's template takes no tools, and describing them in the prompt is off (setting "
                "tool_injection)."
            )
            raise invalid(detail, "tools", "unsupported_parameter")
        return tool_prompt(described, self._tool_parser)

    def _hides_parameters(self, tool: Tool) -> bool:
        """Return whether the template does not show all parameters of a tool, and warn of the first such."""
        names = () if self._unshown is None else self._unshown.of(tool)
        if names and not self._has_warned:
            self._has_warned = True
            model, hidden = self._tokenizer.folder.name, [unmark(name) for name in names]
            tool_name = unmark(tool.name)[:100]
            log.warning("template hides parameters", actor="model", model=model, tool=tool_name, names=hidden)
        return bool(names)

    def _mark(self, tool: Tool) -> Tool:
        mark = self._marker
        return attrs.evolve(
            tool,
            name=mark.text(tool.name),
            description=mark.text(tool.description),
            parameters=self._mark_json(tool.parameters, "tools"),
        )

    def _mark_json(self, value: JsonObject, field: str) -> JsonObject:
        try:
            marked: JsonObject = self._marker.value(value)
        except ValueError as error:
            raise invalid(f"`{field}` is {error}.", field) from None
        return marked

    def _reasoning_end(self, text: str, changes: PromptChanges) -> str:
        """Return the text that ends the reasoning; empty if it would close reasoning that is not open."""
        for start, end in self._reasoning_parser.markers:
            closes_only = changes.prompt_end.lstrip().startswith(end)
            if closes_only and not text.rstrip().endswith(start):
                return ""
        return changes.prompt_end

    def _opens_reasoning(self, text: str, chat: ChatInput) -> bool:
        """Return whether the answer continues reasoning opened by the template or the answer's prefix."""
        if not chat.continue_final_message:
            return self._reasoning_parser.is_opened_by(text)
        begun = unmark(chat.messages[-1].text)
        return any(begun.rfind(start) > begun.rfind(end) for start, end in self._reasoning_parser.markers)


_SENTENCES: dict[Verbosity, str] = {
    "low": "Keep your answers short.",
    "high": "Answer at length and in detail.",
}
"""Instructions by verbosity; `medium` is the model's own behavior."""


class SystemMessages:
    """Completes the system messages of conversations before rendering. `default`: default system prompt of
    conversations without one; empty for none.
    """

    def __init__(self, default: str = "") -> None:
        self._default = default

    def default_of(self, chat: ChatInput) -> str | None:
        """Return the system prompt that the operator adds, maybe empty; None if the conversation has one."""
        return chat.operators_prompt(self._default)

    def complete(self, chat: ChatInput) -> ChatInput:
        """Return the conversation with the default system prompt and the instructions for verbosity."""
        messages = chat.messages
        if default := self.default_of(chat):
            messages = (_system(default), *messages)
        sentence = _SENTENCES.get(chat.verbosity)
        if sentence is not None:
            messages = _told(messages, sentence)
        return chat if messages is chat.messages else attrs.evolve(chat, messages=messages)


def _told(messages: tuple[Message, ...], sentence: str) -> tuple[Message, ...]:
    if not messages or messages[0].role != "system":
        return (_system(sentence), *messages)
    first, *others = messages
    return (attrs.evolve(first, content=(*first.content, TextPart(f"\n\n{sentence}"))), *others)


def _system(text: str) -> Message:
    return Message("system", (TextPart(text),))
