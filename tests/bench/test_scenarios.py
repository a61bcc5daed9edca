"""The scenarios of `make bench`, on a real server, and on servers that lack features."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from greenroom.notes.scenarios.bare_continuation import BareContinuation
from greenroom.notes.scenarios.conversation import Conversation
from greenroom.notes.scenarios.images import Images, ImagesAmongStreams
from greenroom.notes.scenarios.shared_prompt import SharedPrompt
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.bench.bare_loops import Baseline
from greenroom.tests.bench.figures import Sample
from greenroom.tests.bench.load_client import LoadClient, Prompts, find_endpoint, open_response_recorder
from greenroom.tests.bench.long_prompt import LongPrompt
from greenroom.tests.bench.scenarios import Measurement, Mixed, Scenario, Streams, request_fields
from greenroom.tests.bench.servers import TargetServer
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bench_servers import chunked, delta, scripted_server, stream_answer
from greenroom.tests.support.servers.http_servers import serving

LONG = LongPrompt(streams=2, prompt_tokens=200, tokens=24, undisturbed=4, stream_words=4)
BENCH: list[Scenario] = [Streams(3, 5, 8), Mixed(4, 6, 8), LONG]
SMALL: list[Scenario] = [*BENCH, SharedPrompt(150, 2, 3), Conversation(2, 6, 6)]
OF_IMAGES: list[Scenario] = [
    Images(2, 5, 8, ((32, 48),)),
    ImagesAmongStreams(streams=2, tokens=24, undisturbed=4, stream_words=4),
]
SCENARIOS = tuple(scenario.name for scenario in BENCH)
BARE = (
    *("of_batch_generator", "of_bare_loop", "own_over_bare", "bare", "alone_over_bare", "cold_over_bare"),
    *("median_beyond_bare", "worst_beyond_bare"),
)


@asynccontextmanager
async def target_server(address: str) -> AsyncIterator[TargetServer]:
    async with open_response_recorder() as recorder:
        yield TargetServer(LoadClient(await find_endpoint(address, None, "none"), recorder))


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[TargetServer]:
    async with (
        serving(Settings(models=(str(folder),))) as served,
        target_server(served.server.address) as target,
    ):
        yield target


async def once(scenario: Scenario, target: TargetServer, number: int = 0, seed: int | None = None) -> Sample:
    return await scenario.run(target, Prompts(seed), number)


@pytest.mark.soak
async def test_every_scenario_measures_what_it_names_also_the_other_way_round(tiny_model: TinyModel) -> None:
    async with real(tiny_model("qwen3")) as target:
        for scenario in SMALL:
            sample = await once(scenario, target, number=1)
            assert not sample.errors, scenario
            assert [answer.error for answer in sample.answers if answer.error] == [], scenario
            missing = {name for name in scenario.metrics if name not in sample.values}
            unmeasured = {name for name in missing if name not in BARE and "cpu_beyond" not in name}
            assert unmeasured <= {"verified"}, scenario


async def test_mixed_requests_equal_what_they_get_alone(tiny_model: TinyModel) -> None:
    async with real(tiny_model("qwen3")) as target:
        sample = await once(Mixed(4, 6, 8), target)
    assert sample.values["verified"] == 4
    assert [answer.tokens for answer in sample.answers] == [6] * 8
    assert [answer.alternatives for answer in sample.answers] == [(5,) * 6] * 4 + [()] * 4


@pytest.mark.deep
async def test_a_long_prompt_has_the_length_and_the_company_that_was_asked_for(tiny_model: TinyModel) -> None:
    async with real(tiny_model("qwen3")) as target:
        sample = await once(LONG, target)
    alone, newcomer, *streams = sample.answers
    assert 170 < alone.prompt_tokens < 230
    assert 170 < newcomer.prompt_tokens < 230
    assert newcomer.tokens == 24
    assert len(streams) == 2
    for stream in streams:
        assert stream.arrivals[0] < newcomer.sent < newcomer.arrivals[-1]
        assert stream.tokens >= 16
    assert sample.values["longest"] >= sample.values["prefilling_p99"]


@pytest.mark.deep
async def test_a_repeated_system_prompt_and_a_grown_conversation_are_remembered(
    tiny_model: TinyModel,
) -> None:
    async with real(tiny_model("qwen3")) as target:
        shared = await once(SharedPrompt(150, 2, 3), target)
        conversation = await once(Conversation(3, 6, 6), target)
    assert shared.values["cached"] > 0.5
    first, *later = [answer.cached_tokens for answer in shared.answers]
    assert first is not None
    assert all(count is not None and count > first for count in later)
    assert conversation.values["cached"] > 0.5
    lengths = [answer.prompt_tokens for answer in conversation.answers[1::3]]
    assert list(lengths) == sorted(set(lengths))
    colds = [answer.prompt_tokens for answer in conversation.answers[3::3]]
    assert all(abs(cold - length) < 0.1 * length for cold, length in zip(colds, lengths, strict=True))


async def test_the_bare_loops_get_the_prompts_that_the_server_gets(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    async with real(folder) as target:
        answer = (await target.ask(messages, 1)).answer
    for loop, tokens in (("bare_prefill", 0), ("batch_generator", 3), ("bare_loop", 3), ("own_loop", 3)):
        run = Baseline(str(folder)).run({"loop": loop, "prompts": [messages], "tokens": [3]})
        assert (run["prompt_tokens"], run["tokens"]) == (answer.prompt_tokens, tokens)


async def test_the_bare_continuation_computes_only_what_is_new(tiny_model: TinyModel) -> None:
    continuation = BareContinuation(str(tiny_model("qwen3")))
    opening = [{"role": "user", "content": "hello"}]
    longer = [*opening, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and now?"}]
    whole, added, repeated = (
        continuation.new_tokens(cached, longer)
        for cached in ([{"role": "user", "content": "x"}], opening, longer)
    )
    assert whole > added > repeated == 1
    assert continuation(opening, longer) > 0


@pytest.mark.parametrize(
    "scenario", [*SMALL, OF_IMAGES[0], *deep_only(OF_IMAGES[1])], ids=lambda scenario: scenario.name
)
async def test_a_seed_repeats_the_prompts(scenario: Scenario) -> None:
    sent = []
    with scripted_server(stream_answer) as (address, bodies):
        for seed in (1, 1, 2):
            async with target_server(address) as target:
                await once(scenario, target, seed=seed)
            sent.append(sorted(json.dumps(body) for body in bodies))
            bodies.clear()
    assert sent[0] == sent[1]
    assert sent[0] != sent[2]


def broken(_body: dict[str, Any]) -> Iterator[bytes]:
    refusal = b'{"error": {"message": "out of order"}}'
    return iter([b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n%b" % (len(refusal), refusal)])


@pytest.mark.parametrize("scenario", [*SMALL, *OF_IMAGES], ids=lambda scenario: scenario.name)
async def test_a_server_that_fails_is_reported(scenario: Scenario) -> None:
    with scripted_server(broken) as (address, _):
        async with target_server(address) as target:
            results = await Measurement([target], Prompts(), 1).measure(scenario)
    assert "HTTP 500: out of order" in results[0].errors
    assert results[0].answers == 0


def without_extras(body: dict[str, Any]) -> Iterator[bytes]:
    """Answer as a server that refuses fields unknown to OpenAI and reports no usage."""
    for field in ("top_k", "min_p", "repetition_penalty", "ignore_eos"):
        if field in body:
            refusal = b'{"error": {"message": "unknown field"}}'
            return iter([b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(refusal), refusal)])
    return chunked(*[delta(content="hi ")] * min(body["max_tokens"], 50), b"data: [DONE]\n\n")


async def test_a_server_without_extras_can_be_measured() -> None:
    with scripted_server(without_extras) as (address, bodies):
        async with target_server(address) as target:
            for scenario in (SharedPrompt(150, 2, 3), Conversation(2, 6, 6), Streams(2, 3, 4)):
                sample = await once(scenario, target)
                assert sample.values
                assert not sample.errors
                assert not [answer for answer in sample.answers if answer.error]
            bodies.clear()
            mixed = await once(Mixed(2, 4, 4), target)
    assert "the server refuses ignore_eos, min_p, repetition_penalty, top_k" in mixed.errors
    assert "2 of 2 requests lack log-probabilities" in mixed.errors
    assert mixed.values["of_greedy"] > 0
    rows = [body for body in bodies if len(body["messages"][0]["content"].split()) == 4 and "seed" in body]
    assert rows
    assert all("top_k" not in body and "top_p" in body for body in rows)


async def test_a_server_that_ignores_seeds_is_found_out() -> None:
    numbers = itertools.count()

    def moody(body: dict[str, Any]) -> Iterator[bytes]:
        words = [delta(content=f"{next(numbers)} ") for _ in range(body["max_tokens"])]
        return chunked(*words, b"data: [DONE]\n\n")

    with scripted_server(moody) as (address, _):
        async with target_server(address) as target:
            sample = await once(Mixed(3, 4, 4), target)
    assert sample.values["verified"] == 0
    assert any("3 of 3 seeded requests differ from their solo runs" in error for error in sample.errors)


async def test_streams_that_end_before_the_long_prompt_is_done_void_the_figures() -> None:
    ended = threading.Semaphore(0)

    def short(body: dict[str, Any]) -> Iterator[bytes]:
        tokens = body["max_tokens"]
        if tokens == LONG.tokens:  # the long prompt's answer comes last
            assert all(ended.acquire(timeout=120) for _ in range(LONG.streams))
        yield from stream_answer({**body, "max_tokens": min(tokens, 30)})
        if tokens > 30:
            ended.release()

    with scripted_server(short) as (address, _):
        async with target_server(address) as target:
            sample = await once(LONG, target)
    assert sample.errors == ["2 of 2 streams ended before the long prompt's answer"]
    assert "prefilling_p99" not in sample.values


def test_no_two_requests_have_the_same_fields() -> None:
    requests = [request_fields(number, seed=number) for number in range(16)]
    for field in ("top_p", "top_k", "seed"):
        assert len({request[field] for request in requests}) == 16
    assert len({json.dumps({**request, "seed": 0, "top_k": 0, "top_p": 0}) for request in requests}) == 16


async def test_two_servers_get_the_same_prompts_in_turns() -> None:
    order: list[tuple[str, str]] = []

    def noting(name: str) -> Callable[[dict[str, Any]], Iterator[bytes]]:
        def respond(body: dict[str, Any]) -> Iterator[bytes]:
            order.append((name, body["messages"][0]["content"]))
            return stream_answer(body)

        return respond

    with scripted_server(noting("a")) as (first, _), scripted_server(noting("b")) as (second, _):
        async with target_server(first) as one, target_server(second) as other:
            results = await Measurement([one, other], Prompts(), 2).measure(Streams(1, 2, 8))
    assert [result.server for result in results] == [first, second]
    assert [name for name, _ in order] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    prompts = [text for _, text in order]
    assert prompts[0::2] == prompts[1::2]
    assert len(set(prompts)) == 4


@pytest.mark.deep
@pytest.mark.parametrize(
    "scenarios", [("long-prompt",), pytest.param(SCENARIOS, marks=pytest.mark.soak)], ids=["one", "all"]
)
def test_the_command_measures_a_model(scenarios: Sequence[str], tiny_model: TinyModel) -> None:
    sizes = "--concurrency 2 --requests 2 --beside 2 --long-tokens 150 --tokens 4 --prompt-words 4"
    chosen = "all" if scenarios == SCENARIOS else scenarios[0]
    arguments = [str(tiny_model("qwen3")), "--scenario", chosen, "--repeats", "1", *sizes.split()]
    command = [sys.executable, "-m", "greenroom.tests.bench", *arguments]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["command"][1:] == [*command[3:], "--json"]
    assert {"greenroom", "mlx", "mlx-lm"} <= report["versions"].keys()
    assert all(report[field] for field in ("machine", "python", "date", "model"))
    results = {result["scenario"]: result for result in report["results"]}
    assert list(results) == list(scenarios)
    for scenario in (scenario for scenario in BENCH if scenario.name in scenarios):
        result = results[scenario.name]
        assert result["errors"] == []
        assert result["figures"].keys() == scenario.metrics.keys()
        assert all(len(figure["runs"]) == 1 for figure in result["figures"].values())


@pytest.mark.soak
def test_the_script_of_further_scenarios_measures_a_model(tiny_model: TinyModel) -> None:
    sizes = "--long-tokens 150 --turns 1 --tokens 4 --prompt-words 4 --repeats 1 --json"
    command = [sys.executable, "-m", "greenroom.notes.scenarios", str(tiny_model("qwen3")), *sizes.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    results = {result["scenario"]: result for result in json.loads(done.stdout)["results"]}
    for scenario in SMALL[len(BENCH) :]:
        assert results[scenario.name]["errors"] == []
        assert results[scenario.name]["figures"].keys() == scenario.metrics.keys()
