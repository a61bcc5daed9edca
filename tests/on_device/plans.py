"""Parts of a run on a device, as command lines."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs

_DEMO = str(Path(__file__).resolve().parents[2] / "engine" / "demo" / "model")


@attrs.frozen
class Plan:
    """The parameters of a run.

    Args:
        model: Model whose figures are measured: a folder or a hub id.
        row_options: Options of the table of figures.
        checks: True to check faithfulness, and to attack a server, after the figures.
        kinds: Tiny models whose answers are compared with mlx-lm's; empty for all.
        attack_seconds: Duration of the attack in seconds, after its first measurements.
        attack_options: Further options of `make attack`.
    """

    model: str = _DEMO
    row_options: tuple[str, ...] = ()
    checks: bool = False
    kinds: tuple[str, ...] = ()
    attack_seconds: int = 1800
    attack_options: tuple[str, ...] = ()

    def parts(self) -> dict[str, list[str]]:
        """Return the command lines of the parts by name, in order of execution."""
        module = [sys.executable, "-m"]
        rows = [*module, "greenroom.tests.on_device.published_rows", self.model, *self.row_options]
        faithfulness = [*module, "greenroom.tests.on_device.faithfulness", *self.kinds]
        seconds = ("--seconds", str(self.attack_seconds), "--seed", "1")
        attack = [*module, "greenroom.tests.attack", *seconds, *self.attack_options]
        checks = {"Faithfulness": faithfulness, "Attack": attack} if self.checks else {}
        return {"Figures": rows, **checks}


LONG = Plan()
SHORT = Plan(
    row_options=("--short",),
    kinds=("qwen3", "gemma3", "lfm2"),
    attack_seconds=30,
    attack_options=("--kind", "none", "--no-sweep"),
)
