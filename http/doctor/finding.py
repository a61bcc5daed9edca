"""Findings of `greenroom doctor`, as lines of plain text."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class Finding:
    """A line of the report.

    Args:
        subject: Part that was examined, in a word or two.
        text: Observation; for a fault, with the remedy.
        wrong: True for a fault, which makes the exit status 1.
    """

    subject: str
    text: str
    wrong: bool = False

    def line(self) -> str:
        """Return the finding as a line; the user's name in paths is left out, as reports are public."""
        home = str(Path.home())
        text = self.text.replace(home, "~") if len(home) > 1 else self.text
        shown = "".join(each if each.isprintable() else " " for each in text)
        return f"{'WRONG' if self.wrong else 'ok':<6}{self.subject:<14}{shown}"
