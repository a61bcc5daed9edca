"""What every scenario is: one shape of load, its metrics, and how one run of it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from greenroom.http.bench.figures import Metric, Sample
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.target_server import TargetServer


class Scenario(ABC):
    """One shape of load. A run is one pass through it with prompts of its own."""

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, Metric]]
    warm_ups: ClassVar[int] = 1
    """Runs that do not count. MLX compiles kernels for the shapes that it meets, on the CPU for half a second
    each."""

    @property
    def case(self) -> str:
        """What tells this scenario from others of its name."""
        return ""

    @abstractmethod
    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        """Send requests, and return when all answers are complete.

        Args:
            number: Which run this is, from 0; negative while warming up. What a run compares goes first in
                even runs and last in odd ones, so that drift falls on both sides.

        Raises:
            BenchError: The server does not listen, or the bare loop cannot run.
        """
