"""The result of an examination of a machine."""

from __future__ import annotations

import attrs


@attrs.frozen
class MachineReport:
    """The device on which models would compute, and the folder of downloaded ones.

    Args:
        device: Kind and name of the device, as MLX tells them.
        memory: Bytes that it can give to a process; 0 if unknown.
        limit: Bytes that models may have together, as far as no setting says otherwise; 0 if unknown.
        problem: Reason why nothing can be computed; None if a small computation was right.
        hub_cache: Path of the folder, which may not exist yet.
    """

    device: str = ""
    memory: int = 0
    limit: int = 0
    problem: str | None = None
    hub_cache: str = ""
