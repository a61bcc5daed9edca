"""Models elsewhere behind the pool's messages: answers, faults, fallback and the breaker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import pytest
import trio

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.pool.tickets import NOT_ANSWERED
from greenroom.actors.remotes.anthropic_wire import messages_call
from greenroom.actors.remotes.breaker import FAILURES
from greenroom.actors.remotes.far_client import FarClient, FarFailure
from greenroom.actors.remotes.openai_wire import chat_call
from greenroom.actors.remotes.responses_wire import response_call
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.remotes import Remote, Route
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import chat, eventually
from greenroom.tests.support.servers.far_servers import (
    BEGUN,
    FAULTS,
    HEADS,
    STREAMS,
    Asked,
    Script,
    StandIn,
    answering,
    models,
    standing_in,
)


@attrs.frozen
class House:
    """A system beside a stand-in of a remote."""

    system: System
    far: StandIn


@asynccontextmanager
async def house(script: Script, api: Any = "openai", **settings: Any) -> AsyncIterator[House]:
    async with standing_in(answering(script, "big")) as far:
        remote = Remote(far.url, api, **settings.pop("remote", {}))
        given = {"shutdown_timeout": 60.0, "remotes": (("far", remote),), **settings}
        async with open_system(Settings(**given)) as system:
            yield House(system, far)


async def events_of(system: System, model: str, **request: Any) -> list[InferenceEvent]:
    """Return the events of a chat, without those of its wait."""
    asked = attrs.evolve(chat(model), **request)
    with Generation(system.pool, asked) as generation:
        events = [event async for event in generation]
    return [event for event in events if not isinstance(event, QueueStatus | Admitted)]


def told(events: list[InferenceEvent]) -> tuple[str, str, InferenceEvent]:
    """Return the reasoning, the text and the last event of an answer."""
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return thought, "".join(event.text for event in events if isinstance(event, TextDelta)), events[-1]


def problem_of(events: list[InferenceEvent]) -> Problem:
    assert isinstance(events[-1], Failed), events
    return events[-1].problem


@pytest.mark.parametrize("api", STREAMS)
async def test_a_documented_stream_becomes_the_events_of_a_model(api: str) -> None:
    async with house(Script(STREAMS[api]), api) as each:
        thought, text, end = told(await events_of(each.system, "far/big"))
        assert (thought, text) == ("hm", "Hello")
        assert isinstance(end, Finished)
        assert (end.reason, end.raw) == ("stop", "Hello")
        reasoning = 0 if api == "anthropic" else 1  # which it does not tell
        assert end.usage == Usage(prompt=11, generated=3, cached=4, reasoning=reasoning)


ROUTE = (("smart", Route(("far/big", "spare/big"))),)


@asynccontextmanager
async def two_remotes(api: Any, **remote: Any) -> AsyncIterator[tuple[System, StandIn, StandIn]]:
    """Run a system with a faulty remote and one that answers, behind one route."""
    good = answering(Script(STREAMS[api]), "big")
    async with standing_in(good) as far, standing_in(good) as spare:
        remotes = (("far", Remote(far.url, api, **remote)), ("spare", Remote(spare.url, api)))
        async with open_system(Settings(remotes=remotes, routes=ROUTE, shutdown_timeout=60.0)) as system:
            yield system, far, spare


async def _is_sound(system: System) -> bool:
    """Return whether the remote answers; its breaker then forgets what was before."""
    return told(await events_of(system, "far/big"))[1] == "Hello"


async def outcome(client: FarClient, far: StandIn, api: Any, script: Script) -> tuple[str, Problem | None]:
    """Return the text that a client gets of a script, and the problem at its end."""
    far.answer = answering(script, "big")
    asked = chat("far/big")
    assert isinstance(asked.input, ChatInput)
    match api:
        case "anthropic":
            call = messages_call(asked, asked.input, "big")
        case "responses":
            call = response_call(asked, asked.input, "big")
        case _:
            call = chat_call(asked, asked.input, "big", api, official=False)
    events: list[InferenceEvent] = []
    problem = None
    try:
        await client.ask(call, None, {}, events.append)
    except FarFailure as failure:
        problem = failure.problem
    assert (problem is None) == any(isinstance(event, Finished) for event in events)
    return "".join(event.text for event in events if isinstance(event, TextDelta)), problem


def _remote(far: StandIn, api: Any, *limits: str) -> Remote:
    short: dict[str, Any] = dict.fromkeys(limits, 0.1)
    return Remote(far.url, api, **short)


@pytest.mark.parametrize("api", STREAMS)
async def test_each_fault_is_a_problem_that_names_the_remote_and_quotes_nothing(api: str) -> None:
    begun = STREAMS[api][: BEGUN[api]]
    wrong: dict[str, Any] = {}
    async with standing_in(answering(Script())) as far:
        limits: list[tuple[str, ...]] = [(), ("silence_timeout",), ("first_token_timeout",)]
        clients = {each: FarClient("far", _remote(far, api, *each)) for each in limits}
        for name, script in HEADS.items():
            text, problem = await outcome(clients[()], far, api, script)
            if text or problem is None or "SECRET" in problem.detail or problem.code not in NOT_ANSWERED:
                wrong[name] = text, problem
        for name, pieces in FAULTS.items():
            for at, before in (("before", ()), ("after", begun)):
                limit = "silence_timeout" if before else "first_token_timeout"
                client = clients[(limit,) if None in pieces else ()]
                text, problem = await outcome(client, far, api, Script((*before, *pieces)))
                code = "" if problem is None else problem.code
                known = code in ("remote_failed", "remote_silent") and "SECRET" not in str(problem)
                if text != ("Hel" if before else "") or not known:
                    wrong[f"{name}, {at} the first token"] = text, problem
        for client in clients.values():
            await client.aclose()
    assert wrong == {}


@pytest.mark.parametrize(
    "api",
    [pytest.param(api, marks=() if api == "openai" else pytest.mark.deep) for api in STREAMS],
)
async def test_a_fault_is_replaced_before_the_first_token_and_told_after_it(api: str) -> None:
    faults = ["ends", "broken JSON", "an error in OpenAI's shape"]
    begun = STREAMS[api][: BEGUN[api]]
    async with two_remotes(api) as (system, far, _):
        for name in faults:
            far.answer = answering(Script(FAULTS[name]), "big")
            assert told(await events_of(system, "smart"))[:2] == ("hm", "Hello")
            far.answer = answering(Script((*begun, *FAULTS[name])), "big")
            thought, text, end = told(await events_of(system, "smart"))
            assert (thought, text) == ("hm", "Hel")
            assert isinstance(end, Failed)
            assert end.problem.code == "remote_failed"
            far.answer = answering(Script(STREAMS[api]), "big")
            assert told(await events_of(system, "far/big"))[1] == "Hello"


async def test_the_breaker_opens_stays_silent_and_closes_after_one_probe() -> None:
    now = 0.0
    async with two_remotes("openai") as (system, far, spare):
        server = system.far.servers["far"]
        far.answer = answering(Script(status=500), "big")
        for _ in range(FAILURES):
            assert problem_of(await events_of(system, "far/big")).code == "remote_failed"
        assert server.breaker.state(time.monotonic()) == "open"
        sent = len(far.asked)
        for _ in range(5):
            assert problem_of(await events_of(system, "far/big")).code == "remote_away"
            assert told(await events_of(system, "smart"))[1] == "Hello"
        assert len(far.asked) == sent
        assert len(spare.posts) == 5
        server.breaker._until = now  # its pause is over
        far.answer = answering(Script(STREAMS["openai"]), "big")
        assert told(await events_of(system, "smart"))[1] == "Hello"
        assert len(far.asked) == sent + 1
        assert server.breaker.state(time.monotonic()) == "closed"


async def test_a_busy_remote_is_left_alone_for_as_long_as_it_asks() -> None:
    async with two_remotes("openai") as (system, far, spare):
        far.answer = answering(Script(status=429, headers={"retry-after": "600"}), "big")
        for _ in range(3):
            assert told(await events_of(system, "smart"))[1] == "Hello"
        assert (len(far.posts), len(spare.posts)) == (1, 3)
        problem = problem_of(await events_of(system, "far/big"))
        assert (problem.status, problem.code) == (429, "remote_busy")
        assert problem.retry_after is not None
        assert 500 < problem.retry_after <= 600


async def test_a_cancelled_request_is_cancelled_in_its_remote() -> None:
    async with house(Script((*STREAMS["openai"][:3], None))) as each:
        with Generation(each.system.pool, chat("far/big")) as generation:
            async for event in generation:
                if isinstance(event, TextDelta):
                    break
        with trio.fail_after(60):
            await each.far.posts[0].left.wait()
        await eventually(lambda: _is_free(each.system))


async def _is_free(system: System) -> bool:
    await trio.lowlevel.checkpoint()
    return all(server.running == 0 for server in system.far.servers.values())


async def test_nothing_leaves_that_must_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "far-secret")
    script = Script(STREAMS["openai"])
    async with house(script, remote={"key_env": "FAR_KEY"}) as each:
        stays = {"stays": "its API key keeps requests on this machine"}
        assert problem_of(await events_of(each.system, "far/big", **stays)).code == "may_not_leave"
        assert each.far.posts == []
        await events_of(each.system, "far/big", traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
        headers = each.far.posts[0].headers
        assert headers["authorization"] == "Bearer far-secret"
        assert headers["x-greenroom-hop"] == "1"
        assert headers["x-client-request-id"] == "r"
        assert headers["traceparent"].startswith("00-aaaa")
    async with house(script, local_only=True) as each:
        assert problem_of(await events_of(each.system, "far/big")).code == "model_not_found"
        assert each.far.asked == []


@pytest.mark.deep
async def test_no_request_is_lost_over_a_remote_that_comes_and_goes() -> None:
    chance = Random(42)
    pieces = STREAMS["openai"]
    broken = [*HEADS.values(), *(Script(fault) for fault in FAULTS.values() if None not in fault)]
    broken += [Script((*pieces[:3], *fault)) for fault in FAULTS.values() if None not in fault]
    endings: Counter[str] = Counter()

    def answer(asked: Asked) -> Script:
        listing = asked.method == "GET"
        return (
            models("big") if listing else chance.choice(broken) if chance.random() < 0.3 else Script(pieces)
        )

    async with two_remotes("openai") as (system, far, _):
        far.answer = answer

        async def ask(number: int) -> None:
            name = "smart" if number % 3 else "far/big"
            _, text, end = told(await events_of(system, name, id=f"r{number}"))
            if isinstance(end, Finished):
                assert text == "Hello"
                endings["answered"] += 1
            else:
                assert isinstance(end, Failed)
                assert end.problem.code in NOT_ANSWERED
                assert "SECRET" not in end.problem.detail
                endings[end.problem.code] += 1

        for first in range(0, 1_000, 50):
            async with trio.open_nursery() as nursery:
                for number in range(first, first + 50):
                    nursery.start_soon(ask, number)
        assert endings.total() == 1_000
        assert endings["answered"] > 300
        await eventually(lambda: _is_free(system))
        status = await ask_actor(system.pool, DescribePool(), PoolStatus)
        assert [(model.leases, model.queue) for model in status.models] == [(0, 0)] * len(status.models)
