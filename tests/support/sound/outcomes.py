"""Outcomes of opening an architecture, as lines of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

Word = Literal["equal", "opened", "refused", "library fails", "broken"]

MEANINGS: Mapping[Word, str] = {
    "equal": "a tiny model of it gave Greenroom what it gave mlx-audio's own `generate`",
    "opened": "its code is found and requests are prepared; the outputs were not compared, and why",
    "refused": "requests get this sentence",
    "library fails": "mlx-audio itself fails with a tiny model, and how",
    "broken": "Greenroom's output is another, or it fails where mlx-audio does not",
}


@attrs.frozen
class Outcome:
    """The outcome of opening one architecture.

    Args:
        why: One line of explanation; empty if `word` says it all.
    """

    word: Word
    why: str = ""


def one_line(text: object, longest: int = 240) -> str:
    """Return a text as one line, cut to a table cell."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    return line if len(line) <= longest else line[: longest - 1] + "…"


def table_of(head: str, outcomes: Mapping[str, Outcome]) -> str:
    """Return a page with a head, the counts of outcomes, and a row for each architecture."""
    counts = {word: sum(each.word == word for each in outcomes.values()) for word in MEANINGS}
    legend = [f"| {word} | {count} | {MEANINGS[word]} |" for word, count in counts.items()]
    rows = [f"| `{name}` | {each.word} | {one_line(each.why)} |" for name, each in sorted(outcomes.items())]
    return "\n".join(
        [
            head,
            "",
            "| | architectures | |",
            "|---|---|---|",
            *legend,
            "",
            "| architecture | | |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def rows_of(page: str) -> dict[str, str]:
    """Return the outcomes in a page's table, by architecture."""
    cells = (line.split(" | ") for line in page.splitlines() if line.startswith("| `"))
    return {row[0].removeprefix("| ").strip("`"): row[1].strip() for row in cells}
