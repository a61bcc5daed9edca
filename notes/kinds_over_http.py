"""Embeddings, reranking, speech and transcription over HTTP, beside mlx-vlm's server on the same models.

    PYTHONPATH=.src python notes/kinds_over_http.py FOLDER [PAIRS [KIND ...]]

FOLDER holds the models `embeds`, `ranks`, `speaks` and `hears`; tiny ones are made where some are missing.
Each server is a process of its own. Both are sent the same requests in turns, the order reversed in every
second pair; a ratio is ours over theirs, pair by pair. Rows of a kind that a server does not answer say why.
"""

from __future__ import annotations

import io
import math
import os
import random
import statistics
import subprocess
import sys
import time
import wave
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import httpx2
import trio

from greenroom.tests.bench.load_client import WORDS
from greenroom.tests.bench.servers import open_local_server

PCM_RATE = 24_000
START_SECONDS = 120


@attrs.frozen
class Server:
    """A server.

    Args:
        name_of: How it names a model.
        streamed_speech: Fields with which it sends speech while it is generated.
    """

    client: httpx2.AsyncClient
    name_of: Callable[[Path], str]
    streamed_speech: Mapping[str, object] = attrs.field(factory=dict)


@attrs.frozen
class Timing:
    """Duration of a request in seconds, and its amount of work: texts, or seconds of audio."""

    first: float
    whole: float
    amount: float


Ask = Callable[[Server, str, random.Random], Awaitable[Timing]]


@attrs.frozen
class Load:
    """Requests that begin together.

    Args:
        model: Its folder's name.
        unit: Of what is done in a second.
    """

    title: str
    model: str
    clients: int
    ask: Ask
    unit: str


async def timed(server: Server, path: str, amount: Callable[[bytes], float], **request: object) -> Timing:
    """Send a request and read its answer."""
    began = time.perf_counter()
    first, body = 0.0, b""
    async with server.client.stream("POST", path, **request) as answer:  # type: ignore[arg-type]
        async for piece in answer.aiter_bytes():
            first = first or time.perf_counter() - began
            body += piece
    if answer.status_code != 200:
        raise ValueError(f"{answer.status_code} {body[:200].decode(errors='replace')}")
    return Timing(first, time.perf_counter() - began, amount(body))


def embed(texts: int) -> Ask:
    async def ask(server: Server, model: str, source: random.Random) -> Timing:
        body = {"model": model, "input": [_text(source, source.randint(3, 36)) for _ in range(texts)]}
        return await timed(server, "/v1/embeddings", lambda _: texts, json=body)

    return ask


def rank(documents: int) -> Ask:
    async def ask(server: Server, model: str, source: random.Random) -> Timing:
        texts = [_text(source, source.randint(3, 36)) for _ in range(documents)]
        body = {"model": model, "query": _text(source, 8), "documents": texts}
        return await timed(server, "/v1/rerank", lambda _: documents, json=body)

    return ask


