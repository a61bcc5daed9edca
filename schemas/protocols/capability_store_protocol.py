"""Store messages for what probes and loads have found out about models."""

from __future__ import annotations

import attrs

from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.models.working_space import WorkingSpace


@attrs.frozen
class SaveCapabilities:
    """Store a model's probed capabilities, in place of its earlier ones. Reply: Committed."""

    record: ProbedCapabilities


@attrs.frozen
class SaveWorkingSpace:
    """Store a model's measured working space, in place of its earlier one. Reply: Committed."""

    measured: WorkingSpace


@attrs.frozen
class ListCapabilities:
    """List the probed capabilities of all models. Reply: CapabilityList."""


@attrs.frozen
class CapabilityList:
    """The probed capabilities, in the order of the models' ids."""

    records: tuple[ProbedCapabilities, ...]
