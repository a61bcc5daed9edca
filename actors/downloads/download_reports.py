"""Reports of the downloads' tasks to their actor."""

from __future__ import annotations

from pathlib import Path

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.downloads.pull_table import Pull
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.download_protocol import DownloadProgress


@attrs.frozen(eq=False)
class Progressed:
    """The progress of a fetch."""

    pull: Pull
    progress: DownloadProgress


@attrs.frozen(eq=False)
class Ended:
    """The end of a fetch.

    Args:
        result: Folder of the model; None if it was cancelled.
    """

    pull: Pull
    result: Path | Problem | None


@attrs.frozen(eq=False)
class ReplyClosed:
    """The end of a reply to a client that waited for a fetch."""

    pull: Pull
    reply: Reply


@attrs.frozen
class DeletionEnded:
    """The end of a deletion, whether anything was deleted or not."""

    model: str
