"""Runs scenarios again and again, on one server after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from greenroom.http.bench.figures import Result, Sample, summarize
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.scenario import Scenario
from greenroom.http.bench.target_server import TargetServer


@attrs.frozen
class Measurement:
    """How to measure.

    Args:
        targets: Servers that get the same prompts, in turns.
        repeats: Runs of each scenario that count; others warm up.
        report_progress: Is called with a sentence about what comes next.
    """

    targets: Sequence[TargetServer]
    prompts: Prompts
    repeats: int
    report_progress: Callable[[str], None] = lambda _progress: None

    async def measure(self, scenario: Scenario) -> list[Result]:
        """Return the results of one scenario, one for each target."""
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
