"""Runs scenarios again and again, each followed by the bare loops on the same prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs

from greenroom.http.bench.figures import Exchange, Figures, Run, figures
from greenroom.http.bench.load_client import LoadClient
from greenroom.http.bench.local_processes import BareLoops
from greenroom.http.bench.processor_time import processor_time
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.reading import read
from greenroom.http.bench.scenarios import Scenario

WARM_UPS = 2
"""MLX compiles kernels for the shapes that it meets, on the CPU for half a second each."""
LOOPS = ("batch_generator", "bare_loop")


@attrs.frozen
class Measurement:
    """How to measure.

    Args:
        repeats: Runs of each scenario that count; others warm up.
        pid: The server's process, if it is one of ours.
        loops: Run after each run of a scenario, so that server and loops alternate.
        told: Is called with a sentence about what comes next.
    """

    client: LoadClient
    prompts: Prompts
    repeats: int
    pid: int | None = None
    loops: BareLoops | None = None
    told: Callable[[str], None] = lambda _progress: None

    async def measure(self, scenarios: Sequence[Scenario]) -> list[Figures]:
        """The figures of each scenario."""
        results = []
        for scenario in scenarios:
            self.told(f"{scenario.name}: warming up")
            for _ in range(WARM_UPS):
                await self.run(scenario)
            runs = []
            for number in range(self.repeats):
                self.told(f"{scenario.name}: {number + 1} of {self.repeats}")
                runs.append(await self.run(scenario))
            results.append(figures(scenario.name, scenario.streams, runs))
        return results

    async def run(self, scenario: Scenario) -> Run:
        """One pass, and the bare loops after it."""
        client_before, server_before = time.process_time(), self._server_time()
        asked = await scenario.run(self.client, self.prompts)
        client_after, server_after = time.process_time(), self._server_time()
        exchanges = tuple(Exchange(each.messages, read(each.recording)) for each in asked)
        answered = [exchange for exchange in exchanges if exchange.answer.tokens]
        bare = {}
        if self.loops is not None and answered:
            prompts = [exchange.messages for exchange in answered]
            tokens = [exchange.answer.tokens for exchange in answered]
            bare = {name: await self.loops.run(name, prompts, tokens) for name in LOOPS}
        server_cpu = None if server_before is None or server_after is None else server_after - server_before
        return Run(exchanges, client_after - client_before, server_cpu, bare)

    def _server_time(self) -> float | None:
        return None if self.pid is None else processor_time(self.pid)
