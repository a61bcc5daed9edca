"""A request that its adapter has made ready; it stays in the process that computes the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from greenroom.schemas.control_tokens import ControlToken
from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.messages import Tool


class PreparedInput(Protocol):
    """What a prepared request of any kind tells the actors; the rest is between adapter and engine."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt, in tokens; 0 where the kind knows none."""

    @property
    def choices(self) -> int:
        """Answers that are wanted; each ends with a Finished of its own."""

    @property
    def dropped_messages(self) -> int:
        """How many of the oldest messages were left out of the prompt."""

    @property
    def system_prompt(self) -> str | None:
        """The operator's that the prompt begins with, empty for none; None if it does not come to that."""

    @property
    def parameters(self) -> GenerationParameters | None:
        """As resolved for the answer; None if the kind has none."""


class SingleAnswerInput:
    """What a request tells that has one answer, no messages, and no tokens that are counted beforehand."""

    @property
    def prompt_tokens(self) -> int:
        """None that are known."""
        return 0

    @property
    def choices(self) -> int:
        """The request is answered once, as a whole."""
        return 1

    @property
    def dropped_messages(self) -> int:
        """Nothing is left out."""
        return 0

    @property
    def system_prompt(self) -> None:
        """No conversation is begun."""
        return

    @property
    def parameters(self) -> None:
        """Nothing is sampled that a request could steer by them."""
        return


@attrs.frozen
class EchoedPrompt:
    """A prompt whose client wants it back.

    Args:
        text: What the client sees of it.
        hidden: Tokens at its beginning that the client did not write.
        scored: The log-probabilities of its tokens are wanted too.
        vocabulary: Tokens that the model has.
    """

    text: str
    hidden: int
    scored: bool
    vocabulary: int


@attrs.frozen
class PreparedImage:
    """One image or sound of a prompt, as its model's own processor has made it ready, by itself.

    Args:
        start: Where its tokens begin in the prompt, with whatever marks the processor puts between its rows.
        end: Behind the last of them.
        digest: SHA-256 over the image's file and whatever else decides what the processor makes of it.
        inputs: What the model takes beside the tokens, by argument: NumPy arrays (`pixel_values`,
            `image_grid_thw`, …) of this image alone.
        tokens: Positions whose embeddings the image gives; marks are not counted.
        is_sound: It is heard, not seen.
    """

    start: int
    end: int
    digest: bytes
    inputs: Mapping[str, Any] = attrs.field(eq=False, repr=False)
    tokens: int
    is_sound: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class PreparedPrompt:
    """A prompt that its adapter has made ready for a model that writes: any thread may hold it.

    Args:
        tokens: Prompt as token ids, `[prompt]`.
        stop_token_ids: Tokens that end a turn in this family, with those of the request.
        end_of_turn_ids: Those that end a turn, without those that only the request names.
        control_tokens: Tokens by id that are dropped where no format reads them.
        starts_in_thinking: The template has opened the thought itself.
        tools: Tools that were offered; a call to any other is plain text.
        stop: Strings that end the visible answer; they are not part of it.
        parse: Whether the answer is parsed for thoughts and calls (False for raw completions).
        max_tokens: Clamped to what is left of the context; 0 if only the prompt is wanted.
        parameters: As resolved from the request, the operator's settings and the model's defaults; where a
            field of this class has the same name, that one counts.
        checkpoints: Where the system's part and each turn end, in tokens from the start; later prompts are
            likely to share what is before one of them.
        matcher: Holds the answer to its grammar (`greenroom.engine.grammar.matching.matcher.Matcher`); it
            belongs to whoever generates, one thread at a time.
        dropped_messages: How many of the oldest messages were left out of the prompt.
        echo: The prompt as its client wants it back; None if it does not.
        images: In the order of the prompt; their spans share no token.
        appendix: Ends the visible text of each choice, without being generated; not that of a choice which
            ends with calls.
        system_prompt: The operator's that it begins with, empty for none; None if the conversation has its
            own, or if it is none.
    """

    tokens: tuple[int, ...]
    stop_token_ids: frozenset[int]
    max_tokens: int
    parameters: GenerationParameters = GenerationParameters()
    end_of_turn_ids: frozenset[int] = frozenset()
    control_tokens: Mapping[int, ControlToken] = attrs.field(factory=dict, eq=False, repr=False)
    starts_in_thinking: bool = False
    tools: tuple[Tool, ...] = ()
    stop: tuple[str, ...] = ()
    parse: bool = True
    checkpoints: tuple[int, ...] = ()
    matcher: Any = attrs.field(default=None, eq=False, repr=False)
    dropped_messages: int = 0
    echo: EchoedPrompt | None = None
    images: tuple[PreparedImage, ...] = ()
    appendix: str = ""
    system_prompt: str | None = attrs.field(default=None, repr=False)

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.tokens)

    @property
    def choices(self) -> int:
        """Answers that are wanted; each ends with an event of its own."""
        return self.parameters.n
