"""Models elsewhere behind the pool's messages: answers, faults, fallback and the breaker."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import attrs
import httpx2
import pytest
import structlog
import trio

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease_queue import NOT_ANSWERED
from greenroom.actors.remotes.media_calls import SpeechReader, _read_transcript
from greenroom.actors.remotes.remote_call import Answer, CallFailure, Choice
from greenroom.actors.remotes.remote_client import RemoteClient, _retry_after
from greenroom.actors.remotes.remote_model import CHARACTERS_PER_TOKEN, RemoteModel, _size_of, call_of
from greenroom.actors.remotes.remote_servers import FAILURES, MAX_MODELS, RemoteServer
from greenroom.actors.requests.generation import Generation
from greenroom.actors.requests.prompt_queries import render_prompt
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
from greenroom.schemas.events.result_events import AudioChunk, Segment, Vector
from greenroom.schemas.messages.messages import (
    Message,
    ReasoningSettings,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    RawInput,
    ScoreInput,
    TraceContext,
    TranscriptionInput,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.model_protocol import Generate, RenderPrompt, Stop
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.remotes import Remote, Route
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.actor_systems import chat, eventually
from greenroom.tests.support.servers.far_servers import (
    BEGUN,
    FAULTS,
    HEADS,
    STREAMS,
    USAGE,
    Asked,
    Script,
    StandIn,
    answering,
    chunk,
    event,
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


async def outcome(client: RemoteClient, far: StandIn, api: Any, script: Script) -> tuple[str, Problem | None]:
    """Return the text that a client gets of a script, and the problem at its end."""
    far.answer = answering(script, "big")
    asked = chat("far/big")
    call = call_of(asked, "big", Remote(far.url, api))
    events: list[InferenceEvent] = []
    problem = None
    try:
        await client.ask(call, {}, events.append)
    except CallFailure as failure:
        problem = failure.problem
    assert (problem is None) == any(isinstance(event, Finished) for event in events)
    return "".join(event.text for event in events if isinstance(event, TextDelta)), problem


def _remote(far: StandIn, api: Any, *limits: str) -> Remote:
    # What has arrived before a silence must be read within its limit, on a machine under load too.
    seconds: dict[str, Any] = {"first_token_timeout": 0.1, "silence_timeout": 0.5}
    return Remote(far.url, api, **{limit: seconds[limit] for limit in limits})


@pytest.mark.parametrize("api", STREAMS)
async def test_each_fault_is_a_problem_that_names_the_remote_and_quotes_nothing(api: str) -> None:
    begun = STREAMS[api][: BEGUN[api]]
    wrong: dict[str, Any] = {}
    async with standing_in(answering(Script())) as far:
        limits: list[tuple[str, ...]] = [(), ("silence_timeout",), ("first_token_timeout",)]
        clients = {each: RemoteClient("far", _remote(far, api, *each)) for each in limits}
        whole = Script(STREAMS[api], headers={"content-length": "100000"})  # it breaks off behind its end
        assert await outcome(clients[()], far, api, whole) == ("Hello", None)
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
    async with two_remotes("openai") as (system, far, spare):
        server = system.remotes.servers["far"]

        async def is_listed() -> bool:  # later its list would count as something that was sent
            await trio.lowlevel.checkpoint()
            return server.models is not None

        await eventually(is_listed)
        far.answer = answering(Script(status=500), "big")
        for _ in range(FAILURES):
            assert problem_of(await events_of(system, "far/big")).code == "remote_failed"
        assert server.breaker.state(time.monotonic()) != "closed"
        server.breaker._until = time.monotonic() + 1e4  # a machine under load may take longer than its pause
        sent, posts = len(far.asked), len(far.posts)
        for _ in range(5):
            assert problem_of(await events_of(system, "far/big")).code == "remote_away"
            assert told(await events_of(system, "smart"))[1] == "Hello"
        assert len(far.asked) == sent
        assert len(spare.posts) == 5
        far.answer = answering(Script(STREAMS["openai"]), "big")
        server.breaker._until = 0.0  # its pause is over
        assert told(await events_of(system, "smart"))[1] == "Hello"
        assert len(far.posts) == posts + 1
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
    # So is one that says so when its models are asked for.
    async with standing_in(lambda asked: Script((), 429, headers={"retry-after": "600"})) as far:
        settings = Settings(remotes=(("far", Remote(far.url)),), shutdown_timeout=60.0)
        async with open_system(settings) as system:
            with trio.fail_after(300):
                while not system.remotes.servers["far"].busy_until:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert problem_of(await events_of(system, "far/big")).code == "remote_busy"
            assert far.posts == []


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("0", 0.0),
        ("9" * 20, 600.0),
        ("-5", 5.0),
        ("1e9", 5.0),
        ("nan", 5.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 5.0),
    ],
)
def test_a_pause_that_a_remote_asks_for_is_bounded(asked: str, seconds: float) -> None:
    assert _retry_after(httpx2.Response(429, headers={"retry-after": asked})) == seconds


def whole(answer: Any) -> Script:
    return Script((json.dumps(answer).encode(),), kind="application/json")


MANY = 10**400
ODD: dict[str, tuple[bytes, ...]] = {
    "half of a surrogate pair": (chunk({"content": "a\ud800b"}), *STREAMS["openai"][4:]),
    "counts of many digits": (
        chunk({"content": "a?b"}),
        chunk(reason="stop", usage={**USAGE, "prompt_tokens": MANY, "completion_tokens": -MANY}),
        b"data: [DONE]\n\n",
    ),
    "no usage": (
        chunk({"content": "a?b"}, reason="stop"),
        chunk(choices=[], usage=[]),
        b"data: [DONE]\n\n",
    ),
    "log-probabilities that are none": (
        chunk(
            choices=[
                {
                    "index": 0,
                    "delta": {"content": "a?b"},
                    "logprobs": {"content": [{"token": "a", "logprob": -MANY}]},
                }
            ]
        ),
        *STREAMS["openai"][4:],
    ),
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_values_are_read_as_far_as_they_mean_something(name: str) -> None:
    async with house(Script(ODD[name])) as each:
        _, text, end = told(await events_of(each.system, "far/big"))
        assert (text, type(end)) == ("a?b", Finished)


async def test_an_id_may_come_again_while_its_last_answer_is_being_closed() -> None:
    far = Script((*STREAMS["openai"], None))  # the connection stays open behind the end
    async with house(far, remote={"silence_timeout": 0.5}) as each:
        assert told(await events_of(each.system, "far/big"))[1] == "Hello"
        each.far.answer = answering(Script((*STREAMS["openai"][:3], None)), "big")
        assert problem_of(await events_of(each.system, "far/big")).code == "remote_silent"


class _Unread(tuple[int, ...]):
    def __iter__(self) -> Any:
        raise AssertionError("a million ids would be read one by one while all else waits")


def test_token_ids_are_charged_without_being_read() -> None:
    assert _size_of(_Unread((1, 2, 3))) == 3 * CHARACTERS_PER_TOKEN


RAW_LISTS = {
    "tokens": ["a", "?b"],
    "token_logprobs": [-0.5, None],
    "top_logprobs": [{"a": -0.5, "c": -2.0}, None],
    "text_offset": [0, 1],
}


async def test_log_probabilities_of_raw_text_are_read_from_their_lists() -> None:
    choice = {"index": 0, "text": "a?b", "logprobs": RAW_LISTS, "finish_reason": "stop"}
    async with house(Script((chunk(choices=[choice]), b"data: [DONE]\n\n"))) as each:
        asked = {"input": RawInput("Hi"), "overrides": {"logprobs": True, "top_logprobs": 2}}
        events = await events_of(each.system, "far/big", **asked)
        assert each.far.posts[0].json["logprobs"] == 2
        [text] = [event for event in events if isinstance(event, TextDelta)]
        found = [
            (one.token.text, one.logprob, [(top.text, value) for top, value in one.top])
            for one in text.logprobs
        ]
        assert found == [("a", -0.5, [("a", -0.5), ("c", -2.0)]), ("?b", -9999.0, [])]


@pytest.mark.parametrize("reason", ["function_call", "STOP", "tool_use", "tool_calls"])
async def test_an_answer_with_calls_ends_with_calls_by_whatever_name(reason: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
    pieces = chunk({"tool_calls": [call]}), chunk(reason=reason), b"data: [DONE]\n\n"
    async with house(Script(pieces)) as each:
        end = (await events_of(each.system, "far/big"))[-1]
        assert isinstance(end, Finished)
        assert end.reason == "tool_calls"


def test_calls_without_an_id_get_one_of_their_own() -> None:
    idents = [each.id for _ in range(3) for each in Choice().begin_call({"name": "look"}, "")]
    assert len({*idents}) == 3


@pytest.mark.parametrize("api", STREAMS)
def test_a_stream_may_come_in_single_bytes(api: str) -> None:
    events: list[InferenceEvent] = []
    call = call_of(chat("far/big"), "big", Remote("http://far", api))  # type: ignore[arg-type]
    stream = Answer(call, events.append)
    whole_stream = b"".join(STREAMS[api]).replace(b"\n", b"\r\n")
    complete = [stream.feed(bytes([each])) for each in whole_stream]
    assert complete[-1]
    assert told(events)[:2] == ("hm", "Hello")


LOOK = Tool("look", "", {})
CALLED = Message("assistant", tool_calls=(ToolCall("c", "look", '{"n": NaN}'),))
DEEP = Message("assistant", tool_calls=(ToolCall("c", "look", '{"a":' + "[" * 5_000),))
RESULT = Message("tool", (TextPart("3"),), tool_call_id="c")
THINKS = ReasoningSettings(enabled=True)
EXPRESSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "reasoning": ("anthropic", {"thinking": THINKS}, {}, {"thinking.type": "enabled", "temperature": None}),
    "reasoning after a call": (
        "anthropic",
        {"thinking": THINKS, "messages": (CALLED, RESULT)},
        {},
        {"thinking": None, "max_tokens": 8_192, "temperature": 0.5},
    ),
    "no further calls": (
        "anthropic",
        {"tools": (LOOK,), "tool_choice": ToolChoice("none"), "messages": (CALLED, RESULT)},
        {},
        {"tool_choice.type": "none", "tools.0.name": "look"},
    ),
    "arguments that are no JSON": (
        "anthropic",
        {"messages": (CALLED, RESULT)},
        {},
        {"messages.0.content.0.input.input": '{"n": NaN}'},
    ),
    "arguments without an end": (
        "anthropic",
        {"messages": (DEEP, RESULT)},
        {},
        {"messages.0.content.0.input.input": '{"a":' + "[" * 5_000},
    ),
    "a budget of reasoning": ("responses", {}, {"thinking_budget": 4_096}, {"reasoning.effort": "medium"}),
    "verbosity": ("responses", {"verbosity": "low"}, {}, {"text.verbosity": "low"}),
    "what has no effect": (
        "responses",
        {},
        {"seed": None, "presence_penalty": 0.0, "min_p": 0.0, "n": 1, "logprobs": False},
        {"presence_penalty": 0.0, "min_p": None, "temperature": 0.5},
    ),
}


@pytest.mark.parametrize(("api", "sent"), [("greenroom", ""), ("openai", None)])
def test_an_instruction_that_is_empty_replaces_that_of_a_purpose(api: Any, sent: str | None) -> None:
    asked = attrs.evolve(chat("far/big"), input=EmbeddingInput(("rain",), instruction=""))
    assert call_of(asked, "big", Remote("http://far", api)).body.get("instruction") == sent


def at(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body[int(name)] if isinstance(body, list) else (body or {}).get(name)
    return body


@pytest.mark.parametrize("name", EXPRESSED)
def test_a_protocol_is_asked_in_its_own_words(name: str) -> None:
    api, changes, overrides, wanted = EXPRESSED[name]
    asked = chat("far/big")
    asked = attrs.evolve(
        asked,
        input=attrs.evolve(asked.input, **changes),
        overrides=overrides,
        defaults={"temperature": 0.5, "min_p": 0.1},  # the operator's
    )
    body = call_of(asked, "big", Remote("http://far", api)).body  # type: ignore[arg-type]
    assert {path: at(body, path) for path in wanted} == wanted


LACKING: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "anthropic": (
        {"seed": 1, "presence_penalty": 0.5, "logprobs": True, "n": 2, "temperature": 0.1},
        {"verbosity": "low", "template_options": {"x": 1}},
        "`seed`, `presence_penalty`, `logprobs`, `n`, `chat_template_kwargs`, `verbosity` cannot",
    ),
    "responses": (
        {"stop": ("x",), "top_k": 4, "max_tokens": 5},
        {"verbosity": "low", "continue_final_message": True},
        "`stop`, `top_k`, `continue_final_message` cannot",
    ),
}


@pytest.mark.parametrize("api", LACKING)
def test_what_a_protocol_lacks_is_named(api: Any) -> None:
    overrides, changes, named = LACKING[api]
    asked = chat("far/big")
    asked = attrs.evolve(asked, input=attrs.evolve(asked.input, **changes), overrides=overrides)
    with pytest.raises(ProblemError) as refused:
        call_of(asked, "big", Remote("http://far", api))
    assert refused.value.problem.code == "remote_unsupported"
    assert refused.value.problem.detail.startswith(named)


ASIDE = Message("system", (TextPart("a note"),), is_note=True)
OWN = Message("system", (TextPart("my own"),))
STARTS: dict[str, tuple[tuple[Message, ...], str | None, list[str], str | None]] = {
    "no system message": ((), None, ["of this model"], "of this model"),
    "one of the server": ((ASIDE,), None, ["of this model", "a note"], "of this model"),
    "one of the client": ((OWN,), None, ["my own"], None),
    "a stored conversation": ((), "of old", ["of old"], "of old"),
    "a stored conversation that had none": ((), "", [], ""),
}


async def test_the_operators_prompt_and_defaults_go_along(tmp_path: Path) -> None:
    common, own = tmp_path / "common", tmp_path / "own"
    common.write_text("of all")
    own.write_text("of this model\n")
    tables = (("far/big", ModelSettings(system_prompt=str(own), min_p=0.25)),)
    settings = {"system_prompt": str(common), "top_p": 0.5, "top_k": 7, "model_settings": tables}
    async with house(Script(STREAMS["openai"]), **settings) as each:
        for name, (before, of_old, sent, kept) in STARTS.items():
            asked = chat("far/big")
            assert isinstance(asked.input, ChatInput)
            changed = attrs.evolve(
                asked.input, messages=(*before, *asked.input.messages), system_prompt=of_old
            )
            with Generation(each.system.pool, attrs.evolve(asked, input=changed)) as generation:
                events = [event async for event in generation]
            [admitted] = [event for event in events if isinstance(event, Admitted)]
            body = each.far.posts[-1].json
            assert [said["content"] for said in body["messages"][:-1]] == sent, name
            assert admitted.system_prompt == kept, name
            # What not every server takes is sent where it is meant for this model.
            assert (body["top_p"], body["min_p"], body.get("top_k"), body["max_tokens"]) == (
                0.5,
                0.25,
                None,
                8,
            )
        own.unlink()
        assert problem_of(await events_of(each.system, "far/big")).code == "load_failed"


@pytest.mark.parametrize("message", [RenderPrompt, Generate])
async def test_what_was_not_prepared_is_answered(message: Any) -> None:
    async with house(Script(STREAMS["openai"])) as each, trio.open_nursery() as nursery:
        engines, server = each.system._engines, each.system.remotes.servers["far"]
        reports: list[Any] = []
        key = ModelKey("far/big")
        model = RemoteModel(key, ModelState.IDLE, reports.append, server, "big", engines)
        nursery.start_soon(model.run)
        replies: ReplyStream[Any] = ReplyStream()
        with replies, trio.fail_after(300):
            await model.ref.stream(message(chat("far/big")), replies)
            assert problem_of([await replies.receive()]).code == "model_crashed"
        model.send(Stop())


async def test_a_prompt_that_only_a_remote_could_take_is_one_of_a_remote(tiny_model: Any) -> None:
    """Its length is then unknown, rather than too large."""
    routes = (("smart", Route(("qwen3", "far/big"))),)
    tables = (("qwen3", ModelSettings(max_context=16)),)
    here = {"models": (str(tiny_model("qwen3")),), "model_settings": tables}
    async with house(Script(STREAMS["openai"]), routes=routes, **here) as each:
        for name, code in (("smart", "remote_prompt"), ("qwen3", "context_length_exceeded")):
            with pytest.raises(ProblemError) as refused:
                await render_prompt(each.system.pool, chat(name, prompt="word " * 100))
            assert refused.value.problem.code == code


VECTOR = {"data": [{"index": 0, "embedding": [0.5, 1.0]}]}
SCORE = {"results": [{"index": 0, "relevance_score": 0.5}]}
EMBEDDED, SCORED = EmbeddingInput(("rain",)), ScoreInput((("rain", "snow"),))
ENDLESS: dict[str, tuple[str, dict[str, Any], Script]] = {
    "vectors with a usage that is none": ("openai", {"input": EMBEDDED}, whole({**VECTOR, "usage": []})),
    "vectors of which no event tells": ("openai", {"input": EMBEDDED}, Script()),
    "vectors that are over at once": ("openai", {"input": EMBEDDED}, Script((b"data: [DONE]\n\n",))),
    "scores with a usage that is none": ("openai", {"input": SCORED}, whole({**SCORE, "usage": []})),
    "scores with figures that are none": ("openai", {"input": SCORED}, whole({**SCORE, "meta": []})),
    "scores without an end": (
        "openai",
        {"input": SCORED},
        whole({"results": [{"index": 0, "relevance_score": float("inf")}]}),
    ),
    "a response with a usage that is none": (
        "responses",
        {},
        Script((event(type="response.completed", response={"status": "completed", "usage": []}),)),
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_no_answer_without_an_end_keeps_its_client_waiting(name: str) -> None:
    api, asked, script = ENDLESS[name]
    async with house(script, api) as each:
        with trio.fail_after(300):
            assert problem_of(await events_of(each.system, "far/big", **asked)).code == "remote_failed"
            await eventually(lambda: _is_free(each.system))


async def test_only_a_key_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    async with house(Script()) as each:
        gone = TranscriptionInput(str(tmp_path / "gone.wav"))
        assert problem_of(await events_of(each.system, "far/big", input=gone)).code == "internal_error"


async def test_only_the_log_tells_where_a_key_is_that_cannot_be_read(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with house(Script(), remote={"key_file": str(tmp_path / "gone")}) as each:
            problem = problem_of(await events_of(each.system, "far/big"))
            assert (problem.status, problem.code) == (503, "remote_refused")
            server = each.system.remotes.servers["far"]

            async def is_known() -> bool:
                await trio.lowlevel.checkpoint()
                return bool(server.error)

            await eventually(is_known)
            for told_of in (problem.detail, server.error):
                assert "its key cannot be read" in told_of
                assert str(tmp_path) not in told_of
    reasons = [line["reason"] for line in logs if line["event"] == "remote away"]
    assert len(reasons) == 2
    assert all(str(tmp_path / "gone") in reason for reason in reasons)


@pytest.mark.parametrize("explain", [True, False])
async def test_of_the_cost_of_a_far_answer_nothing_is_made_up(explain: bool) -> None:
    routes = (("smart", Route(("far/big",))),)
    async with house(Script(STREAMS["openai"]), explain=explain, routes=routes) as each:
        end = (await events_of(each.system, "smart", explained=True))[-1]
        assert isinstance(end, Finished)
        assert (end.explanation is not None) == explain
        if end.explanation is not None:
            assert end.explanation.chosen.startswith("far/big")
            assert end.explanation.prefix.reason is None
            assert "prefix_end" not in end.explanation.log_fields()


REFUSALS: dict[str, tuple[Script, str]] = {
    "its client's mistake, told in a stream": (
        Script((event(error={"type": "invalid_request_error", "code": "bad_image", "message": "no image"}),)),
        "remote_refused_request",
    ),
    "its client's mistake, told by the status": (Script((), 400), "remote_refused_request"),
    "too many requests": (Script((), 429, headers={"retry-after": "0"}), "remote_busy"),
    "no money": (Script((), 402), "remote_refused"),
    "no answer": (Script((), 204), "remote_failed"),
}


async def test_the_breaker_counts_what_is_the_remotes_own_fault_alone() -> None:
    async with house(Script(), remote={"models": ("big",)}) as each:
        server = each.system.remotes.servers["far"]
        for name, (script, code) in REFUSALS.items():
            each.far.answer = answering(script, "big")
            for _ in range(FAILURES):
                server.busy_until = 0.0
                assert problem_of(await events_of(each.system, "far/big")).code == code, name
            is_closed = server.breaker.state(time.monotonic()) == "closed"
            assert is_closed == (name != "no answer"), name


LISTS: dict[str, tuple[Any, Any]] = {
    "no lists": ({"data": 5}, {"models": 5}),
    "items that are none": ({"data": [5, None, []]}, {"models": [5, None, []]}),
    "ids that are none": ({"data": [{"id": []}, {"id": ""}]}, {"models": [{"id": []}, {"id": {}}]}),
    "hostile ids": ({"data": [{"id": "a\nb"}, {"id": "\u202egpj"}, {"id": "x" * 10_000}]}, None),
    "figures of many digits": (
        {"data": [{"id": "ok", "created": MANY, "context_length": -MANY, "capabilities": {"voices": [3]}}]},
        {"models": [{"id": "ok", "waiting": MANY}]},
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_no_list_of_a_remote_does_harm(name: str) -> None:
    server = RemoteServer("far", Remote("http://far"))
    server.record_list(*LISTS[name])
    assert [*(server.models or ())] == (["ok"] if "figures" in name else [])


async def test_an_error_is_no_list() -> None:
    async with standing_in(lambda asked: whole({"error": "SECRET"})) as far:
        client = RemoteClient("far", Remote(far.url))
        with pytest.raises(CallFailure, match="status 500"):
            await client.list_models()
        await client.aclose()


HEADERS = {
    "sizes that nobody knows": (0, 16, b""),
    "a note behind a size that is too small": (36, 16, b"LIST\x04\0\0\0data"),
    "a part of four gigabytes": (36, 2**32 - 1, b""),
}


@pytest.mark.parametrize("name", HEADERS)
def test_speech_is_read_behind_any_header(name: str) -> None:
    size, length, note = HEADERS[name]
    form = struct.pack("<HHIIHH", 1, 1, 24_000, 48_000, 2, 16)
    head = struct.pack("<4sI4s4sI", b"RIFF", size, b"WAVE", b"fmt ", length) + form + note
    reader = SpeechReader()
    pieces = [bytes([each]) for each in head + b"data\0\0\0\0" + b"\1\2\3\4"]
    found = [event for piece in pieces for event in reader.read(piece)]
    sound = b"".join(event.samples for event in found if isinstance(event, AudioChunk))
    assert sound == (b"" if length > 16 else b"\1\2\3\4")


def test_each_word_of_a_transcript_is_in_one_segment_however_these_lie() -> None:
    said = {
        "text": "a b c",
        "duration": 3.0,
        "words": [{"word": each, "start": at} for at, each in enumerate("abc")],
    }
    segments = [{"text": "a b", "start": 0.0, "end": 1.5}, *({"text": "c", "start": 0.0, "end": 9.0},) * 3]
    found = [
        event for event in _read_transcript({**said, "segments": segments}) if isinstance(event, Segment)
    ]
    assert [[word.text for word in each.words] for each in found] == [[" a", " b"], [" c"], [], []]


def test_a_list_without_an_end_is_cut() -> None:
    listed = {"data": [{"id": f"m{number}"} for number in range(100_000)]}
    server = RemoteServer("far", Remote("http://far"))
    server.record_list(listed)
    assert len(server.models or ()) == MAX_MODELS


@pytest.mark.parametrize("url", ["http://h:x", "http://h:99999", "http://h/\x01", "http://a b", "ftp://h"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"url|[Pp]ort"):
        Remote(url)


@pytest.mark.parametrize("begun", [0, 3], ids=["before the first token", "amid the answer"])
async def test_a_cancelled_request_is_cancelled_in_its_remote(begun: int) -> None:
    async with house(Script((*STREAMS["openai"][:begun], None))) as each:
        with Generation(each.system.pool, chat("far/big")) as generation:
            async with trio.open_nursery() as nursery:

                async def follow() -> None:
                    async for told_of in generation:
                        if isinstance(told_of, TextDelta):
                            nursery.cancel_scope.cancel("the client has left")

                nursery.start_soon(follow)
                with trio.fail_after(300):
                    await each.far.wait_for_posts(1)
                    if begun:
                        await trio.sleep_forever()
                nursery.cancel_scope.cancel("the client has left")
        with trio.fail_after(300):
            await each.far.posts[0].left.wait()
        await eventually(lambda: _is_free(each.system))


async def _is_free(system: System) -> bool:
    await trio.lowlevel.checkpoint()
    return all(server.running == 0 for server in system.remotes.servers.values())


async def test_nothing_leaves_that_must_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "far-secret")
    script = Script(STREAMS["openai"])
    async with house(script, remote={"key_env": "FAR_KEY"}) as each:
        stays = {"stays": "its API key keeps requests on this machine"}
        assert problem_of(await events_of(each.system, "far/big", **stays)).code == "may_not_leave"
        with pytest.raises(ProblemError) as refused:
            await render_prompt(each.system.pool, chat("far/big"))
        assert refused.value.problem.code == "remote_prompt"  # by which it is known that nothing can be known
        assert each.far.posts == []
        await events_of(each.system, "far/big", trace=TraceContext(f"00-{'a' * 32}-{'b' * 16}-01"))
        headers = each.far.posts[0].headers
        assert headers["authorization"] == "Bearer far-secret"
        assert headers["x-greenroom-hop"] == "1"
        assert headers["x-client-request-id"] == "r"
        assert headers["traceparent"].startswith("00-aaaa")
        # What the remote sets for one client does not come back with the requests of another.
        each.far.answer = answering(attrs.evolve(script, headers={"set-cookie": "who=alice; Path=/"}), "big")
        for _ in range(2):
            await events_of(each.system, "far/big")
        assert "cookie" not in each.far.posts[-1].headers
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

    def sound(asked: Asked) -> Script:
        if asked.path.endswith("/embeddings"):
            return whole(VECTOR)
        return models("big") if asked.method == "GET" else Script(pieces)

    def answer(asked: Asked) -> Script:
        is_broken = asked.method == "POST" and chance.random() < 0.3
        return chance.choice(broken) if is_broken else sound(asked)

    async with two_remotes("openai") as (system, far, spare):
        far.answer, spare.answer = answer, sound

        async def ask(number: int) -> None:
            name = "smart" if number % 3 else "far/big"
            embeds: dict[str, Any] = {"input": EmbeddingInput(("rain",))} if number % 5 == 0 else {}
            events = await events_of(system, name, id=f"r{number}", **embeds)
            _, text, end = told(events)
            if isinstance(end, Finished):
                assert isinstance(events[0], Vector) if embeds else text == "Hello"
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
