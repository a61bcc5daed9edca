"""The probe of models that embed or rank texts."""

from __future__ import annotations

import math
import struct

import attrs

from greenroom.engine.probe.questions import Answer, Question
from greenroom.schemas.events.result_events import Score, Vector
from greenroom.schemas.messages.requests import EmbeddingInput, ScoreInput
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import Problem, ProblemError

_TEXTS = ("The sea is calm today.", "It rains.")
_TOLERANCE = 1e-3
"""Largest deviation of a unit vector's length from 1, which 16-bit weights cause."""


@attrs.frozen
class EmbeddingProbe:
    """The question to a model that embeds: the vectors of two texts.

    Args:
        known: Record without findings of the probe.
    """

    known: ProbedCapabilities

    @property
    def questions(self) -> tuple[Question, ...]:
        return (Question(EmbeddingInput(_TEXTS)),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record with the vectors' length in numbers, and whether they are unit vectors.

        Raises:
            ProblemError: A vector holds something that is no number.
        """
        vectors = [_numbers(event) for event in answers[0].events if isinstance(event, Vector)]
        if len(vectors) != len(_TEXTS) or not all(math.isfinite(x) for vector in vectors for x in vector):
            raise ProblemError(unusable(self.known.model_id, "its vectors are not finite numbers"))
        normalized = all(abs(math.hypot(*vector) - 1) <= _TOLERANCE for vector in vectors)
        return attrs.evolve(self.known, embedding_dimensions=len(vectors[0]), is_normalized=normalized)


@attrs.frozen
class RerankProbe:
    """The question to a model that ranks: the scores of two documents.

    Args:
        known: Record to return if the probe finds no fault.
    """

    known: ProbedCapabilities

    @property
    def questions(self) -> tuple[Question, ...]:
        return (Question(ScoreInput(tuple(("Is the sea calm?", text) for text in _TEXTS))),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record.

        Raises:
            ProblemError: A score is not between 0 and 1.
        """
        scores = [event.value for event in answers[0].events if isinstance(event, Score)]
        if len(scores) != len(_TEXTS) or not all(0 <= score <= 1 for score in scores):
            raise ProblemError(unusable(self.known.model_id, "its scores are not between 0 and 1"))
        return self.known


def unusable(model: str, reason: str) -> Problem:
    """Return the problem of a model whose answers to a probe are of no use."""
    return Problem(500, "probe_failed", f"The model '{model}' failed its probe: {reason}.")


def _numbers(vector: Vector) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector.values) // 4}f", vector.values)
