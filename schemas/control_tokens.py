"""Tokens of a vocabulary that structure conversations instead of writing text."""

from __future__ import annotations

import attrs


@attrs.frozen
class ControlToken:
    """One such token.

    Args:
        text: How it is written.
        silent: It is no word that people write about: a special token, or one of the form `<|…|>`.
    """

    text: str
    silent: bool
