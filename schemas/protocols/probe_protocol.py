"""The messages of a probe, which asks a model what it can do and stores the findings."""

from __future__ import annotations

import attrs

from greenroom.schemas.models.capabilities import ProbedCapabilities


@attrs.frozen
class ProbeModel:
    """Probe a model, behind the requests of users.

    The findings are stored, and followed from the model's next load on. Afterwards the models in memory are
    those from before, unless other requests have changed that meanwhile; the model itself is loaded anew.

    Reply: any number of ProbeProgress, then Probed; or Failed at any point. Closing it ends the probe.

    Args:
        name: Name of the model.
        max_tokens: Longest answer to a question in tokens; None for the probe's own limit.
    """

    name: str
    max_tokens: int | None = None


@attrs.frozen
class ProbeProgress:
    """The progress of a probe.

    Args:
        answered: Number of answered questions.
        questions: Number of all questions.
    """

    answered: int
    questions: int


@attrs.frozen
class Probed:
    """The findings of a probe, which are stored."""

    record: ProbedCapabilities
