"""What a model's numbers for a pair become: a score from 0 to 1."""

from __future__ import annotations

import math

from greenroom.engine.encoders.rows import Values
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.result_events import Score


def score_event(index: int, values: Values) -> Score:
    """Return the score of a pair.

    Raises:
        ProblemError: The model computed no number.
    """
    value = float(values[0])
    if not math.isfinite(value):
        detail = f"The model computed no finite score for document {index}: its weights may be broken."
        raise ProblemError(Problem(500, "invalid_result", detail))
    return Score(value, index)
