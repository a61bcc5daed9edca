"""CPU time of the server per streamed token in each protocol, over chat's: medians of pairs, with spread.

    python notes/protocol_costs.py MODEL_FOLDER [PAIRS [STREAMS [TOKENS]]]

Chat and the other protocol answer the same prompts in turns, the order reversed in every second pair, from
one server in a process of its own. What the model computes is part of both sides. The model must write as
many tokens as it may, as a tiny one of random weights does.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from greenroom.tests.bench.servers import LocalServer, open_local_server, processor_time

Body = dict[str, Any]
GENERATED = re.compile(rb'"(?:completion_tokens|output_tokens|eval_count)": ?(\d+)')


def chat(text: str, tokens: int) -> Body:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}


def counted_chat(text: str, tokens: int) -> Body:
    return {**chat(text, tokens), "stream_options": {"include_usage": True}}


def completion(text: str, tokens: int) -> Body:
    usage = {"stream_options": {"include_usage": True}}
    return {"prompt": text, "max_tokens": tokens, "temperature": 0, **usage}


def response(text: str, tokens: int) -> Body:
    return {"input": text, "max_output_tokens": tokens, "temperature": 0, "store": False}


def stored_response(text: str, tokens: int) -> Body:
    return {**response(text, tokens), "store": True}


def ollama_chat(text: str, tokens: int) -> Body:
    options = {"num_predict": tokens, "temperature": 0}
    return {"messages": [{"role": "user", "content": text}], "options": options}


def ollama_generate(text: str, tokens: int) -> Body:
    return {"prompt": text, "options": {"num_predict": tokens, "temperature": 0}}


CHAT = ("/v1/chat/completions", counted_chat)
PROTOCOLS: dict[str, tuple[str, Callable[[str, int], Body]]] = {
    "chat itself": CHAT,
    "completions": ("/v1/completions", completion),
    "messages": ("/v1/messages", chat),
    "responses, not stored": ("/v1/responses", response),
    "responses, stored": ("/v1/responses", stored_response),
    "Ollama's chat": ("/api/chat", ollama_chat),
    "Ollama's generate": ("/api/generate", ollama_generate),
}


@attrs.frozen
class Cost:
    """Costs of several streams.

    Args:
        cpu: Seconds of the server's processor time per token.
        rate: Tokens per second, of all streams together.
        size: Bytes per token.
    """

    cpu: float
    rate: float
    size: float


@attrs.frozen
class Load:
    """Streams of one server."""

    server: LocalServer
    streams: int
    tokens: int

    async def cost(self, path: str, make: Callable[[str, int], Body], salt: int) -> Cost:
        """Measure streams of answers to prompts with that salt."""
        answers: list[bytes] = []
        before, began = processor_time(self.server.pid), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for number in range(self.streams):
                text = f"{salt}, {number}: tell me about the sea"
                nursery.start_soon(self._stream, path, make(text, self.tokens), answers)
        seconds = time.perf_counter() - began
        used = processor_time(self.server.pid) - before
        tokens = sum(int(GENERATED.findall(answer)[-1]) for answer in answers)
        assert tokens == self.streams * self.tokens, answers[0][-500:]
        return Cost(used / tokens, tokens / seconds, sum(map(len, answers)) / tokens)

    async def _stream(self, path: str, body: Body, answers: list[bytes]) -> None:
        url = urlsplit(self.server.address)
        data = json.dumps({"model": "default", "stream": True, **body}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
        )
        received = bytearray()
        async with await trio.open_tcp_stream(str(url.hostname), url.port or 80) as stream:
            await stream.send_all(head.encode() + data)
            async for piece in stream:
                received += piece
        answers.append(bytes(received))


async def main(folder: str, pairs: int = 9, streams: int = 16, tokens: int = 200) -> None:
    async with open_local_server(folder) as server:
        load = Load(server, streams, tokens)
        for name, protocol in PROTOCOLS.items():
            print(f"{name}: {await compare(load, protocol, pairs)}", flush=True)


async def compare(load: Load, protocol: tuple[str, Callable[[str, int], Body]], pairs: int) -> str:
    """Return the ratios of that many pairs, after one that warms up."""
    ratios, others, chats = [], [], []
    for pair in range(-1, pairs):
        sides = [protocol, CHAT] if pair % 2 else [CHAT, protocol]
        costs = [await load.cost(*side, salt=2 * pair + order) for order, side in enumerate(sides)]
        other, own = costs if pair % 2 else reversed(costs)
        if pair >= 0:
            ratios.append(other.cpu / own.cpu)
            others.append(other)
            chats.append(own)
    spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), {pairs} pairs"
    return f"{spread}; {typical(others)}; chat {typical(chats)}"


def typical(costs: list[Cost]) -> str:
    """Return the medians."""
    cpu, rate, size = (statistics.median(getattr(c, name) for c in costs) for name in ("cpu", "rate", "size"))
    return f"{cpu * 1e6:.0f} µs, {rate:.0f} tokens/s, {size:.0f} bytes a token"


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], *map(int, sys.argv[2:])))
