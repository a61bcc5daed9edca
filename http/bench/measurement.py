"""Runs scenarios again and again, on one server after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from greenroom.http.bench.figures import Result, Sample, summarise
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.scenario import Scenario
from greenroom.http.bench.target_server import TargetServer


@attrs.frozen
class Measurement:
    """How to measure.

    Args:
        contestants: Get the same prompts, in turns.
        repeats: Runs of each scenario that count; others warm up.
        told: Is called with a sentence about what comes next.
    """

    contestants: Sequence[TargetServer]
    prompts: Prompts
    repeats: int
    told: Callable[[str], None] = lambda _progress: None

    async def measure(self, scenario: Scenario) -> list[Result]:
        """The results of one scenario, one for each contestant."""
        samples: list[list[Sample]] = [[] for _ in self.contestants]
        title = f"{scenario.name}, {scenario.case}"
        for number in range(-scenario.warm_ups, self.repeats):
            self.told(f"{title}: " + ("warming up" if number < 0 else f"{number + 1} of {self.repeats}"))
            seed = self.prompts.seed()
            order = list(enumerate(self.contestants))
            for index, contestant in reversed(order) if number % 2 else order:
                sample = await scenario.run(contestant, Prompts(seed), number)
                if number >= 0:
                    samples[index].append(sample)
        return [
            summarise(scenario.name, scenario.case, contestant.address, scenario.quantities, found)
            for contestant, found in zip(self.contestants, samples, strict=True)
        ]
