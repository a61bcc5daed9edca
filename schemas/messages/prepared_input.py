"""Prepared requests, which stay in the process that computes the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import ControlToken, Role, Tool


class PreparedInput(Protocol):
    """The part of a prepared request that actors read; the rest is between adapter and engine."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens; 0 for model types without prompt tokens."""

    @property
    def choices(self) -> int:
        """Number of requested answers; each ends with its own Finished."""

    @property
    def dropped_messages(self) -> int:
        """Number of oldest messages omitted from the prompt."""

    @property
    def system_prompt(self) -> str | None:
        """The operator's system prompt in use, empty if there is none; None if it does not apply."""

    @property
    def parameters(self) -> GenerationParameters | None:
        """Resolved generation parameters; None for model types without any."""

    @property
    def notice(self) -> str:
        """Sentence for the client about a wish that the model cannot fulfil; empty if there is none."""


class SingleAnswerInput:
    """Defaults for requests with one answer, no messages, and no tokens that are counted in advance."""

    choices = 1
    dropped_messages = 0
    system_prompt: None = None
    parameters: None = None
    notice = ""

    @property
    def prompt_tokens(self) -> int:
        return 0


@attrs.frozen
class EchoedPrompt:
    """A prompt that is returned to its client.

    Args:
        hidden: Number of initial tokens that the client did not write.
        scored: True if the log-probabilities of its tokens are requested too.
        vocabulary: Size of the model's vocabulary.
    """

    text: str
    hidden: int
    scored: bool
    vocabulary: int


@attrs.frozen
class PreparedImage:
    """An image or a sound of a prompt, processed on its own by its model's processor.

    Args:
        start: Index of its first prompt token, including the processor's separators between rows.
        end: Index behind its last prompt token.
        digest: SHA-256 digest of the image's file and of everything else that affects its processing.
        inputs: Model inputs besides the tokens, by argument name: NumPy arrays (`pixel_values`,
            `image_grid_thw`, …) of this image alone.
        tokens: Number of positions with image embeddings; separators are not counted.
        is_sound: True for audio, False for an image.
    """

    start: int
    end: int
    digest: bytes
    inputs: Mapping[str, Any] = attrs.field(eq=False, repr=False)
    tokens: int
    is_sound: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class OutlinedPart:
    """A message or a tool of a prompt, without its text.

    Args:
        size: Length of its text in bytes.
        index: Index in the client's request; None if the server has added it.
        role: Role of the message; None for a tool.
    """

    digest: bytes
    size: int
    index: int | None = None
    role: Role | None = None


@attrs.frozen
class PromptOutline:
    """The parts of a conversation, by which the first difference between two prompts is found.

    Args:
        dropped: Number of oldest messages omitted from the prompt.
    """

    messages: tuple[OutlinedPart, ...] = ()
    tools: tuple[OutlinedPart, ...] = ()
    dropped: int = 0


@attrs.frozen
class PreparedPrompt:
    """A prompt prepared by its adapter for a text model; any thread may hold it.

    Args:
        tokens: Token ids of the prompt, `[prompt]`.
        stop_token_ids: Tokens that end a turn in this family, and the request's own stop tokens.
        end_of_turn_ids: Tokens that end a turn, without those that only the request names.
        control_tokens: Control tokens by id; they are removed from the output where no format reads them.
        starts_in_reasoning: True if the template has opened the reasoning block itself.
        tools: Available tools; a call to any other tool is plain text.
        stop: Stop strings of the visible answer, which are not part of it.
        parse: True if the answer is parsed for reasoning and tool calls (False for raw completions).
        max_tokens: Maximum number of generated tokens, clamped to the rest of the context; 0 for prefill
            alone.
        parameters: Parameters resolved from the request, the operator's settings and the model's defaults,
            with `max_tokens` as above; another field of this class with the same name takes precedence.
        checkpoints: Ends of the system message and of each turn, in tokens from the start; later prompts are
            likely to share the prefix up to one of them.
        matcher: Grammar matcher of the answer (`greenroom.engine.grammar.matcher.Matcher`), for use
            by one thread at a time; None for an unconstrained answer.
        dropped_messages: Number of oldest messages omitted from the prompt.
        echo: Prompt to return to the client; None if the client did not request it.
        images: Images and sounds in prompt order; their spans share no token.
        appendix: Text appended to each choice's visible text without being generated, except to a choice that
            ends with tool calls.
        system_prompt: The operator's system prompt in use, empty if there is none; None if the conversation
            has its own, or if the request is no conversation.
        notice: Sentence for the client about a wish that the model cannot fulfil; empty if there is none.
        predicted: Tokens of the client's prediction of the answer.
        rendered: Text of the rendered conversation, kept for the inspector and the log only; else empty.
        outline: Outline of the conversation; None for raw text, or if prompts are not explained.
        adapter: Opened adapter of the request (`greenroom.engine.lora.files.OpenedAdapter`); None for none.
    """

    tokens: tuple[int, ...]
    stop_token_ids: frozenset[int]
    max_tokens: int
    parameters: GenerationParameters = GenerationParameters()
    end_of_turn_ids: frozenset[int] = frozenset()
    control_tokens: Mapping[int, ControlToken] = attrs.field(factory=dict, eq=False, repr=False)
    starts_in_reasoning: bool = False
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
    notice: str = ""
    predicted: int = 0
    rendered: str = attrs.field(default="", eq=False, repr=False)
    outline: PromptOutline | None = attrs.field(default=None, eq=False, repr=False)
    adapter: Any = attrs.field(default=None, eq=False, repr=False)

    @property
    def prompt_tokens(self) -> int:
        return len(self.tokens)

    @property
    def choices(self) -> int:
        """Number of requested answers; each ends with its own event."""
        return self.parameters.n
