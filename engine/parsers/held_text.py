"""Text that is held back until it is known what it is."""

from __future__ import annotations

from greenroom.engine.parsers.markers import WHITESPACE


class HeldText:
    """Pieces of text that are joined once, when they are wanted, however many they are."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        """Hold back one more piece."""
        if text:
            self._pieces.append(text)

    def take(self) -> str:
        """Return what is held, and hold nothing more."""
        if not self._pieces:
            return ""
        text = "".join(self._pieces)
        self._pieces = []
        return text

    def add_space_of(self, text: str) -> str:
        """Hold back the white space with which a text begins; return the rest."""
        rest = text.lstrip(WHITESPACE)
        self.add(text[: len(text) - len(rest)])
        return rest
