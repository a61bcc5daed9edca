"""Repeated runs of scenarios on all servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from greenroom.http.bench.figures import Result, Sample, summarize
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.scenario import Scenario
from greenroom.http.bench.target_server import TargetServer


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
