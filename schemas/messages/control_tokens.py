"""Vocabulary tokens that structure conversations rather than encode text."""

from __future__ import annotations

import attrs


@attrs.frozen
class ControlToken:
    """A control token of a vocabulary.

    Args:
        text: Text of the token.
        silent: True for special tokens and tokens of the form `<|…|>`, which do not occur in ordinary text.
    """

    text: str
    silent: bool
