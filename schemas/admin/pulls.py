"""Bodies of the routes that fetch, search and delete models."""

from __future__ import annotations

import attrs

from greenroom.schemas.protocols.download_protocol import DownloadStage, PullState, PullStatus


@attrs.frozen
class PullBody:
    """The request body of `POST /admin/pull`.

    Args:
        model: `OWNER/NAME` or `OWNER/NAME@REVISION`.
        probe: False to leave out the probe that follows if the model fits beside the loaded ones.
    """

    model: str
    probe: bool = True


@attrs.frozen
class PullReport:
    """The state of a fetch, as an event of `POST /admin/pull` and in `GET /admin/pulls`.

    Args:
        files: Number of files that the model needs; 0 until it is known.
        bytes: Size of these files.
        received: Bytes of them that are on this machine.
        bytes_per_second: Rate at which they arrive.
        eta_ms: Estimated milliseconds until the end; null if unknown.
        started_at: Unix time in seconds.
        ended_at: Unix time in seconds; null while it runs.
        problem: Sentence that says why it failed.
    """

    id: str
    model: str
    revision: str
    state: PullState
    stage: DownloadStage
    files: int
    bytes: int
    received: int
    bytes_per_second: int
    eta_ms: int | None
    started_at: float
    ended_at: float | None
    problem: str | None


def pull_report(status: PullStatus) -> PullReport:
    """Return a fetch as operators see it."""
    progress, running = status.progress, status.state == "running"
    return PullReport(
        status.id,
        status.model,
        status.revision,
        status.state,
        progress.stage,
        progress.files,
        progress.nbytes,
        progress.received,
        round(progress.rate) if running else 0,
        progress.eta_ms if running else None,
        round(status.started, 3),
        None if status.ended is None else round(status.ended, 3),
        None if status.problem is None else status.problem.detail,
    )


@attrs.frozen
class PullReports:
    """The answer of `GET /admin/pulls`, the newest last."""

    pulls: tuple[PullReport, ...]


@attrs.frozen
class SearchQuery:
    """The query of `GET /admin/search`.

    Args:
        q: Words of the models' names.
        limit: Maximum number of models, 1 to 100.
    """

    q: str
    limit: int = 20


@attrs.frozen
class DeleteBody:
    """The request body of `POST /admin/models/delete`.

    Args:
        model: The model's own id; with `@REVISION`, only that revision of a model of the hub.
    """

    model: str


@attrs.frozen
class DeletedModel:
    """The answer of `POST /admin/models/delete`.

    Args:
        freed_bytes: Bytes of disk that are free again.
    """

    model: str
    freed_bytes: int
