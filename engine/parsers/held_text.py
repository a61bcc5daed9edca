"""A buffer of text that is held back until its kind is known."""

from __future__ import annotations

from greenroom.engine.parsers.markers import WHITESPACE


class HeldText:
    """A buffer that joins its pieces of text only once, when they are taken."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        if text:
            self._pieces.append(text)

    def take(self) -> str:
        """Return the buffered text and clear the buffer."""
        if not self._pieces:
            return ""
        text = "".join(self._pieces)
        self._pieces = []
        return text

    def add_space_of(self, text: str) -> str:
        """Hold back the white space at the start of a text; return the rest."""
        rest = text.lstrip(WHITESPACE)
        self.add(text[: len(text) - len(rest)])
        return rest
