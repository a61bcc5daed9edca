"""Response bodies of the routes for operators."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class ServerStatus:
    """The response body of `GET /admin/status`.

    Args:
        status: `draining` while the server takes no new requests, `degraded` if a model, a thread or the
            database does not work; else `ok`.
        problems: Sentences that say what does not work.
        pid: Id of the process.
        started_at: Unix time in seconds.
        uptime: Seconds since then.
        models: Numbers of the models that were requested, by state.
        running: Number of requests that are being answered.
        waiting: Number of requests that wait for a model or for a slot in it.
        model_bytes: Bytes of memory that are granted to models.
        memory_limit: Bytes that models may have together, as set; null for the device's own limit.
    """

    status: Literal["ok", "degraded", "draining"]
    problems: tuple[str, ...]
    version: str
    pid: int
    started_at: float
    uptime: float
    models: dict[str, int]
    running: int
    waiting: int
    model_bytes: int
    memory_limit: int | None
