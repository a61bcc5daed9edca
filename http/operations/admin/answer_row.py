"""Rows of running batches, as operators see them."""

from __future__ import annotations

import attrs

from greenroom.http.answering.explanation_body import explanation_body
from greenroom.schemas.admin.answers import AnswerRow
from greenroom.schemas.events.statistics import RowStatistics


def answer_row(row: RowStatistics) -> AnswerRow:
    explanation = None if row.explanation is None else explanation_body(row.explanation)
    return AnswerRow(**attrs.asdict(row, recurse=False) | {"explanation": explanation})
