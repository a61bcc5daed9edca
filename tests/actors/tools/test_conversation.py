"""Loops of the demo model with real tools: functions of the program, and those of an MCP server."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from greenroom.actors.conversation import describe_function
from greenroom.actors.system import System, open_system
from greenroom.actors.tools import turn as loops
from greenroom.actors.tools.conversation import ToolConversation
from greenroom.actors.tools.turn import LoopRules, OwnTool, find_fault, join_tools, result_message
from greenroom.api import ConversationOptions, run_conversation
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.generation import parameters
from greenroom.schemas.messages.messages import ImagePart, Message, TextPart, Tool, ToolCall, ToolChoice
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, JsonSchemaFormat
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.protocols.tools_protocol import DescribeSessions, Sessions, ToolLoop, ToolSource
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer
from greenroom.tests.support.servers.far_servers import STREAMS, Asked, Script, chunk, models, standing_in

TOY = ToolServer(
    sys.executable, (str(Path(__file__).parents[2] / "support/tools/plain_server.py"),), timeout=90.0
)


@pytest.fixture
async def system() -> AsyncIterator[System]:
    async with open_system(Settings(mcp=(("toy", TOY),))) as running:
        yield running


def weather(city: str, days: int = 1) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


async def calm() -> str:
    """Return nothing, after a while."""
    await trio.sleep_forever()
    return ""


def asked(text: str, **more: object) -> InferenceRequest:
    chat = ChatInput((Message("user", (TextPart(text),)),), **more)  # type: ignore[arg-type]
    return InferenceRequest("r1", ModelKey("default"), chat, parameters(temperature=0.0, max_tokens=60))


def of_functions(*functions: object, **limits: object) -> ToolLoop:
    described = tuple((describe_function(each), each) for each in functions)  # type: ignore[arg-type]
    return ToolLoop(functions=described, **limits)  # type: ignore[arg-type]


REQUIRED = {"tool_choice": ToolChoice("required")}
RAIN = "What is the weather in Paris?"


async def run(system: System, request: InferenceRequest, loop: ToolLoop) -> list[InferenceEvent]:
    with ToolConversation(system.pool, system.refs.tools, request, loop) as events:
        return [event async for event in events]


def text_of(events: list[InferenceEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def one(events: list[InferenceEvent], kind: type) -> object:
    [found] = [event for event in events if isinstance(event, kind)]
    return found


async def test_a_function_is_called_and_its_result_is_told(system: System) -> None:
    options = ConversationOptions(functions=[weather], servers=(), parameters={"temperature": 0.0})
    result = await run_conversation(system, RAIN, options)
    [call] = result.tool_calls_executed
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    assert "Rain in Paris" in result.final_message
    assert result.turns_taken == 2
    with pytest.raises(ProblemError, match="`n` must be 1"):
        await run_conversation(system, RAIN, attrs.evolve(options, parameters={"n": 2}))


OSLO = {"properties": {"city": {"type": "string", "enum": ["Oslo"]}}, "required": ["city"]}


@pytest.mark.parametrize(
    ("schema", "also", "written", "notice"),
    [
        (OSLO, (), "Oslo", ""),
        ({"properties": {"city": {"type": "string", "pattern": "(?=.)"}}}, (), "Paris", "mcp.x"),
        (OSLO, (Tool("own"),), "Paris", ""),  # calls beside a client's own functions are free, as theirs are
    ],
)
async def test_automatic_calls_are_held_to_schemas_that_a_grammar_can_enforce(
    system: System, schema: dict[str, Any], also: tuple[Tool, ...], written: str, notice: str
) -> None:
    tool = Tool("weather", "Return the weather of a city.", {"type": "object", **schema}, param="mcp.x")
    loop = ToolLoop(functions=((tool, lambda city: f"Rain in {city}."),))
    seen: list[InferenceEvent] = []
    with ToolConversation(system.pool, system.refs.tools, asked(RAIN, tools=also), loop) as events:
        while not (seen and isinstance(seen[-1], ToolResult)):
            if isinstance(event := await events.receive(), Admitted | ServerCall | ToolResult):
                seen.append(event)
    admitted, call, result = seen
    assert isinstance(admitted, Admitted)
    assert isinstance(call, ServerCall)
    assert isinstance(result, ToolResult)
    assert json.loads(call.arguments) == {"city": written}
    assert result.failed is bool(also)
    assert notice in admitted.notice if notice else not admitted.notice


async def test_the_second_turn_reads_the_first_from_the_cache(system: System) -> None:
    events = await run(system, asked(RAIN, **REQUIRED), of_functions(weather))
    finished = one(events, Finished)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.limit) == ("stop", "")
    first = next(event.prompt_tokens for event in events if hasattr(event, "prompt_tokens"))
    assert finished.usage.cached >= 0.95 * first


async def test_tools_of_a_server_are_called(system: System) -> None:
    pytest.importorskip("mcp")
    loop = ToolLoop((ToolSource("toy", TOY, "toy", allowed=("add",)),))
    events = await run(system, asked("What is 2 plus 3?", **REQUIRED), loop)
    listed, call, result = one(events, ToolsListed), one(events, ServerCall), one(events, ToolResult)
    assert isinstance(listed, ToolsListed)
    assert isinstance(call, ServerCall)
    assert isinstance(result, ToolResult)
    assert [tool.name for tool in listed.tools] == ["add"]
    numbers = json.loads(call.arguments)
    assert (call.server, call.name) == ("toy", "add")
    assert result.text == str(numbers["a"] + numbers["b"])
    assert events.index(call) < events.index(result)
    assert isinstance(events[-1], Finished)


async def test_a_server_that_cannot_be_reached_is_told_and_stops_no_other_tool(system: System) -> None:
    pytest.importorskip("mcp")
    loop = attrs.evolve(
        of_functions(weather), sources=(ToolSource("gone", ToolServer("/no/such/program"), "gone"),)
    )
    events = await run(system, asked(RAIN, **REQUIRED), loop)
    listed = one(events, ToolsListed)
    assert isinstance(listed, ToolsListed)
    assert "No such file" in listed.error
    assert "Rain in Paris" in text_of(events)


async def test_an_approval_ends_the_answer_and_a_later_one_begins_with_the_call(system: System) -> None:
    pytest.importorskip("mcp")
    source = ToolSource("toy", TOY, "toy", allowed=("add",), approval=("always",))
    question = asked("What is 2 plus 3?", **REQUIRED)
    events = await run(system, question, ToolLoop((source,), asks=True))
    wanted = one(events, ApprovalWanted)
    assert isinstance(wanted, ApprovalWanted)
    assert not [event for event in events if isinstance(event, ServerCall)]
    assert isinstance(events[-1], Finished)
    chat = question.input
    assert isinstance(chat, ChatInput)
    call = ToolCall(wanted.id, wanted.name, wanted.arguments)
    history = (*chat.messages, Message("assistant", tool_calls=(call,)))
    again = attrs.evolve(question, input=attrs.evolve(chat, messages=history, tool_choice=ToolChoice()))
    approved = ServerCall(wanted.id, "toy", wanted.name, wanted.arguments, wanted.id)
    loop = ToolLoop((source,), asks=True, approved=(approved,), listed=frozenset({"toy"}))
    events = await run(system, again, loop)
    assert one(events, ServerCall) == approved
    numbers = json.loads(wanted.arguments)
    assert str(numbers["a"] + numbers["b"]) in text_of(events)
    events = await run(system, question, ToolLoop((source,)))
    refused = one(events, ToolResult)
    assert isinstance(refused, ToolResult)
    assert "approval" in refused.text


@pytest.mark.parametrize(
    ("limits", "repeated", "limit", "calls"),
    [({"max_turns": 1}, 3, "max_turns", 0), ({}, 1, "repeated_call", 0), ({"max_calls": 0}, 3, "", 0)],
)
async def test_a_loop_has_limits(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    repeated: int,
    limit: str,
    calls: int,
) -> None:
    monkeypatch.setattr(loops, "MOST_REPEATED", repeated)
    made: list[str] = []
    loop = of_functions(weather, **limits)
    loop = attrs.evolve(loop, functions=((loop.functions[0][0], lambda city, days=1: made.append(city)),))
    events = await run(system, asked(RAIN, **REQUIRED), loop)
    finished = one(events, Finished)
    assert isinstance(finished, Finished)
    assert (finished.limit, len(made)) == (limit, calls)


FILES = ToolSource("files", ToolServer("x"), "files")
OWN = {
    name: OwnTool(Tool(name, "", {}), name.removeprefix("files__"), source)
    for name, source in (("files__read", FILES), ("add", ToolSource("toy", TOY, "toy")))
}


@pytest.mark.parametrize(
    ("asked_for", "chosen", "first", "then"),
    [
        (ToolChoice(), {("files", None)}, ToolChoice("required", allowed=("files__read",)), ToolChoice()),
        (ToolChoice(), {("files", "read")}, ToolChoice("required", allowed=("files__read",)), ToolChoice()),
        (ToolChoice(), {("lost", None)}, ToolChoice(), ToolChoice()),
        (
            ToolChoice("required", allowed=("own",)),
            {("toy", "add")},
            ToolChoice("required", allowed=("own", "add")),
            ToolChoice(allowed=("own", "add")),
        ),
        (ToolChoice(allowed=()), {("lost", None)}, ToolChoice("none"), ToolChoice("none")),
    ],
)
def test_a_choice_may_name_servers_and_their_tools(
    asked_for: ToolChoice, chosen: set[tuple[str, str | None]], first: ToolChoice, then: ToolChoice
) -> None:
    rules = LoopRules(asked_for, ToolLoop(chosen=frozenset(chosen)))
    assert (rules.choice(1, OWN), rules.choice(2, OWN)) == (first, then)


def test_approved_calls_count_among_all() -> None:
    rules = LoopRules(ToolChoice("required"), ToolLoop(max_calls=1))
    assert rules.take(ToolCall("1", "add", "{}"), OWN["add"]) == ({}, "")
    assert "may make no more" in rules.take(ToolCall("2", "add", "{}"), OWN["add"])[1]
    assert rules.choice(1, OWN) == ToolChoice("none")


async def test_calls_of_the_client_end_the_answer(system: System) -> None:
    own = Tool("weather", "Return the weather of a city.", describe_function(weather).parameters)
    events = await run(system, asked(RAIN, tools=(own,), **REQUIRED), of_functions(calm))
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert (deltas[0].name, deltas[0].call) == ("weather", 0)
    finished = one(events, Finished)
    assert isinstance(finished, Finished)
    assert finished.reason == "tool_calls"


async def test_a_problem_before_the_first_answer_is_the_whole_answer(system: System) -> None:
    request = attrs.evolve(asked(RAIN), key=ModelKey("no-such-model"))
    [failed] = await run(system, request, of_functions(weather))
    assert isinstance(failed, Failed)
    assert failed.problem.status == 404


async def test_no_lease_is_held_while_a_tool_runs(system: System) -> None:
    request = asked("Relax.", **REQUIRED)
    with ToolConversation(system.pool, system.refs.tools, request, of_functions(calm)) as events:
        async for event in events:
            if isinstance(event, ServerCall):
                break
        pool = await system.pool.ask(DescribePool(), PoolStatus)
        assert isinstance(pool, PoolStatus)
        assert [model.leases for model in pool.models] == [0]


async def test_two_tools_are_called_in_one_loop(system: System) -> None:
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    # Each turn is a constrained call or this object, so that so small a model goes on.
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    request = attrs.evolve(asked(RAIN, **REQUIRED), response_format=JsonSchemaFormat(schema))
    events = await run(system, request, of_functions(weather, add))
    calls = {event.name: event.id for event in events if isinstance(event, ServerCall)}
    assert list(calls)[:2] == ["weather", "add"]
    results = {event.id: event for event in events if isinstance(event, ToolResult)}
    assert results.keys() >= {*calls.values()}
    assert not any(result.failed for result in results.values())


async def test_loops_that_are_cancelled_at_random_leave_nothing(system: System) -> None:
    chance = random.Random(7)
    await run(system, asked(RAIN, **REQUIRED), of_functions(weather))

    async def one_of_many(index: int) -> None:
        with trio.move_on_after(chance.random() * 3):
            tool = calm if index % 3 == 0 else weather
            request = attrs.evolve(asked(RAIN, **REQUIRED), id=f"r{index}")
            await run(system, request, of_functions(tool))

    async with trio.open_nursery() as nursery:
        for index in range(10):
            nursery.start_soon(one_of_many, index)
    with trio.fail_after(300):
        while True:
            pool = await system.pool.ask(DescribePool(), PoolStatus)
            assert isinstance(pool, PoolStatus)
            if all(model.leases == model.waiting == 0 for model in pool.models):
                break
            await trio.testing.wait_all_tasks_blocked(0.05)
    sessions = await system.refs.tools.ask(DescribeSessions(), Sessions)
    assert isinstance(sessions, Sessions)
    assert not any(session.running for session in sessions.sessions)


def test_long_results_are_cut_and_images_need_eyes() -> None:
    result = ToolResult("1", (TextPart("ä" * 1_000), ImagePart(b"png")))
    blind = result_message(ToolCall("1", "f", ""), result, room=100, sees=False)
    assert blind.text.startswith("ä" * 200 + "\n[The result was cut here: 1,600 of its 2,000 bytes follow.]")
    assert "cannot take" in blind.text
    seeing = result_message(ToolCall("1", "f", ""), result, room=100, sees=True)
    assert seeing.images == (ImagePart(b"png"),)


def test_tools_of_one_name_stay_apart_and_odd_names_are_written_plainly() -> None:
    sources = tuple(ToolSource(label, TOY, label) for label in ("a", "a__b", "c"))
    named = {"a": ("b__c", "x", "</call> y"), "a__b": ("c", "b__c"), "c": ("x", "")}
    lists = {label: ToolsListed(label, tuple(map(Tool, names))) for label, names in named.items()}
    joined = join_tools((Tool("x"), Tool("c__x")), ToolLoop(sources), lists)
    found = {name: (own.server, own.name) for name, own in joined.items()}
    assert found == {
        "b__c": ("a", "b__c"),
        "a__x": ("a", "x"),
        "_/call__y": ("a", "</call> y"),
        "c": ("a__b", "c"),
        "a__b__b__c": ("a__b", "b__c"),
        "c__x_": ("c", "x"),
        "_": ("c", ""),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"city": "Paris"}', ""),
        ('{"city": 3}', "not match"),
        ('{"town": "Paris"}', "not match"),
        ("[1]", "must be a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_arguments_are_checked_again(arguments: str, said: str) -> None:
    pytest.importorskip("jsonschema")
    assert said in find_fault(arguments, describe_function(weather).parameters)[1]


EVIL = {"type": "string", "pattern": "(a*)*$"}
TWICE = {f"d{depth}": {"allOf": [{"$ref": f"#/$defs/d{depth + 1}"}] * 2} for depth in range(60)}


@pytest.mark.parametrize(
    ("city", "schema"),
    [
        ("a" * 40 + "b", {"properties": {"city": EVIL}, "$ref": "http://127.0.0.1:9/x"}),
        (
            "a" * 40 + "b",
            {"properties": {"city": {"$schema": "http://json-schema.org/draft-07/schema#", **EVIL}}},
        ),
        ("Paris", {"$defs": {**TWICE, "d60": {}}, "properties": {"city": {"$ref": "#/$defs/d0"}}}),
        (10**400, {"properties": {"city": {"multipleOf": 0.1}}}),
    ],
    ids=["a pattern", "a pattern of another draft", "references that double", "a number beyond all others"],
)
def test_no_schema_makes_a_check_last_or_fail(city: object, schema: dict[str, Any]) -> None:
    pytest.importorskip("jsonschema")
    assert find_fault(json.dumps({"city": city}), schema) == ({"city": city}, "")


def test_what_stands_beside_patterns_is_checked() -> None:
    pytest.importorskip("jsonschema")
    schema = {
        "patternProperties": {"^x": {"type": "string"}},
        "additionalProperties": False,
        "required": ["city"],
    }
    assert find_fault('{"city": 1}', schema)[1] == ""
    assert "'city' is a required property" in find_fault("{}", schema)[1]


async def test_calls_that_a_remote_numbers_alike_are_each_answered() -> None:
    def call(*cities: str) -> Script:
        calls = [
            {
                "index": index,
                "id": "0",
                "function": {"name": "weather", "arguments": json.dumps({"city": city})},
            }
            for index, city in enumerate(cities)
        ]
        return Script((chunk({"tool_calls": calls}), chunk(reason="tool_calls"), b"data: [DONE]\n\n"))

    turns = [call("Paris", "Rome"), call("Oslo"), Script(STREAMS["openai"])]

    def answer(request: Asked) -> Script:
        return models("big") if request.method == "GET" else turns[len(far.posts) - 1]

    async with standing_in(answer) as far:
        settings = Settings(remotes=(("far", Remote(far.url)),), shutdown_timeout=60.0)
        async with open_system(settings) as system:
            request = attrs.evolve(asked(RAIN), key=ModelKey("far/big"))
            events = await run(system, request, of_functions(weather))
    assert text_of(events) == "Hello"
    messages = far.posts[-1].json["messages"]
    told = {each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"}
    assert list(told.values()) == [f"Rain in {city}." for city in ("Paris", "Rome", "Oslo")]
    assert [each["id"] for message in messages for each in message.get("tool_calls", ())] == list(told)


def test_a_schema_is_made_of_annotations() -> None:
    tool = describe_function(weather)
    assert (tool.name, tool.description) == ("weather", "Return the weather of a city.")
    assert tool.parameters["properties"] == {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 1},
    }
    assert tool.parameters["required"] == ["city"]

    def many(*values: int) -> None: ...

    with pytest.raises(ValueError, match="cannot be given by its name"):
        describe_function(many)
    with pytest.raises(ValueError, match="has no attribute '__name__'"):
        describe_function(partial(weather, days=2))
