"""Parts of a run on a device, as command lines with time limits."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs

_DEMO = str(Path(__file__).resolve().parents[2] / "engine" / "demo" / "model")


@attrs.frozen
class Plan:
    """The parameters of a run.

    Args:
        kinds: Tiny models whose answers are compared with mlx-lm's; empty for all.
        attack_seconds: Duration of the attack in seconds, after its first measurements.
        attack_options: Further options of `make attack`.
        model: Model to benchmark: a folder or a hub id.
        bench_options: Options of the bench.
    """

    kinds: tuple[str, ...] = ()
    attack_seconds: int = 1800
    attack_options: tuple[str, ...] = ()
    model: str = _DEMO
    bench_options: tuple[str, ...] = ("--scenario", "all")

    def parts(self) -> dict[str, list[str]]:
        """Return the command lines of the parts by name, in order of execution."""
        module = [sys.executable, "-m", "greenroom.tests"]
        faithfulness = [*module[:2], f"{module[2]}.on_device.faithfulness", *self.kinds]
        seconds = ("--seconds", str(self.attack_seconds), "--seed", "1")
        attack = [*module[:2], f"{module[2]}.attack", *seconds, *self.attack_options]
        bench = [sys.executable, "-m", "greenroom.tests.bench", self.model, *self.bench_options]
        return {"Faithfulness": faithfulness, "Attack": attack, "Bench": bench}


LONG = Plan()
SHORT = Plan(
    kinds=("qwen3", "gemma3", "lfm2"),
    attack_seconds=30,
    attack_options=("--kind", "none", "--no-sweep"),
    bench_options=("--concurrency", "1,8", "--repeats", "3", "--tokens", "32"),
)
