"""The load generator against servers of every kind of response, with figures computed from known times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import trio

from greenroom.tests.bench.figures import (
    Figure,
    Metric,
    Sample,
    Spread,
    percentile,
    summarize,
    tokens_per_second,
)
from greenroom.tests.bench.load_client import (
    Answer,
    BenchError,
    Endpoint,
    LoadClient,
    Prompts,
    find_endpoint,
    open_response_recorder,
    parse_answer,
)
from greenroom.tests.bench.scenarios import Streams
from greenroom.tests.bench.servers import TargetServer, processor_time
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bench_servers import (
    STREAM_HEAD,
    Respond,
    chunked,
    delta,
    event,
    scripted_server,
    stream_answer,
)


async def ask(respond: Respond, tokens: int = 3) -> Answer:
    with scripted_server(respond) as (address, _):
        async with open_response_recorder() as recorder:
            client = LoadClient(Endpoint(address, "m"), recorder)
            return parse_answer(await client.ask([{"role": "user", "content": "x"}], tokens))


async def test_a_streamed_answer() -> None:
    answer = await ask(stream_answer)
    assert answer.error is None
    assert (answer.tokens, answer.prompt_tokens, len(answer.arrivals), answer.text) == (3, 5, 3, "hi hi hi ")
    assert answer.time_to_first_token > 0
    assert len(answer.inter_token_latencies) == 2


async def test_the_first_token_is_the_first_content_of_any_kind() -> None:
    call = event(choices=[{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}])
    parts = (delta(role="assistant"), delta(reasoning_content="hm"), delta(reasoning="hm"), call)
    answer = await ask(lambda _body: chunked(*parts))
    assert (len(answer.arrivals), answer.tokens, answer.text) == (3, 3, "hmhm")


async def test_events_may_be_cut_anywhere() -> None:
    body = b"".join((delta(content="a"), b": comment\r\n\r\n", delta(content="b"), b"data: [DONE]\n\n"))
    answer = await ask(lambda _body: chunked(*(body[i : i + 7] for i in range(0, len(body), 7))))
    assert (answer.text, answer.error) == ("ab", None)


async def test_a_server_that_ends_an_answer_by_hanging_up() -> None:
    answer = await ask(lambda _body: iter([STREAM_HEAD + b"\r\n", delta(content="a"), delta(content="b")]))
    assert (answer.text, answer.error) == ("ab", None)


async def test_a_refusal_is_told_in_the_servers_words() -> None:
    refusal = b'{"error": {"message": "no such model"}}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(refusal)
    answer = await ask(lambda _body: iter([head[:10], head[10:] + refusal]))
    assert answer.error == "HTTP 404: no such model"
    assert answer.tokens == 0


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([*chunked(delta(content="a"), event(error={"message": "it broke"}))], "it broke"),
        ([*chunked(delta(content="a"))][:-1], "peer closed connection"),
        ([*chunked(b"data: {nonsense\n\n")], "Expecting property name"),
        ([*chunked(delta(role="assistant"))], "empty"),
        ([b""], "without an answer"),
        ([b"nonsense\r\n\r\n"], "illegal status line"),
    ],
)
async def test_an_answer_that_goes_wrong_counts_as_an_error(pieces: list[bytes], error: str) -> None:
    answer = await ask(lambda _body: iter(pieces))
    assert answer.error is not None
    assert error in answer.error


async def test_streams_run_at_once_with_prompts_of_their_own() -> None:
    everyone = threading.Barrier(5)

    def together(body: dict[str, Any]) -> Iterator[bytes]:
        everyone.wait(120)
        return stream_answer(body)

    with scripted_server(together) as (address, bodies):
        async with open_response_recorder() as recorder:
            client = LoadClient(Endpoint(address, "m"), recorder)
            sample = await Streams(5, 4, 16).run(TargetServer(client), Prompts(), 0)
    assert [answer.tokens for answer in sample.answers] == [4] * 5
    assert len({body["messages"][0]["content"] for body in bodies}) == 5
    for body in bodies:
        assert len(body["messages"][0]["content"].split()) == 16
        assert (body["model"], body["temperature"], body["stream"]) == ("m", 0, True)


async def test_an_asker_that_gives_up_leaves_nothing_behind() -> None:
    asked, left = threading.Event(), threading.Event()

    def never(_body: dict[str, Any]) -> Iterator[bytes]:
        asked.set()
        left.wait(120)
        return iter(())

    with scripted_server(never) as (address, _):
        async with open_response_recorder() as recorder:
            # Let Trio and its first thread open their permanent descriptors now.
            await trio.to_thread.run_sync(asked.is_set)
            before = psutil.Process().num_fds()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(LoadClient(Endpoint(address, "m"), recorder).ask, [], 1)
                await trio.to_thread.run_sync(asked.wait)
                nursery.cancel_scope.cancel("enough")
            left.set()
            # The server runs in this process too. Its end of the connection may still be open.
            assert psutil.Process().num_fds() <= before + 1


async def test_a_target_is_found_with_or_without_v1() -> None:
    with scripted_server(stream_answer) as (address, _):
        for url in (address, f"{address}/v1", f"{address}/v1/"):
            assert await find_endpoint(url, None, "none") == Endpoint(address, "fake")
        assert (await find_endpoint(address, "other", "none")).model == "other"
    with pytest.raises(BenchError, match=address):
        await find_endpoint(address, None, "none")


def answer(sent: float, *arrivals: float, error: str | None = None) -> Answer:
    return Answer(sent, arrivals, len(arrivals), error=error)


def test_figures_of_known_times() -> None:
    assert (
        tokens_per_second([answer(10.0, 10.5, 11.0), answer(10.0, 10.25, 12.0), answer(0.0, error="refused")])
        == 2.0
    )
    assert tokens_per_second([]) == 0.0
    samples = [Sample({"speed": value}, [answer(0.0, 1.0)]) for value in (1.0, 3.0, 2.0)]
    failed = Sample({}, [answer(0.0, error="refused")], ["no figure"])
    result = summarize("a", "b", "c", {"speed": Metric("speed"), "other": Metric("x")}, [*samples, failed])
    assert list(result.figures) == ["speed"]
    assert result.figures["speed"].spread == Spread(2.0, 1.0, 3.0)
    assert result.figures["speed"].runs == [1.0, 3.0, 2.0, None]
    assert (result.answers, result.tokens, result.errors) == (3, 3, ["no figure", "refused"])


def test_a_ratio_of_servers_is_taken_run_by_run() -> None:
    first, second = Figure("x", "ms", 0, [2.0, 9.0, None]), Figure("x", "ms", 0, [1.0, 3.0, 1.0])
    assert first.ratio_to(second).runs == [2.0, 3.0, None]
    assert first.ratio_to(second).unit == ""


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile(range(1, 101), rank) for rank in (50, 90, 99)] == [50, 90, 99]
    assert percentile([3], 99) == 3


def test_prompts_are_new_unless_a_seed_says_otherwise() -> None:
    assert Prompts().text(32) != Prompts().text(32)
    assert Prompts(1).text(32) == Prompts(1).text(32)


def test_processor_time_counts_all_threads_of_a_process() -> None:
    code = (
        "import sys, threading, time\n"
        "def burn():\n"
        "    began = time.thread_time()\n"
        "    while time.thread_time() < began + 0.1: pass\n"
        "ts = [threading.Thread(target=burn) for _ in range(2)]\n"
        "print('go', flush=True); sys.stdin.readline(); burn()\n"
        "print('done', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = processor_time(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert 0.05 < processor_time(process.pid) - before < 1
        process.stdin.write("\n")


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "greenroom.tests.bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.deep
def test_the_command_prints_a_table_or_json() -> None:
    plan = ("--concurrency", "1,3", "--repeats", "2", "--tokens", "5")
    with scripted_server(stream_answer) as (address, _):
        table = run_bench(address, *plan)
        document = run_bench(address, *plan, "--json")
    assert table.returncode == 0, table.stderr
    assert "3 streams" in table.stdout
    assert "fake at" in table.stdout
    results = json.loads(document.stdout)["results"]
    assert [(result["case"], result["tokens"], result["errors"]) for result in results] == [
        ("1 stream", 10, []),
        ("3 streams", 30, []),
    ]
    assert results[0]["prompt_tokens"] == 5


@pytest.mark.deep
def test_the_command_compares_two_servers() -> None:
    plan = ("--concurrency", "2", "--repeats", "2", "--tokens", "5")
    with scripted_server(stream_answer) as (mine, _), scripted_server(stream_answer) as (theirs, _):
        table = run_bench(mine, "--against", theirs, *plan)
        document = run_bench(mine, "--against", theirs, *plan, "--json")
    assert table.returncode == 0, table.stderr
    assert "ratio" in table.stdout
    found = json.loads(document.stdout)
    assert [result["server"] for result in found["results"]] == [mine, theirs]
    speeds = [result["figures"]["rate"]["runs"] for result in found["results"]]
    ratios = found["ratios"][0]["figures"]["rate"]["runs"]
    assert ratios == [first / second for first, second in zip(*speeds, strict=True)]


@pytest.mark.deep
def test_the_command_says_in_one_line_what_is_wrong() -> None:
    for arguments, status in [
        (("http://127.0.0.1:1",), 1),
        (("http://127.0.0.1:1", "--concurrency", "0"), 2),
        (("http://127.0.0.1:1", "--scenario", "nonsense"), 2),
        (("http://127.0.0.1:1", "--requests", "0"), 2),
        (("http://127.0.0.1:1", "--against", "qwen3"), 2),
    ]:
        done = run_bench(*arguments)
        assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (status, 1, ""), done.stderr


@pytest.mark.deep
def test_bench_measures_a_model_against_the_bare_loops(tiny_model: TinyModel) -> None:
    plan = ("--concurrency", "2", "--tokens", "6", "--prompt-words", "4", "--repeats", "2", "--json")
    done = run_bench(str(tiny_model("qwen3")), *plan)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["errors"] == []
    assert 0 < result["tokens"] <= 24
    figures = result["figures"]
    for ratio in ("of_batch_generator", "of_bare_loop", "own_over_bare"):
        assert len(figures[ratio]["runs"]) == 2
        assert 0 < figures[ratio]["low"] <= figures[ratio]["median"] < 20
    assert {"cpu_beyond_batch_generator", "cpu_beyond_bare_loop"} <= set(figures)


@pytest.mark.deep
def test_bench_says_why_a_model_cannot_be_served() -> None:
    done = run_bench("./nowhere")
    assert done.returncode == 1
    assert "there is no folder './nowhere'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
