"""A request for generated text, in no protocol's dialect."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.generation import GenerationParameters, Overrides
from greenroom.schemas.messages import JsonObject, Message, Tool, ToolChoice
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.response_format import ResponseFormat


@attrs.frozen
class ChatInput:
    """A conversation that goes through the model's template.

    Args:
        template_options: Extra variables for the template, e.g. `{"enable_thinking": False}`.
        continue_final_message: The last message is an assistant's beginning, to be continued.
        parallel_tool_calls: More than one call may be made.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_options: JsonObject = attrs.field(factory=dict)
    continue_final_message: bool = False
    parallel_tool_calls: bool = True


@attrs.frozen
class RawInput:
    """Text or token ids that are continued as they stand: no template, no parsing."""

    prompt: str | tuple[int, ...]


@attrs.frozen
class GenerationRequest:
    """One request on its way to a model.

    Args:
        id: Request id, as in the logs and in `x-request-id`.
        overrides: Parameters that the client set, already checked.
        response_format: What the visible answer must look like.
        client: Who asks (an API key's name, an address), for fairness; empty if unknown.
    """

    id: str
    key: ModelKey
    input: ChatInput | RawInput
    overrides: Overrides = attrs.field(factory=dict)
    response_format: ResponseFormat | None = attrs.field(default=None, kw_only=True)
    client: str = ""

    @property
    def choices(self) -> int:
        """Answers that are wanted."""
        return int(self.overrides.get("n", 1))


@attrs.frozen
class PreparedInput:
    """A request that its adapter has made ready for the model: any thread may hold it.

    Args:
        tokens: Prompt as token ids, `[prompt]`.
        stop_token_ids: Tokens that end a turn in this family, with those of the request.
        starts_in_thinking: The template has opened the thought itself.
        tools: Tools that were offered; a call to any other is plain text.
        stop: Strings that end the visible answer; they are not part of it.
        parse: Whether the answer is parsed for thoughts and calls (False for raw completions).
        max_tokens: Clamped to the room that is left in the context.
        parameters: As resolved from the request, the operator's settings and the model's defaults; where a
            field of this class has the same name, that one counts.
        checkpoints: Where the system's part and each turn end, in tokens from the start; later prompts are
            likely to share what is before one of them.
        matcher: Holds the answer to its grammar (`greenroom.engine.grammar.matcher.RowMatcher`); it belongs
            to whoever generates, one thread at a time.
    """

    tokens: tuple[int, ...]
    stop_token_ids: frozenset[int]
    max_tokens: int
    parameters: GenerationParameters = GenerationParameters()
    starts_in_thinking: bool = False
    tools: tuple[Tool, ...] = ()
    stop: tuple[str, ...] = ()
    parse: bool = True
    checkpoints: tuple[int, ...] = ()
    matcher: Any = attrs.field(default=None, eq=False, repr=False)
