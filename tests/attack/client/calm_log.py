"""Reader of the calm client's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Calm:
    """A summary of the calm client's log for a span of time.

    Args:
        pieces: Number of stream chunks received.
        gap: Longest wait in seconds, without the time in which the client itself did not run.
        broken: Errors of streams.
        last_piece: Time of the last chunk, by `time.monotonic`.
    """

    pieces: int
    gap: float
    broken: tuple[str, ...]
    last_piece: float


class CalmLog:
    """A reader of the file that `calm_stream` writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self._rest = ""
        self._lines: list[dict[str, Any]] = []

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def since(self, moment: float) -> Calm:
        """Return a summary since a moment of `time.monotonic`."""
        return summarize([line for line in self._read() if line["at"] >= moment])

    def forget(self, moment: float) -> None:
        """Drop all lines before a moment of `time.monotonic`."""
        self._lines = [line for line in self._read() if line["at"] >= moment]

    def _read(self) -> list[dict[str, Any]]:
        *whole, self._rest = (self._rest + self._file.read()).split("\n")
        self._lines += [json.loads(line) for line in whole]
        return self._lines


def summarize(lines: list[dict[str, Any]]) -> Calm:
    """Summarize lines of the calm client's log."""
    pieces = [line for line in lines if line["kind"] == "piece"]
    waits = [line for line in lines if line["kind"] in ("piece", "probe")]
    late = [line for line in lines if line["kind"] == "late"]
    gaps = [max(0.0, line["gap"] - _lateness(line, late)) for line in waits]
    return Calm(
        len(pieces),
        max(gaps, default=0.0),
        tuple(line["detail"] for line in lines if line["kind"] == "broken"),
        max((line["at"] for line in pieces), default=0.0),
    )


def _lateness(wait: dict[str, Any], late: list[dict[str, Any]]) -> float:
    """Return the seconds of a wait in which the client itself did not run."""
    begin, end = wait["at"] - wait["gap"], wait["at"]
    return float(sum(max(0.0, min(end, of["at"]) - max(begin, of["at"] - of["gap"])) for of in late))
