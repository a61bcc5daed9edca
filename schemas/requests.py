"""A request to a model, in no protocol's dialect and for any kind of model: kinds differ in `input`."""

from __future__ import annotations

from typing import Literal

import attrs

from greenroom.schemas.generation import Overrides
from greenroom.schemas.messages import JsonObject, Message, Tool, ToolChoice
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.response_format import ResponseFormat
from greenroom.schemas.thinking import Thinking

Verbosity = Literal["low", "medium", "high"]
"""How much the model shall say."""

VERBOSITIES: tuple[Verbosity, ...] = ("low", "medium", "high")


@attrs.frozen
class ChatInput:
    """A conversation that goes through the model's template.

    Args:
        template_options: Extra variables for the template, e.g. `{"enable_thinking": False}`; they go before
            what `thinking` asks for.
        continue_final_message: The last message is an assistant's beginning, to be continued.
        parallel_tool_calls: More than one call may be made.
        thinking: Whether and how much the model shall think.
        verbosity: How much it shall say; `medium` is what it says by itself.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_options: JsonObject = attrs.field(factory=dict)
    continue_final_message: bool = False
    parallel_tool_calls: bool = True
    thinking: Thinking = Thinking()
    verbosity: Verbosity = "medium"


@attrs.frozen
class RawInput:
    """Text or token ids that are continued as they stand: no template, no parsing.

    Args:
        suffix: What comes after the answer; models of code can be trained for that.
        begins: Text gets the tokens that the model wants at a prompt's beginning.
        echo: The client wants the prompt back (`PromptText`).
        scored: How long a prompt may be whose tokens' log-probabilities are wanted too, with `echo`; None if
            they are not.
        answered: False generates nothing.
        param: What the client calls the prompt, for errors.
    """

    prompt: str | tuple[int, ...]
    suffix: str = ""
    begins: bool = True
    echo: bool = False
    scored: int | None = None
    answered: bool = True
    param: str = attrs.field(default="prompt", kw_only=True, eq=False)


RequestInput = ChatInput | RawInput
"""What a model is asked about; a kind of model that takes something else adds a class here."""


Overflow = Literal["refuse", "drop_oldest"]
"""What becomes of a conversation that does not fit: it is refused, or loses its oldest whole turns."""


@attrs.frozen
class InferenceRequest:
    """One request on its way to a model.

    Args:
        id: Request id, as in the logs and in `x-request-id`.
        overrides: Parameters that the client set, already checked.
        response_format: What the visible answer must look like.
        client: Who asks, for fairness: an address, and behind a `#` a key, if there is one; empty if unknown.
        overflow: What becomes of a conversation that is too long; other input is always refused.
    """

    id: str
    key: ModelKey
    input: RequestInput
    overrides: Overrides = attrs.field(factory=dict)
    response_format: ResponseFormat | None = attrs.field(default=None, kw_only=True)
    overflow: Overflow = attrs.field(default="refuse", kw_only=True)
    client: str = ""

    @property
    def choices(self) -> int:
        """Answers that are wanted."""
        return int(self.overrides.get("n", 1))
