"""Benchmark scenarios, and their repeated runs on all servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import attrs

from greenroom.tests.bench.figures import Metric, Result, Sample, summarize
from greenroom.tests.bench.prompts import Prompts
from greenroom.tests.bench.target_server import TargetServer


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
            number: Number of the run from 0, negative for warm-up. Even and odd runs measure the compared
                parts in opposite order, so that drift affects both alike.

        Raises:
            BenchError: The server does not listen, or the bare loop cannot run.
        """


@attrs.frozen
class Measurement:
    """Plan for running scenarios.

    Args:
        targets: Servers that receive the same prompts, in alternating order.
        repeats: Number of runs of each scenario that count, after warm-up.
        report_progress: Called with a description of the next run.
    """

    targets: Sequence[TargetServer]
    prompts: Prompts
    repeats: int
    report_progress: Callable[[str], None] = lambda _progress: None

    async def measure(self, scenario: Scenario) -> list[Result]:
        """Return the results of one scenario, one for each server."""
        samples: list[list[Sample]] = [[] for _ in self.targets]
        title = f"{scenario.name}, {scenario.case}"
        for number in range(-scenario.warm_ups, self.repeats):
            self.report_progress(
                f"{title}: " + ("warming up" if number < 0 else f"{number + 1} of {self.repeats}")
            )
            seed = self.prompts.new_seed()
            order = list(enumerate(self.targets))
            for index, target in reversed(order) if number % 2 else order:
                sample = await scenario.run(target, Prompts(seed), number)
                if number >= 0:
                    samples[index].append(sample)
        return [
            summarize(scenario.name, scenario.case, target.address, scenario.metrics, target_samples)
            for target, target_samples in zip(self.targets, samples, strict=True)
        ]
