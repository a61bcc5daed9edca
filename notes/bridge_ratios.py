"""Tokens per second of `AsyncioBridge` under uvicorn, over those of `greenroom serve`, in pairs.

    python notes/bridge_ratios.py [PAIRS [TOKENS [STREAMS…]]]

Both serve the built-in model in processes of their own, and stream the same chats in turns, the order
reversed in every second pair. The client computes on the same machine.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
from functools import partial

import trio

from greenroom.notes.protocol_costs import Body, Cost, Load, counted_chat, typical
from greenroom.tests.bench.servers import open_local_server

LIMIT = 0.95
"""Ratio that is asked for."""
OWN = ("-m", "greenroom.notes.bridge_ratios", "uvicorn")


def serve() -> None:
    """Serve the bridge under uvicorn, and tell its address as `greenroom serve` does."""
    import uvicorn

    from greenroom.api import Settings
    from greenroom.asyncio_bridge import AsyncioBridge

    bridge = AsyncioBridge(Settings(speculation="off", db=":memory:", shutdown_timeout=1.0))
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(json.dumps({"event": "listening", "addresses": [address]}), file=sys.stderr, flush=True)
        server = uvicorn.Server(uvicorn.Config(bridge, log_level="warning", access_log=False))
        server.run([listener])


def endless(text: str, tokens: int) -> Body:
    return {**counted_chat(text, tokens), "ignore_eos": True}


async def main(pairs: int = 9, tokens: int = 200, *streams: int) -> None:
    worst = 9.0
    async with open_local_server("--demo") as plain, open_local_server("", program=OWN) as bridged:
        for number in streams or (1, 8, 32):
            sides = Load(bridged, number, tokens), Load(plain, number, tokens)
            costs: tuple[list[Cost], list[Cost]] = [], []
            for pair in range(-1, pairs):
                for side in (0, 1) if pair % 2 else (1, 0):
                    cost = await sides[side].cost("/v1/chat/completions", endless, salt=pair)
                    costs[side].extend([cost] if pair >= 0 else [])
            ratios = [own.rate / other.rate for own, other in zip(*costs, strict=True)]
            worst = min(worst, middle := statistics.median(ratios))
            spread = f"{middle:.3f} ({min(ratios):.3f}-{max(ratios):.3f}), {pairs} pairs"
            print(f"{number} streams: {spread}; {typical(costs[0])}; plain {typical(costs[1])}", flush=True)
    sys.exit(worst < LIMIT)


if __name__ == "__main__":
    if sys.argv[1:2] == ["uvicorn"]:
        serve()
    else:
        trio.run(partial(main, *map(int, sys.argv[1:])))
