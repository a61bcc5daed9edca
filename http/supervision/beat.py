"""Signs of life that a supervised process writes into the pipe to its parent, one JSON object a line."""

from __future__ import annotations

import json
from typing import Literal, get_args

import attrs

Stage = Literal["starting", "serving", "ending"]
"""The stage of a server process: before it listens, while it listens, and once it drains."""

_MOST_NAMES, _LONGEST_NAME = 8, 300
"""Bounds of a line: a pipe takes 4,096 bytes whole or not at all. The next line tells what one has lost."""


@attrs.frozen
class Beat:
    """A sign of life, with what the process does at that moment.

    Args:
        stage: Stage of the process.
        importing: True while a library is imported, which may silence the process for long.
        busy: Names of the models that load or compute.
    """

    stage: Stage = "starting"
    importing: bool = False
    busy: tuple[str, ...] = ()

    def to_line(self) -> bytes:
        names = [name[:_LONGEST_NAME] for name in self.busy[:_MOST_NAMES]]
        fields = {"stage": self.stage, "importing": self.importing, "busy": names}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def parse_beat(line: bytes) -> Beat | None:
    """Return the beat of a line; None if it is none, such as the rest of a line that was cut."""
    try:
        read = json.loads(line)
        stage, importing, busy = read["stage"], read["importing"], read["busy"]
    except (ValueError, TypeError, KeyError):
        return None
    known = (
        stage in get_args(Stage) and isinstance(busy, list) and all(isinstance(name, str) for name in busy)
    )
    return Beat(stage, importing is True, tuple(busy)) if known else None
