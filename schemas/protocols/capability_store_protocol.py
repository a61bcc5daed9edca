"""Store messages for what probes have found out about models."""

from __future__ import annotations

import attrs

from greenroom.schemas.models.capabilities import ProbedCapabilities


@attrs.frozen
class SaveCapabilities:
    """Store a model's probed capabilities, in place of its earlier ones. Reply: Committed."""

    record: ProbedCapabilities


@attrs.frozen
class ListCapabilities:
    """List the probed capabilities of all models. Reply: CapabilityList."""


@attrs.frozen
class CapabilityList:
    """The probed capabilities, in the order of the models' ids."""

    records: tuple[ProbedCapabilities, ...]
