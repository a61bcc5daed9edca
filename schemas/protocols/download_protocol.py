"""The messages to and from the downloads actor, which searches, fetches and deletes models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from greenroom.schemas.problems import Problem

DownloadStage = Literal["resolving", "waiting", "downloading"]
"""The stage of a download: the hub is asked for its files, another process fetches the same model, or files
arrive (and those of an earlier run are read again)."""


PullState = Literal["running", "completed", "failed", "cancelled"]


@attrs.frozen
class DownloadProgress:
    """The progress of a download.

    Args:
        files: Number of files that the model needs; 0 until it is known.
        nbytes: Size of these files in bytes.
        received: Bytes of them that are on this machine, by this or an earlier run.
        rate: Bytes that arrive per second, measured over the last seconds.
    """

    stage: DownloadStage
    files: int = 0
    nbytes: int = 0
    received: int = 0
    rate: float = 0.0

    @property
    def eta_ms(self) -> int | None:
        """Estimated milliseconds until the end; None if unknown."""
        return round(1000 * (self.nbytes - self.received) / self.rate) if self.rate > 0 else None


@attrs.frozen
class PullModel:
    """Fetch a model from the hub, or join its fetch; closing the reply does not end it.

    Reply: PullStatus at once and at each change, then Pulled; or Failed at any point, with the code
    `download_cancelled` if an operator has cancelled it.

    Args:
        name: `OWNER/NAME` or `OWNER/NAME@REVISION`.
        probes: True to probe the model afterwards, if it fits into memory without unloading another.
        trust_remote_code: Whether to fetch the model's own Python code too.
        attached: True to end the fetch when the last reply closes that wanted it.
        client: Name of the client whose request began it, which fetches one at a time; None for an operator.
    """

    name: str
    probes: bool = True
    trust_remote_code: bool = False
    attached: bool = False
    client: str | None = None


@attrs.frozen
class PullStatus:
    """The state of a fetch.

    Args:
        revision: Branch, tag or commit that was asked for.
        started: Unix time in seconds.
        ended: Unix time in seconds; None while it runs.
    """

    id: str
    model: str
    revision: str
    state: PullState
    progress: DownloadProgress
    started: float
    ended: float | None = None
    problem: Problem | None = None


@attrs.frozen
class Pulled:
    """The end of a fetch: the model's files are on this machine."""

    model: str
    folder: str


@attrs.frozen
class PullCancelled:
    """Confirmation that a fetch was cancelled; what has arrived stays for the next one."""

    id: str


def download_cancelled(model: str) -> Problem:
    return Problem(503, "download_cancelled", f"The download of '{model}' was cancelled by the operator.")


MAX_PULLS = 32
"""Maximum number of fetches that run or wait for their turn."""


def too_many_pulls() -> Problem:
    """Return the problem of a fetch that finds no place, or is beyond its client's share of them."""
    detail = (
        f"Too many models are being fetched: all clients together may have {MAX_PULLS}, and one alone not "
        "all of them. Try again when one has arrived."
    )
    return Problem(503, "too_many_pulls", detail, retry_after=60)


def download_abandoned(model: str) -> Problem:
    """Return the problem of a request that came just when a download ended with its last client."""
    detail = f"The download of '{model}' ended with the last request that waited for it; send yours again."
    return Problem(409, "download_abandoned", detail, "model", retry_after=1)


@attrs.frozen
class ListPulls:
    """List the fetches. Reply: Pulls."""


@attrs.frozen
class Pulls:
    """The running fetches and the latest ended ones, the newest last.

    Args:
        ended: Numbers of all ended ones by state, since the server's start.
    """

    pulls: tuple[PullStatus, ...]
    ended: Mapping[PullState, int] = attrs.field(factory=dict)


@attrs.frozen
class CancelPull:
    """Cancel a fetch. Reply: PullCancelled, once it has ended; or Failed."""

    id: str


PullStage = Literal["started", "progress", "completed", "cancelled", "failed"]


@attrs.frozen
class WatchPulls:
    """Follow the fetches. Reply: PullNews for each that runs, then for each change, without end.

    A reader that is too slow gets Failed.
    """


@attrs.frozen
class PullNews:
    """A change of a fetch; progress is told at most once a second."""

    stage: PullStage
    status: PullStatus


@attrs.frozen
class SearchHub:
    """Search the hub for models that MLX reads. Reply: FoundModels, or Failed."""

    words: str
    limit: int = 20


@attrs.frozen
class FoundModel:
    """A model of the hub.

    Args:
        downloads: Number of downloads in the last month.
        gated: True if its terms have to be accepted.
        local: True if it is on this machine.
    """

    id: str
    downloads: int
    likes: int
    gated: bool
    local: bool


@attrs.frozen
class FoundModels:
    """Models of the hub, the most downloaded first."""

    models: tuple[FoundModel, ...]


@attrs.frozen
class DeleteModel:
    """Unload a model that no request uses, and delete its files. Reply: ModelDeleted, or Failed.

    Args:
        name: The model's own id; with `@REVISION`, only that revision of a model of the hub.
    """

    name: str


@attrs.frozen
class ModelDeleted:
    """The end of a deletion. `freed`: bytes of disk that are free again."""

    model: str
    freed: int


DownloadMessage = PullModel | ListPulls | CancelPull | WatchPulls | SearchHub | DeleteModel


def size_text(nbytes: int) -> str:
    """Return a size of files for people, in MB or GB."""
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.1f} MB"
