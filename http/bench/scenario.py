"""Base class of benchmark scenarios."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from greenroom.http.bench.figures import Metric, Sample
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.target_server import TargetServer


class Scenario(ABC):
    """A load pattern. Each run sends it once, with new prompts."""

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, Metric]]
    warm_ups: ClassVar[int] = 1
    """Number of initial runs that do not count.

    MLX compiles kernels for new shapes, for half a second of CPU time each.
    """

    @property
    def case(self) -> str:
        """The variant of the scenario."""
        return ""

    @abstractmethod
    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        """Send requests, and return when all responses are complete.

        Args:
            number: Number of the run from 0, negative for warm-up. The order of compared parts alternates
                between even and odd runs, so that drift affects both alike.

        Raises:
            BenchError: The server does not listen, or the bare loop cannot run.
        """
