"""Speech beside mlx-audio's bare loop, both sides in turns: medians of pairs, with spread.

    PYTHONPATH=.src python notes/speech_ratios.py [MODEL_FOLDER] [PAIRS] [pinned]

engine:     real-time factor of the engine over that of the library's `generate` in one piece, and streamed,
            by processor time (other programs' turns do not count) and by the clock
server:     the same of `POST /v1/audio/speech` over the streamed loop: by the processor time of the whole
            server as pcm, which like the loop encodes nothing, and by the clock in every form
two:        speech of two requests at once over that of one after the other, by the clock
first byte: of an mp3, as a share of the time to the last; and of a second stream that begins with it

pinned:     on Linux with two cores, `server` and what follows with the threads that compute, on either side,
            on one core and all others on the other: else the system moves them, which costs up to a third

The model must be one of `pocket_tts`. Without a folder, a tiny one is made.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import trio

from greenroom.http.bench.local_processes import open_local_server
from greenroom.http.media.audio.audio_formats import AUDIO_FORMATS
from greenroom.tests.support.engines.spoken_requests import open_adapter, open_engine, run, samples_of, spoken
from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket

TEXT = "The sea is calm tonight, love. The tide is full, the moon lies fair."
BODY = {"model": "default", "input": TEXT}


def main(folder: Path, pairs: int, *, pinned: bool) -> None:
    bare, engine = bare_loop(folder), engine_loop(folder)
    for name, clock in (("processor", time.process_time), ("clock", time.perf_counter)):
        for streamed in (False, True):
            ratios = compare(lambda s=streamed: bare(s), engine, clock, pairs)  # type: ignore[misc]
            report(f"engine over bare loop, {'streamed' if streamed else 'whole'}, {name}", ratios)
    trio.run(over_http, folder, bare, pairs, pinned)


def bare_loop(folder: Path) -> Callable[[bool], float]:
    from mlx_audio.tts.utils import load_model

    model = load_model(folder, model_type="pocket_tts", model_name_parts=[])

    def speak(streamed: bool) -> float:
        options: dict[str, Any] = {"stream": True, "streaming_interval": 0.32} if streamed else {}
        results = model.generate(TEXT, **options)
        return sum(len(np.array(result.audio)) for result in results) / int(model.sample_rate)

    return speak


def engine_loop(folder: Path) -> Callable[[], float]:
    engine, adapter = open_engine(folder), open_adapter(folder)

    def speak() -> float:
        request = spoken(TEXT)
        engine.submit(request, adapter.prepare_input(request))
        return len(samples_of(list(run(engine)))) / 24_000

    return speak


def compare(
    theirs: Callable[[], float], ours: Callable[[], float], clock: Callable[[], float], pairs: int
) -> list[float]:
    ratios = []
    for pair in range(-1, pairs):
        factors = {}
        for side in (theirs, ours) if pair % 2 else (ours, theirs):
            began = clock()
            seconds = side()
            factors[side] = seconds / (clock() - began)
        if pair >= 0:
            ratios.append(factors[ours] / factors[theirs])
    return ratios


async def over_http(folder: Path, bare: Callable[[bool], float], pairs: int, pinned: bool) -> None:
    async with (
        open_local_server(str(folder)) as server,
        httpx2.AsyncClient(base_url=server.address) as client,
    ):
        await listen(client)
        process = psutil.Process(server.pid)
        if pinned:
            await pin(process, lambda: listen(client, form="pcm"))
            await pin(psutil.Process(), lambda: trio.to_thread.run_sync(bare, True))
        costs, shares, both, second = [], [], [], []
        clocks: dict[str, list[float]] = {form: [] for form in AUDIO_FORMATS}
        for _ in range(pairs):
            used = processor_time(process)
            await listen(client, form="pcm")
            used = processor_time(process) - used
            first, last = await listen(client)
            began, bare_began = time.perf_counter(), time.process_time()
            await trio.to_thread.run_sync(bare, True)
            bare_seconds = time.perf_counter() - began
            costs.append((time.process_time() - bare_began) / used)
            shares.append(first / last)
            for form, ratios in clocks.items():
                ratios.append(bare_seconds / (await listen(client, form=form))[1])
            alone = last + (await listen(client))[1]
            began = time.perf_counter()
            firsts: list[float] = []
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(listen, client, firsts)
            took = time.perf_counter() - began
            both.append(alone / took)
            second.append(max(firsts) / took)
    report("server over bare loop, streamed, processor", costs)
    for form, ratios in clocks.items():
        report(f"server over bare loop, streamed, {form}, clock", ratios)
    report("first byte, share of the whole", shares)
    report("two streams at once over one after the other", both)
    report("first byte of the second of them, share of both", second)


async def pin(process: psutil.Process, compute: Callable[[], Awaitable[object]]) -> None:
    """Have the two threads of a process that compute most share one core, and the others have the other."""
    if sys.platform != "linux":
        raise SystemExit("only Linux pins threads to cores")

    def used() -> dict[int, float]:
        return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}

    before = used()
    await compute()
    computed = {thread: seconds - before.get(thread, 0.0) for thread, seconds in used().items()}
    busiest = sorted(computed, key=computed.__getitem__)[-2:]
    for thread in computed:
        os.sched_setaffinity(thread, {0} if thread in busiest else {1})


def processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def listen(
    client: httpx2.AsyncClient, firsts: list[float] | None = None, form: str = "mp3"
) -> tuple[float, float]:
    """Return the seconds to the first byte and to the last."""
    began, first = time.perf_counter(), 0.0
    async with client.stream(
        "POST", "/v1/audio/speech", json={**BODY, "response_format": form}, timeout=600
    ) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_raw():
            first = first or time.perf_counter() - began
    if firsts is not None:
        firsts.append(first)
    return first, time.perf_counter() - began


def report(name: str, values: list[float]) -> None:
    print(f"{name}: {statistics.median(values):.3f} ({min(values):.3f}-{max(values):.3f})", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        pinned = "pinned" in sys.argv
        given = [argument for argument in sys.argv[1:] if not argument.isdigit() and argument != "pinned"]
        main(
            Path(given[0]) if given else make_tiny_pocket(Path(made) / "voice"),
            int(next((argument for argument in sys.argv[1:] if argument.isdigit()), "5")),
            pinned=pinned,
        )
