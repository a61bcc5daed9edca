"""Waits of a calm stream beside hostile grammars, with a vocabulary of 152,000 tokens.

python -m greenroom.tests.attack.large_vocabulary
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from greenroom.tests.attack import faults
from greenroom.tests.attack.faults import Fault
from greenroom.tests.attack.requests.endpoints import CHAT
from greenroom.tests.attack.requests.grammars import GRAMMARS, PATTERNS
from greenroom.tests.attack.requests.json_pieces import Made
from greenroom.tests.attack.requests.schemas import SCHEMAS
from greenroom.tests.attack.requests.steps import Attack, Call
from greenroom.tests.attack.server.target import Target
from greenroom.tests.support import surroundings

ROWS = 8
UNDISTURBED = 0.25
"""Largest accepted extra wait of the calm client in seconds, compared with as many plain rows."""
REPETITIONS = 3
"""Repetitions of a case with too long a wait; it is a finding if two of three are too long."""
SIZES = (6, 120)
"""Smallest size for each maker; eight rows use eight consecutive sizes, so that no two grammars are equal."""
_FIELDS = (("guided_json", SCHEMAS), ("guided_grammar", GRAMMARS), ("guided_regex", PATTERNS))
_LARGE = 12_000
"""Number of alternatives in grammars near the maximum size."""
_PLAIN_EVERY = 12


@attrs.frozen
class Case:
    """Requests sent at once.

    Args:
        model: Index of their model; the calm client streams from the first.
    """

    name: str
    extras: tuple[dict[str, Any], ...]
    model: int = 0

    def attack(self, models: tuple[str, ...]) -> Attack:
        """Return the case as requests to these models."""
        message = [{"role": "user", "content": "Go on"}]
        body = {"model": models[self.model], "messages": message, "max_tokens": 30}
        return Attack(tuple(Call(CHAT, {**body, **extra}) for extra in self.extras), at_once=True)


def hostile_cases(sizes: Iterable[int] = SIZES) -> Iterator[Case]:
    """Yield a case for each maker and size."""
    for size in sizes:
        for field, makers in _FIELDS:
            for maker in makers:
                rows = tuple({field: Made(maker, size + row)} for row in range(ROWS))
                yield Case(f"{maker} {size}", rows)
    large = tuple({"guided_grammar": Made("alternatives", _LARGE + row)} for row in range(ROWS))
    yield Case(f"grammars of {_LARGE} alternatives", large)
    every = [{field: Made(maker, 6)} for field, makers in _FIELDS for maker in makers]
    for first in range(0, len(every), ROWS):
        yield Case(f"mixed {first // ROWS}", tuple(every[first : first + ROWS]))


def loading_cases() -> Iterator[Case]:
    """Yield loads of other models, each followed by many first grammars of that model at once."""
    person = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    for model in (1, 2, 1):
        yield Case("another model loads", ({},), model)
        different = tuple({"guided_json": {**person, "title": str(row)}} for row in range(ROWS))
        yield Case("first grammars of a model", different, model)


@attrs.define
class Measurement:
    """Measurements of cases, one after another.

    Args:
        gaps: Longest waits by case in seconds, as the median of its repetitions.
    """

    target: Target
    plain: list[float] = attrs.field(factory=list)
    gaps: dict[str, float] = attrs.field(factory=dict)
    statuses: dict[str, Counter[int | None]] = attrs.field(factory=dict)
    found: list[Fault] = attrs.field(factory=list)

    @property
    def allowed(self) -> float:
        """Longest accepted wait of the calm client, in seconds."""
        return statistics.median(self.plain) + UNDISTURBED

    def run(self, cases: Iterable[Case]) -> None:
        """Measure the cases, with plain rows in between."""
        for index, case in enumerate(cases):
            if index % _PLAIN_EVERY == 0:
                self._measure_plain()
            began = time.monotonic()
            self._measure(case)
            statuses = ", ".join(f"{count} x {status}" for status, count in self.statuses[case.name].items())
            seconds = time.monotonic() - began
            click.echo(f"{self.gaps[case.name] * 1e3:6.0f} ms  {case.name}  ({statuses}; {seconds:.1f} s)")
        self._measure_plain()

    def _measure_plain(self) -> None:
        from greenroom.tests.attack.plain_rows import largest_gap

        self.plain.append(largest_gap(self.target, ROWS))
        click.echo(f"{self.plain[-1] * 1e3:6.0f} ms  {ROWS} plain rows")

    def _measure(self, case: Case) -> None:
        from greenroom.tests.attack.plain_rows import gap_beside

        gaps: list[float] = []
        while not gaps or (gaps[0] > self.allowed and len(gaps) < REPETITIONS):
            gap, attacker = gap_beside(self.target, case.attack(self.target.models))
            gaps.append(gap)
            self.statuses[case.name] = Counter(exchange.status for exchange in attacker.exchanges)
            self.found += faults.of_exchanges(attacker.exchanges)
            if case.model:
                break
        self.gaps[case.name] = max(self.gaps.get(case.name, 0), statistics.median(gaps))
        self.found += [Fault("log", line) for line in self.target.log_faults()]


@click.command()
@click.option("--only", default="", help="Cases whose names begin so.")
@click.option("--kind", default="qwen3", show_default=True, help="Of the tiny models.")
@click.option("--models", "home", type=click.Path(path_type=Path), help="Keeps the models for another run.")
@click.option("--logs", type=click.Path(path_type=Path), help="Folder that keeps the logs.")
def main(only: str, kind: str, home: Path | None, logs: Path | None) -> None:
    """Measure every case; exit with 1 if the calm stream waited longer than it may."""
    from greenroom.tests.attack.server.serving import scratch_folder, server_command
    from greenroom.tests.support.models.large_vocabulary import copies_of_large_model
    from greenroom.tests.support.servers.free_port import free_port

    with scratch_folder(logs) as scratch:
        surroundings.neutralize(scratch)
        folders = copies_of_large_model(home or scratch, kind, copies=3)
        target = Target(server_command(folders), free_port(), tuple(map(_name, folders)), scratch)
        target.start()
        measurement = Measurement(target)
        try:
            measurement.run(
                case for case in (*loading_cases(), *hostile_cases()) if case.name.startswith(only)
            )
        finally:
            target.stop()
    sys.exit(_report(measurement))


def _name(folder: Path) -> str:
    return folder.name


def _report(measurement: Measurement) -> int:
    plain, allowed = statistics.median(measurement.plain), measurement.allowed
    longest = sorted(measurement.gaps.items(), key=lambda item: -item[1])
    click.echo(f"\nbeside {ROWS} plain rows {plain * 1e3:.0f} ms, so at most {allowed * 1e3:.0f}; longest:")
    for name, gap in longest[:12]:
        click.echo(f"{gap * 1e3:6.0f} ms  {name}")
    for fault in measurement.found:
        click.echo(f"- {fault.kind}: {fault.detail}")
    return int(bool(measurement.found) or any(gap > allowed for gap in measurement.gaps.values()))


if __name__ == "__main__":
    main()
