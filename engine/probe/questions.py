"""A probe's questions to a model, and the model's answers to them, as data."""

from __future__ import annotations

from typing import Protocol

import attrs

from greenroom.schemas.events.events import Finished, InferenceEvent
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.requests import RequestInput
from greenroom.schemas.models.capabilities import ProbedCapabilities

SEED = 1
"""Seed of the answers: a probe of the same files finds the same."""


@attrs.frozen
class Question:
    """A request of a probe.

    Args:
        input: Input of the request.
        overrides: Generation parameters.
        prompt: Text of the prompt; empty for models without one.
        city: City for which the model should call the weather tool; empty for other questions.
        thinking: Requested state of the reasoning switch; None if there is none.
    """

    input: RequestInput
    overrides: Overrides = attrs.field(factory=dict)
    prompt: str = attrs.field(default="", repr=False)
    city: str = ""
    thinking: bool | None = None


@attrs.frozen
class Answer:
    """The events of the answer to a question, the last of which is its end."""

    question: Question
    events: tuple[InferenceEvent, ...]

    @property
    def raw(self) -> str:
        """The model's unparsed output."""
        last = self.events[-1]
        return last.raw if isinstance(last, Finished) else ""

    @property
    def is_whole(self) -> bool:
        """True if the model itself ended the answer."""
        last = self.events[-1]
        return isinstance(last, Finished) and last.reason in ("stop", "tool_calls")


class Probe(Protocol):
    """The questions that find out what one model can do, and the judgement of its answers."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions, to be asked in order."""

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record with the findings of all answers.

        Raises:
            ProblemError: The answers show that the model is unusable.
        """
