"""Request bodies and queries of the routes for operators."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class ModelRequest:
    """The body of a request about a model.

    Args:
        model: Name of the model: its own, an alias, or a profile.
    """

    model: str


@attrs.frozen
class UnloadRequest:
    """The body of `POST /admin/models/unload`.

    Args:
        model: Name of the model.
        mode: `drain` waits for the end of its requests; `now` fails them.
    """

    model: str
    mode: Literal["drain", "now"] = "drain"


@attrs.frozen
class PinRequest:
    """The body of `POST /admin/models/pin`.

    Args:
        model: Name of the model.
        pinned: False to let it be unloaded again for other models.
    """

    model: str
    pinned: bool = True


@attrs.frozen
class ProbeRequest:
    """The body of `POST /admin/models/probe`.

    Args:
        model: Name of the model.
        max_tokens: Longest answer to a question, in tokens; null for the probe's own limit.
        stream: True for events of its progress before the findings.
    """

    model: str
    max_tokens: int | None = None
    stream: bool = False


@attrs.frozen
class LogQuery:
    """The query of `GET /admin/logs`.

    Args:
        lines: Number of earlier lines to begin with, at most 1,000.
        follow: `false` to end after these.
    """

    lines: int = 1_000
    follow: bool = True
