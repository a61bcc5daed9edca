"""Costs of a hop to another Greenroom, and what a second machine saves under load.

    python notes/remote_costs.py MODEL_FOLDER [PAIRS [STREAMS [TOKENS]]]

Each pair asks the far server directly and through the near one, the order reversed in every second pair:
first token and tokens per second of the hop over those without. Then bursts of twice the streams that one
server answers at once ask it alone, and a route that may spill over to the far one: 95th percentile of the
first token. Both servers share this machine, so the last figure needs two machines for a verdict.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
import httpx2
import trio

from greenroom.tests.support.servers.server_processes import serving

ROUTE = "first-free"


@attrs.frozen
class Stream:
    """One streamed answer. `first`: seconds to its first token; `rate`: tokens per second after that."""

    first: float
    rate: float


async def stream(address: str, model: str, tokens: int, salt: int) -> Stream:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Count on, from {salt}."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    began, times = time.perf_counter(), list[float]()
    async with (
        httpx2.AsyncClient(timeout=600, trust_env=False) as client,
        client.stream("POST", f"{address}/v1/chat/completions", json=body) as response,
    ):
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                times.append(time.perf_counter())
    return Stream(times[0] - began, (tokens - 1) / (times[-1] - times[0]))


async def burst(address: str, model: str, streams: int, tokens: int, salt: int) -> float:
    """Return the 95th percentile of the first token, in seconds."""
    found: list[Stream] = []

    async def one(number: int) -> None:
        found.append(await stream(address, model, tokens, salt + number))

    async with trio.open_nursery() as nursery:
        for number in range(streams):
            nursery.start_soon(one, number)
    return statistics.quantiles([each.first for each in found], n=20)[-1]


def told(name: str, ratios: Sequence[float]) -> str:
    spread = f"({min(ratios):.3f}-{max(ratios):.3f}), {len(ratios)} pairs"
    return f"{name}: {statistics.median(ratios):.3f} {spread}"


async def main(folder: str, pairs: int = 9, streams: int = 8, tokens: int = 200) -> None:
    name, own = Path(folder).name, ("--max-batch", str(streams), "--no-audit")
    with tempfile.TemporaryDirectory() as scratch, serving(folder, *own) as far:
        config = Path(scratch) / "greenroom.toml"
        config.write_text(
            f'[remotes.far]\nurl = "{far.address}"\napi = "greenroom"\n'
            f'[routes.{ROUTE}]\nmodels = ["{name}", "far/{name}"]\nmax_wait = 0\n'
        )
        with serving(folder, *own, "--config", str(config)) as near:
            sides = ((far.address, name), (near.address, f"far/{name}"))
            firsts, rates, spills = list[float](), list[float](), list[float]()
            for address, model in (*sides, (near.address, name)):
                await stream(address, model, tokens, -1)
            for pair in range(pairs):
                answers = {}
                for order in range(2):
                    side = (pair + order) % 2
                    answers[side] = await stream(*sides[side], tokens, 2 * pair + order)
                firsts.append(answers[1].first / answers[0].first)
                rates.append(answers[1].rate / answers[0].rate)
            for pair in range(pairs):
                seconds = {}
                for order in range(2):
                    side, salt = (pair + order) % 2, 1_000 * (2 * pair + order + 1)
                    model = ROUTE if side else name
                    seconds[side] = await burst(near.address, model, 2 * streams, tokens, salt)
                spills.append(seconds[1] / seconds[0])
    print(told("first token of a hop over that without (at most 1.1)", firsts))
    print(told("tokens per second of a hop over those without (at least 0.95)", rates))
    print(told("p95 first token with a second server over that without (at most 0.6)", spills))


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], *map(int, sys.argv[2:])))
