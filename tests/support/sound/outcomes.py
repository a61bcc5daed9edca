"""Outcomes of opening an architecture, as lines of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import attrs

Word = Literal["equal", "opened", "refused", "library fails", "broken"]

MEANINGS: Mapping[Word, str] = {
    "equal": "a tiny model of it gave Greenroom what it gave mlx-audio's own `generate`",
    "opened": "its code is found and requests are prepared; the outputs were not compared",
    "refused": "requests get this reason",
    "library fails": "mlx-audio itself fails with a tiny model",
    "broken": "Greenroom's output differs, or it fails where mlx-audio does not",
}


_REFUSAL = re.compile(r"^'model' is a '\w+' model, which is not served: |^'model' (?=needs )")
"""Start of a refusal, the same for every architecture, which the table leaves out."""


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
    """Return a page with a head, counts, and a row for all architectures of the same outcome."""
    counts = {word: sum(each.word == word for each in outcomes.values()) for word in MEANINGS}
    legend = [f"| {word} | {count} | {MEANINGS[word]} |" for word, count in counts.items() if count]
    names: dict[tuple[str, str], list[str]] = {}
    for name, outcome in sorted(outcomes.items()):
        names.setdefault((outcome.word, _REFUSAL.sub("", one_line(outcome.why))), []).append(f"`{name}`")
    rows = [f"| {', '.join(same)} | {word} | {why} |" for (word, why), same in names.items()]
    return "\n".join(
        [
            head,
            "",
            "| result | architectures | meaning |",
            "|---|---|---|",
            *legend,
            "",
            "| architectures | result | reason |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def outcomes_of(page: str) -> dict[str, Outcome]:
    """Return the outcomes in a page's table, by architecture."""
    rows: list[tuple[str, Word, str]] = re.findall(
        r"^\| (`.+?`) \| ([a-z ]+) \| ?(.*?) ?\|$", page, re.MULTILINE
    )
    return {
        name: Outcome(word, why.replace("\\|", "|"))
        for names, word, why in rows
        for name in re.findall(r"\w+", names)
    }
