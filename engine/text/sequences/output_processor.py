"""Protocols for the parts of an adapter that turn tokens into text and events."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Protocol

from greenroom.schemas.events.events import InferenceEvent, Token
from greenroom.schemas.messages.control_tokens import ControlToken
from greenroom.schemas.messages.prepared_input import PreparedPrompt


class Detokenizer(Protocol):
    """The part of mlx-lm's streaming detokenizers that sequences use."""

    @property
    def last_segment(self) -> str: ...

    def add_token(self, token: int) -> None: ...

    def finalize(self) -> None: ...


class Processor(Protocol):
    """The part of a stream processor that sequences use."""

    @property
    def stopped(self) -> str | None: ...

    @property
    def withheld(self) -> str: ...

    @property
    def has_tool_calls(self) -> bool: ...

    @property
    def in_reasoning(self) -> bool: ...

    @property
    def reasoning_tokens(self) -> int: ...

    @property
    def malformed_calls(self) -> int: ...

    def feed(
        self, text: str, tokens: int = 1, control: ControlToken | None = None
    ) -> GenericSequence[InferenceEvent]: ...

    def finish(self, *, ended_by_model: bool = True) -> GenericSequence[InferenceEvent]: ...


class OutputProcessor(Protocol):
    """The methods of an adapter that turn a sequence's tokens into text and events."""

    def new_detokenizer(self, prepared: PreparedPrompt) -> Detokenizer:
        """Return a detokenizer for the tokens that follow this prompt."""
        ...

    def new_stream_processor(
        self, prepared: PreparedPrompt, new_call_id: Callable[[], str], index: int = 0
    ) -> Processor: ...

    def token(self, ident: int) -> Token: ...
