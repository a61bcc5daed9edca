"""Examine the compute device of a machine in a child process, which a broken driver may crash or hang.

python -m greenroom.engine.loading.examine_machine auto|cpu|gpu
"""

from __future__ import annotations

import json
import subprocess
import sys

import attrs

from greenroom.engine.catalog.hub.hub_cache import hub_cache_folder
from greenroom.schemas.models.model_description import MachineReport

SECONDS = 60.0  # Time limit; a GPU's first kernel takes some seconds


def examine_machine(device: str) -> MachineReport:
    """Compute something small on the device of the settings, and return what is found."""
    return attrs.evolve(_ask_child(device), hub_cache=str(hub_cache_folder()))


def _ask_child(device: str) -> MachineReport:
    command = [sys.executable, "-m", "greenroom.engine.loading.examine_machine", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, errors="replace")
        return MachineReport(**json.loads(done.stdout.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return MachineReport(problem=f"it has computed nothing in {SECONDS:.0f} seconds")
    except (ValueError, TypeError, IndexError):
        last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        return MachineReport(problem=last)


def _examine(device: str) -> MachineReport:
    from greenroom.engine.loading.devices import use_device
    from greenroom.engine.loading.libraries import prefer_openblas
    from greenroom.engine.resources.device_memory import default_memory, device_memory
    from greenroom.schemas.problems import ProblemError
    from greenroom.schemas.settings.settings import Settings

    try:
        use_device(Settings(device=device))  # type: ignore[arg-type]
    except ProblemError as error:
        return MachineReport(problem=error.problem.detail)
    import mlx.core as mx

    kind = mx.default_device().type.name
    name = "with OpenBLAS" if kind == "cpu" and prefer_openblas() else ""
    if kind == "gpu":
        name = str(mx.device_info().get("device_name", ""))
    found = MachineReport(f"{kind} {name}".strip(), device_memory(), default_memory())
    right = mx.matmul(mx.ones((64, 64)), mx.ones((64, 64))).sum().item() == 64**3
    return found if right else attrs.evolve(found, problem="it computes a wrong result")


if __name__ == "__main__":
    print(json.dumps(attrs.asdict(_examine(sys.argv[1]))))
