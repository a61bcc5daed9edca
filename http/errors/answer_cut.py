"""Error for an answer that breaks off in a format that cannot express failures."""

from __future__ import annotations


class AnswerCutError(Exception):
    """An error after which a started response is cut off, since its format cannot express a failure."""
