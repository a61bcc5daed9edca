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
        system_prompt: The operator's that the conversation began with, empty for none; None takes what is set
            now. It is for conversations without a system message.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_options: JsonObject = attrs.field(factory=dict)
    continue_final_message: bool = False
    parallel_tool_calls: bool = True
    thinking: Thinking = Thinking()
    verbosity: Verbosity = "medium"
    system_prompt: str | None = attrs.field(default=None, repr=False)


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


@attrs.frozen
class EmbeddingInput:
    """Texts that are turned into vectors, one for each.

    Args:
        texts: Text, or token ids that are taken as they stand.
        dimensions: How many numbers each vector shall have; None for all that the model gives.
        input_type: What the texts are for, in the words of the model's own prompts (`query`, `document`, …).
        instruction: What is to be found with them, for models that are told; goes before `input_type`.
        truncate: A text that is too long loses its end instead of being refused.
        param: What the client calls the texts, for errors.
    """

    texts: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None
    input_type: str | None = None
    instruction: str | None = None
    truncate: bool = False
    param: str = attrs.field(default="input", kw_only=True, eq=False)


@attrs.frozen
class ScoreInput:
    """Pairs of texts, each scored for how well the second answers the first.

    Args:
        pairs: Query and document.
        instruction: What makes a document relevant, for models that are told.
        truncate: A document that is too long loses its end instead of being refused.
        document_tokens: Of a document that are read; None for all that fit.
        param: What the client calls the documents, for errors; `query_param` likewise.
    """

    pairs: tuple[tuple[str, str], ...]
    instruction: str | None = None
    truncate: bool = True
    document_tokens: int | None = None
    param: str = attrs.field(default="documents", kw_only=True, eq=False)
    query_param: str = attrs.field(default="query", kw_only=True, eq=False)


@attrs.frozen
class SpeechInput:
    """Text that is spoken.

    Args:
        voice: One of the model's, or None for its own choice.
        speed: Of speech; 1 is the model's own.
        instructions: How to speak, for models that are told.
        language: Of the text, as ISO 639-1 has it; None lets the model decide.
        reference: Path of a spooled audio file whose voice is to be imitated.
        reference_text: What is said in it.
    """

    text: str
    voice: str | None = None
    speed: float = 1.0
    instructions: str = ""
    language: str | None = None
    reference: str | None = None
    reference_text: str | None = None


@attrs.frozen
class TranscriptionInput:
    """Recorded speech that is written down.

    Args:
        file: Path of the spooled audio file, in any container; it outlives the request.
        task: `translate` writes English, whatever is spoken.
        language: Spoken, as ISO 639-1 has it; None has it detected.
        prompt: Text that precedes, in whose style and with whose names the model goes on.
        word_timestamps: Words get their times too.
        temperature: Of sampling; None lets the model begin at 0 and rise where it fails.
    """

    file: str
    task: Literal["transcribe", "translate"] = "transcribe"
    language: str | None = None
    prompt: str = ""
    word_timestamps: bool = False
    temperature: float | None = None


RequestInput = ChatInput | RawInput | EmbeddingInput | ScoreInput | SpeechInput | TranscriptionInput
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
