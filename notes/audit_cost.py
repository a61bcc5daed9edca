"""CPU time of the server per streamed token with the audit, over that without.

    python notes/audit_cost.py MODEL_FOLDER [PAIRS [STREAMS [TOKENS]]]

Two servers in processes of their own, one of them with `--no-audit`, stream the same chats in turns, the
order reversed in every second pair. Both have a database in a file. The model must write as many tokens as it
may, as a tiny one of random weights does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import attrs
import trio

from greenroom.notes.protocol_costs import CHAT, Cost, Load, typical
from greenroom.tests.bench.servers import open_local_server, processor_time

LIMIT = 1.03
"""Ratio that issue 25 allows."""
WRITTEN = 0.7
"""Seconds after which the rows of a run are in the database."""


async def measure(load: Load, salt: int) -> Cost:
    """Measure chats, with the writing of their rows."""
    before = processor_time(load.server.pid)
    cost = await load.cost(*CHAT, salt=salt)
    await trio.sleep(WRITTEN)
    used = processor_time(load.server.pid) - before
    return attrs.evolve(cost, cpu=used / (load.streams * load.tokens))


async def main(folder: str, pairs: int = 9, streams: int = 16, tokens: int = 400) -> None:
    ratios, with_it, without = list[float](), list[Cost](), list[Cost]()
    with tempfile.TemporaryDirectory() as home:
        own, others = (("--db", str(Path(home, f"{name}.db"))) for name in ("own", "other"))
        async with (
            open_local_server(folder, own) as audited,
            open_local_server(folder, (*others, "--no-audit")) as plain,
        ):
            loads = Load(audited, streams, tokens), Load(plain, streams, tokens)
            for pair in range(-1, pairs):
                order = loads if pair % 2 else loads[::-1]
                costs = [await measure(load, pair) for load in order]
                first, second = costs if pair % 2 else reversed(costs)
                if pair >= 0:
                    ratios.append(first.cpu / second.cpu)
                    with_it.append(first)
                    without.append(second)
    print(
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), {pairs} pairs; "
        f"{typical(with_it)}; without {typical(without)}"
    )
    sys.exit(statistics.median(ratios) > LIMIT)


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], *map(int, sys.argv[2:])))
