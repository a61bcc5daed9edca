"""The tools actor with real MCP servers: lists, calls, limits, losses and restarts."""

from __future__ import annotations

import gzip
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from greenroom.actors.core.ref import Ref
from greenroom.actors.tools import session
from greenroom.actors.tools.tools import Tools
from greenroom.http.media.fetcher import FetchRules, GuardedNetwork
from greenroom.schemas.events.result_events import ToolResult, ToolsListed
from greenroom.schemas.messages.messages import ImagePart, TextPart
from greenroom.schemas.protocols.tools_protocol import (
    CallTool,
    DescribeSessions,
    ListTools,
    Sessions,
    SessionStatus,
    ToolsMessage,
    ToolSource,
)
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer
from greenroom.tests.support.servers.far_servers import Asked, Script, standing_in
from greenroom.tests.support.servers.free_port import free_port

pytest.importorskip("mcp")

PROGRAMS = Path(__file__).parents[2] / "support/tools"
START_SECONDS = 60.0


def toy(timeout: float = START_SECONDS, **more: object) -> ToolSource:
    arguments = (str(PROGRAMS / "toy_server.py"),)
    return ToolSource("toy", ToolServer(sys.executable, arguments, timeout=timeout, **more), "toy")  # type: ignore[arg-type]


def plain(
    fault: str = "", label: str = "plain", timeout: float = START_SECONDS, allowed: tuple[str, ...] = ()
) -> ToolSource:
    arguments = (str(PROGRAMS / "plain_server.py"), *fault.split())
    server = ToolServer(sys.executable, arguments, timeout=timeout, allowed_tools=allowed)
    return ToolSource(label, server, label)


@asynccontextmanager
async def running(idle_seconds: float = 300.0) -> AsyncIterator[Ref[ToolsMessage]]:
    async with trio.open_nursery() as nursery:
        actor = Tools(Settings(), idle_seconds=idle_seconds)
        nursery.start_soon(actor.run)
        yield actor.ref
        nursery.cancel_scope.cancel()


async def listed(tools: Ref[ToolsMessage], source: ToolSource) -> ToolsListed:
    answer = await tools.ask(ListTools(source), ToolsListed)
    assert isinstance(answer, ToolsListed)
    return answer


async def called(tools: Ref[ToolsMessage], source: ToolSource, name: str, **arguments: object) -> ToolResult:
    answer = await tools.ask(CallTool("call_1", source, name, arguments), ToolResult)
    assert isinstance(answer, ToolResult)
    return answer


def text_of(result: ToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, TextPart))


async def status(tools: Ref[ToolsMessage]) -> SessionStatus:
    answer = await tools.ask(DescribeSessions(), Sessions)
    assert isinstance(answer, Sessions)
    return answer.sessions[-1]


async def test_tools_of_a_program_are_listed_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_SECRET", "not for it")
    source = toy(env=("GIVEN=yes",))
    async with running() as tools:
        names = [tool.name for tool in (await listed(tools, source)).tools]
        assert names[:2] == ["add", "surroundings"]
        sum_ = await called(tools, source, "add", a=1, b=2)
        assert (text_of(sum_), sum_.failed) == ("3", False)
        wrong = await called(tools, source, "add", a="many", b=2)
        assert wrong.failed
        assert "valid integer" in text_of(wrong)
        (picture,) = (await called(tools, source, "picture")).content
        assert isinstance(picture, ImagePart)
        assert picture.data.startswith(b"\x89PNG")
        found = json.loads(text_of(await called(tools, source, "surroundings")))
        assert found["environment"]["GIVEN"] == "yes"
        assert "GREENROOM_SECRET" not in found["environment"]
        assert (found["files"], found["folder"] != os.getcwd()) == ([], True)
    assert not await trio.Path(found["folder"]).exists()


async def test_a_request_sees_the_tools_that_it_may_use() -> None:
    source = plain(allowed=("add", "re*"))
    async with running() as tools:
        assert [tool.name for tool in (await listed(tools, source)).tools] == ["add", "repeat"]


@pytest.mark.parametrize(
    ("source", "tool", "added"), [(toy(), "grow", "grown"), (plain("change"), "strike", "struck")]
)
async def test_a_changed_list_is_asked_for_again(source: ToolSource, tool: str, added: str) -> None:
    async with running() as tools:
        before = {tool.name for tool in (await listed(tools, source)).tools}
        await called(tools, source, tool)
        with trio.fail_after(300):
            while {each.name for each in (await listed(tools, source)).tools} - before != {added}:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_program_that_dies_fails_its_call_and_is_started_again() -> None:
    async with running() as tools:
        other = await listed(tools, plain(label="other"))
        died = await called(tools, plain(), "die")
        assert died.failed
        assert "ended" in text_of(died)
        assert text_of(await called(tools, plain(), "add", a=2, b=2)) == "4"
        assert (await status(tools)).lost == 1
        assert not other.error


