"""The end of an answer that its form has no words for."""

from __future__ import annotations


class AnswerCutError(Exception):
    """An answer that has begun cannot be completed, and its form has no words for that: it is cut off."""
