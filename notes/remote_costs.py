"""Costs of a hop to another Greenroom, and what a second machine saves under load.

    python notes/remote_costs.py MODEL_FOLDER [PAIRS [STREAMS [TOKENS]]]

Each pair asks the far server directly and through the near one, the order reversed in every second pair:
first token and tokens per second of the hop over those without. Then bursts of twice the streams that one
server answers at once ask it alone, and a route that may spill over to the far one: 95th percentile of the
first token. At last clients hang up amid an answer: seconds until the far side is free. Each server has one
core of this machine for itself where there is `taskset`, so that the second one adds capacity; the client
shares the near one's, whichever it asks: time that it took from the far one would be counted as the hop's.
"""

from __future__ import annotations

import json
import os
import shutil
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

from greenroom.tests.support.servers.server_processes import GREENROOM, serving

ROUTE = "first-free"


CAN_BIND = shutil.which("taskset") is not None and (os.cpu_count() or 1) > 1


def on_core(number: int) -> tuple[str, ...]:
    """Return the command of a server that has one core."""
    return ("taskset", "-c", str(number), *GREENROOM) if CAN_BIND else GREENROOM


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


async def seconds_to_cancel(near: str, far: str, model: str, salt: int) -> float:
    """Return the seconds from a client's hang-up until the far server has no request any more."""
    content = [{"role": "user", "content": f"Count on, from {salt}."}]
    body = {"model": model, "messages": content, "max_tokens": 2_000, "ignore_eos": True, "stream": True}
    async with httpx2.AsyncClient(timeout=600, trust_env=False) as client:
        async with client.stream("POST", f"{near}/v1/chat/completions", json=body) as response:
            lines = aiter(response.aiter_lines())
            while '"content"' not in await anext(lines):
                pass
        began = time.perf_counter()
        while (await client.get(f"{far}/admin/requests")).json()["requests"]:  # noqa: ASYNC110
            await trio.sleep(0.005)
    return time.perf_counter() - began


def told(name: str, ratios: Sequence[float]) -> str:
    spread = f"({min(ratios):.3f}-{max(ratios):.3f}), {len(ratios)} pairs"
    return f"{name}: {statistics.median(ratios):.3f} {spread}"


async def main(folder: str, pairs: int = 9, streams: int = 8, tokens: int = 200) -> None:
    name, own = Path(folder).name, ("--max-batch", str(streams), "--no-audit")
    if CAN_BIND and sys.platform == "linux":
        os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as scratch, serving(folder, *own, program=on_core(1)) as far:
        config = Path(scratch) / "greenroom.toml"
        config.write_text(
            f'[remotes.far]\nurl = "{far.address}"\napi = "greenroom"\n'
            f'[routes.{ROUTE}]\nmodels = ["{name}", "far/{name}"]\nmax_wait = 0\n'
        )
        with serving(folder, *own, "--config", str(config), program=on_core(0)) as near:
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
            waits = [
                await seconds_to_cancel(near.address, far.address, f"far/{name}", at) for at in range(pairs)
            ]
    print(told("first token of a hop over that without (at most 1.1)", firsts))
    print(told("tokens per second of a hop over those without (at least 0.95)", rates))
    print(told("p95 first token with a second server over that without (at most 0.6)", spills))
    print(told("seconds until a cancelled request has left the far side (at most 0.2)", waits))


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], *map(int, sys.argv[2:])))