async def test_a_program_that_always_dies_is_left_alone_for_a_while() -> None:
    async with running() as tools:
        for _ in range(3):
            assert (await called(tools, plain(), "die")).failed
        assert "failed repeatedly" in text_of(await called(tools, plain(), "add", a=1, b=1))


async def test_a_call_may_hang_or_be_given_up_while_others_go_on() -> None:
    async with running() as tools:
        await listed(tools, plain())
        with trio.move_on_after(0.2) as given_up:
            await called(tools, plain(), "hang")
        assert given_up.cancelled_caught
        assert text_of(await called(tools, plain(label="quick"), "add", a=1, b=1)) == "2"
        assert text_of(await called(tools, plain(), "add", a=1, b=1)) == "2"
        assert (await status(tools)).running == 0


@pytest.mark.parametrize(
    "faults",
    [
        {
            "line": "8,388,608 bytes",
            "id": "did not answer within",
            "json": "did not answer within",
            "shape": "validation error",
        },
        pytest.param({"lines": "16,777,216 bytes"}, marks=pytest.mark.deep),
    ],
    ids=lambda faults: "-".join(faults),
)
async def test_a_hostile_program_costs_its_call_only(faults: dict[str, str]) -> None:
    async with running() as tools:
        await listed(tools, plain())
        for fault, said in faults.items():
            source = plain(fault, fault, 4.0 if "did not answer" in said else START_SECONDS)
            await listed(tools, source)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            struck = await called(tools, source, "strike")
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
            assert struck.failed, fault
            assert said in text_of(struck), fault
            assert grown < 64 * 1024 * 1024, fault
            assert text_of(await called(tools, plain(), "add", a=1, b=2)) == "3", fault


async def test_what_a_server_asks_for_is_refused() -> None:
    async with running() as tools:
        refused = json.loads(text_of(await called(tools, plain("asks"), "strike")))
    assert [text.split()[-2:] for text in refused] == [["not", "supported"]] * 3


async def test_a_lost_list_and_a_missing_program_are_told() -> None:
    nowhere = ToolSource("gone", ToolServer("/no/such/program"), "gone")
    closed = ToolSource("closed", ToolServer(url="http://127.0.0.1:9/mcp"), "closed")
    async with running() as tools:
        errors = [(await listed(tools, source)).error for source in (plain("list", "list"), nowhere, closed)]
    assert "the list is lost" in errors[0]
    assert "'list'" in errors[0]
    assert "No such file" in errors[1]
    assert "connect" in errors[2]


@asynccontextmanager
async def serving_toy() -> AsyncIterator[str]:
    """Run the toy server over HTTP, and yield its address."""
    port = free_port()
    command = [sys.executable, str(PROGRAMS / "toy_server.py"), str(port)]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, capture_stderr=True, check=False))
        with trio.fail_after(START_SECONDS):
            while True:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                    break
                except OSError:
                    await trio.testing.wait_all_tasks_blocked(0.1)
        await stream.aclose()
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


async def test_tools_of_an_address_are_called_and_private_ones_need_trust() -> None:
    async with serving_toy() as url, running() as tools:
        server = ToolServer(url=url, timeout=START_SECONDS, headers=("X-Key=1",))
        own = ToolSource("toy", server, "toy")
        assert "add" in [tool.name for tool in (await listed(tools, own)).tools]
        assert text_of(await called(tools, own, "add", a=1, b=2)) == "3"
        with trio.move_on_after(0.2):
            await called(tools, own, "hang")
        flood = await called(tools, own, "repeat", text="x" * 1_000, times=9_000)
        assert flood.failed
        assert text_of(await called(tools, own, "add", a=2, b=2)) == "4"
        for hosts, works in (((), False), (("127.0.0.1",), True)):
            network = GuardedNetwork(FetchRules("http", frozenset(hosts)), "server_url")
            guarded = ToolSource("toy", server, f"guarded{works}", network=network)
            found = await listed(tools, guarded)
            assert (not found.error) is works
            assert works or "not public" in found.error


