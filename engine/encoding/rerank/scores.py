"""Scores of pairs, from 0 to 1."""

from __future__ import annotations

import math

from greenroom.engine.encoding.rows import Values
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.problems import ProblemError, model_broken


def score_event(index: int, values: Values) -> Score:
    """Return the score of a pair.

    Raises:
        ProblemError: 503 `model_broken`: the model computed NaN or infinity.
    """
    value = float(values[0])
    if not math.isfinite(value):
        raise ProblemError(model_broken(f"document {index}"))
    return Score(value, index)