def speak(words: int) -> Ask:
    async def ask(server: Server, model: str, source: random.Random) -> Timing:
        sentences = [_text(source, 8).capitalize() + "." for _ in range(words // 8)]
        spoken = {"model": model, "input": " ".join(sentences), "voice": "default", "response_format": "pcm"}
        body = {**spoken, **server.streamed_speech}
        return await timed(server, "/v1/audio/speech", lambda pcm: len(pcm) / 2 / PCM_RATE, json=body)

    return ask


def transcribe(seconds: int) -> Ask:
    async def ask(server: Server, model: str, source: random.Random) -> Timing:
        file = {"file": ("tone.wav", _tone(seconds, source.uniform(200, 800)), "audio/wav")}
        form = {"model": model, "language": "en"}
        return await timed(server, "/v1/audio/transcriptions", lambda _: seconds, data=form, files=file)

    return ask


LOADS = (
    Load("embeddings, 64 texts", "embeds", 1, embed(64), "texts/s"),
    Load("embeddings, 8 clients of 8 texts", "embeds", 8, embed(8), "texts/s"),
    Load("embeddings, 8 clients of 1 text", "embeds", 8, embed(1), "texts/s"),
    Load("reranking, 32 documents", "ranks", 1, rank(32), "documents/s"),
    Load("reranking, 8 clients of 8 documents", "ranks", 8, rank(8), "documents/s"),
    Load("speech, 40 words", "speaks", 1, speak(40), "s of audio/s"),
    Load("speech, 2 clients of 40 words", "speaks", 2, speak(40), "s of audio/s"),
    Load("transcription, 30 s", "hears", 1, transcribe(30), "s of audio/s"),
    Load("transcription, 120 s", "hears", 1, transcribe(120), "s of audio/s"),
    Load("transcription, 2 clients of 30 s", "hears", 2, transcribe(30), "s of audio/s"),
)


async def run(load: Load, server: Server, folder: Path, seed: int) -> tuple[float, float] | str:
    """Return the time to the first byte (median, in seconds), and what all clients got done in a second.

    A server that does not answer has said why.
    """
    timings: list[Timing] = []
    problems: list[str] = []

    async def ask(number: int) -> None:
        model = server.name_of(folder / load.model)
        try:
            timings.append(await load.ask(server, model, random.Random(f"{seed}-{number}")))
        except (ValueError, httpx2.HTTPError) as problem:
            problems.append(str(problem) or type(problem).__name__)

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(load.clients):
            nursery.start_soon(ask, number)
    whole = time.perf_counter() - began
    if problems:
        return problems[0]
    first = statistics.median(timing.first for timing in timings)
    return first, sum(timing.amount for timing in timings) / whole


async def compare(load: Load, servers: list[Server], folder: Path, pairs: int) -> str:
    """Return a row of the table."""
    measured: list[list[tuple[float, float]]] = [[] for _ in servers]
    for number in range(-1, pairs):
        order = list(enumerate(servers))
        for index, server in reversed(order) if number % 2 else order:
            result = await run(load, server, folder, number)
            if isinstance(result, str):
                return f"| {load.title} | {'theirs' if index else 'ours'}: {result} | | | |"
            if number >= 0:
                measured[index].append(result)
    ours, theirs = measured
    rate = _ratio([a[1] / b[1] for a, b in zip(ours, theirs, strict=True)])
    first = _ratio([a[0] / b[0] for a, b in zip(ours, theirs, strict=True)])
    figures = [
        f"{statistics.median(each[1] for each in side):.0f} {load.unit}, "
        f"{statistics.median(each[0] for each in side) * 1e3:.0f} ms"
        for side in (ours, theirs)
    ]
    return f"| {load.title} | {figures[0]} | {figures[1]} | {rate} | {first} |"


@asynccontextmanager
async def open_servers(folder: Path) -> AsyncIterator[list[Server]]:
    """Start both servers on the models of a folder."""
    names = sorted({load.model for load in LOADS})
    others = [str(folder / name) for name in names[1:]]
    async with (
        open_local_server(str(folder / names[0]), (*others, "--max-loaded-models", "4")) as own,
        _open_peer(folder) as address,
        httpx2.AsyncClient(base_url=own.address, timeout=600) as ours,
        httpx2.AsyncClient(base_url=address, timeout=600) as theirs,
    ):
        yield [
            Server(ours, lambda path: path.name),
            Server(theirs, str, {"stream": True, "streaming_interval": 0.32}),
        ]


@asynccontextmanager
async def _open_peer(folder: Path) -> AsyncIterator[str]:
    """Run mlx-vlm's server, which takes one model of each kind."""
    port = random.randrange(20_000, 30_000)
    kinds = {"embedding": "embeds", "reranker": "ranks", "tts": "speaks", "stt": "hears"}
    models = [part for kind, name in kinds.items() for part in (f"--{kind}-model", str(folder / name))]
    command = [sys.executable, "-m", "mlx_vlm.server", "--port", str(port), "--host", "127.0.0.1", *models]
    process = await trio.lowlevel.open_process(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    address = f"http://127.0.0.1:{port}"
    try:
        with trio.fail_after(START_SECONDS):
            async with httpx2.AsyncClient() as client:
                while not await _is_up(client, address):  # noqa: ASYNC110 - it is another process
                    await trio.sleep(0.2)
        yield address
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _is_up(client: httpx2.AsyncClient, address: str) -> bool:
    try:
        return (await client.get(f"{address}/health")).status_code == 200
    except httpx2.HTTPError:
        return False


def make_missing(folder: Path) -> None:
    """Make tiny models for those that the folder lacks."""
    from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder
    from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket
    from greenroom.tests.support.models.tiny_whisper import make_tiny_whisper

    makers: dict[str, Callable[[Path], object]] = {
        "embeds": lambda path: make_tiny_encoder("bert", path),
        "ranks": lambda path: make_tiny_encoder("bert-rerank", path),
        "speaks": make_tiny_pocket,
        "hears": make_tiny_whisper,
    }
    for name, make in makers.items():
        if not (folder / name / "config.json").exists():
            (folder / name).mkdir(parents=True, exist_ok=True)
            make(folder / name)


def _ratio(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def _text(source: random.Random, words: int) -> str:
    return " ".join(source.choices(WORDS, k=words))


def _tone(seconds: int, frequency: float, rate: int = 16_000) -> bytes:
    one = array("h", (int(9_000 * math.sin(math.tau * frequency * i / rate)) for i in range(rate)))
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(one.tobytes() * seconds)
    return file.getvalue()


async def main(folder: Path, pairs: int, kinds: list[str]) -> None:
    """Print the table, row by row."""
    make_missing(folder)
    async with open_servers(folder) as servers:
        print("| load | ours | mlx-vlm's server | done per second, over theirs | first byte, over theirs |")
        print("|---|---|---|---|---|")
        for load in LOADS:
            if not kinds or load.model in kinds:
                print(await compare(load, servers, folder, pairs), flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7, sys.argv[3:])