def rude(request: Asked, *, floods: bool = False, packs: bool = False, says: str = "") -> Script:
    """Answer as a server that leaves the end of a session unanswered, and may flood those who listen, or
    compress its list of tools, or say something else.
    """
    if request.method != "POST":
        return Script(UNASKED if floods and request.method == "GET" else (None,))
    version = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "rude", "version": "1"}}
    results = {"initialize": {**version, "capabilities": {"tools": {}}}, "tools/list": {"tools": []}}
    message = request.json
    if "id" not in message:
        return Script(status=202)
    known = None if says and message["method"] == "tools/list" else results.get(message["method"])
    error = {"code": -32601, "message": says or "no such method"}
    told = {"error": error} if known is None else {"result": known}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}).encode()
    encoding = {"content-encoding": "gzip"} if packs and message["method"] == "tools/list" else {}
    body = gzip.compress(body) if encoding else body
    return Script((body,), kind="application/json", headers={"mcp-session-id": "1", **encoding})


UNASKED = (b": " + b"x" * 65_536 + b"\n",) * 3_000  # until the client has enough of it


@pytest.mark.parametrize("floods", [False, True])
async def test_the_session_of_a_rude_address_ends(floods: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_CLOSE_SECONDS", 0.1)
    async with standing_in(partial(rude, floods=floods)) as far, running(300.0 if floods else 0.1) as tools:
        address = ToolSource("far", ToolServer(url=f"{far.url}/mcp", timeout=START_SECONDS), "far")
        await listed(tools, address)  # or not, if its session ends before
        with trio.fail_after(300):
            while (found := await status(tools)).state != ("failed" if floods else "idle"):
                await trio.testing.wait_all_tasks_blocked(0.05)
        assert (found.error == "it sent more than 16,777,216 bytes without having been asked") is floods


async def test_a_session_that_breaks_waits_for_no_rude_address(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks = trio.Event()

    async def follow(_session: session.Session, _client: object) -> None:
        await breaks.wait()
        raise RuntimeError("planted")

    monkeypatch.setattr(session, "_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(session.Session, "_follow_changes", follow)
    async with standing_in(rude) as far, running() as tools:
        address = ToolSource("far", ToolServer(url=f"{far.url}/mcp", timeout=START_SECONDS), "far")
        await listed(tools, address)
        breaks.set()
        with trio.fail_after(300):
            while (found := await status(tools)).state != "failed":
                await trio.testing.wait_all_tasks_blocked(0.05)
        assert found.error == "it failed, and left that unanswered"


async def test_a_failure_is_told_without_the_keys_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_CLOSE_SECONDS", 0.1)
    says, header = "no entry with Bearer sk-12345678", ("Authorization=Bearer sk-12345678",)
    async with standing_in(partial(rude, says=says)) as far, running() as tools:
        server = ToolServer(url=f"{far.url}/mcp", headers=header, timeout=START_SECONDS)
        error = (await listed(tools, ToolSource("locked", server, "locked"))).error
    assert far.asked[-1].headers["authorization"] == "Bearer sk-12345678"
    assert "no entry with Bearer …" in error


async def test_an_address_may_not_compress_what_would_grow_without_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_CLOSE_SECONDS", 0.1)
    async with standing_in(partial(rude, packs=True)) as far, running() as tools:
        address = ToolSource("far", ToolServer(url=f"{far.url}/mcp", timeout=START_SECONDS), "far")
        assert "compressed" in (await listed(tools, address)).error
        assert {each.headers["accept-encoding"] for each in far.asked} == {"identity"}


def test_an_image_of_no_known_format_is_told_in_words() -> None:
    [part] = [session._content_part(SimpleNamespace(type="image", data="bm8gaW1hZ2U="))]
    assert part == TextPart("[image of an unknown format]")


async def test_an_idle_session_ends_and_a_deaf_program_is_killed() -> None:
    async with running(idle_seconds=0.1) as tools:
        await listed(tools, plain("deaf"))
        with trio.fail_after(300):
            while (await status(tools)).state != "idle":
                await trio.testing.wait_all_tasks_blocked(0.05)


async def test_functions_of_a_program_are_tools() -> None:
    async def waits(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text.upper()

    def fails(values: Sequence[int]) -> None:
        raise KeyError("no such value")

    async with running() as tools:
        calls = [
            CallTool("1", waits, "waits", {"text": "a"}),
            CallTool("2", lambda n: {"n": n}, "plain", {"n": 1}),
            CallTool("3", fails, "fails", {"values": []}),
            CallTool("4", lambda: sys.exit(2), "exits", {}),
            CallTool("5", lambda: {("no", "name"): 1}, "unwritable", {}),
        ]
        results = [await tools.ask(call, ToolResult) for call in calls]
    told = [(text_of(each), each.failed) for each in results if isinstance(each, ToolResult)]
    assert told[:2] == [("A", False), ('{"n": 1}', False)]
    assert told[2:4] == [("KeyError: 'no such value'", True), ("SystemExit: 2", True)]
    assert told[4][1]
    assert told[4][0].startswith("TypeError: keys must be str")
