"""Tools of an MCP server on every protocol, asked for by the official clients."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner
from rich.console import Console

from greenroom.http.commands.operate import inspect_command, tables
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.clients import anthropic_clients, openai_clients
from greenroom.tests.support.clients.web_socket_clients import open_socket
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

pytest.importorskip("mcp")

TOY = ToolServer(
    sys.executable,
    (str(Path(__file__).parents[1] / "support/tools/plain_server.py"),),
    timeout=90.0,
    allowed_tools=("add",),
)
SETTINGS = Settings(
    mcp=(("toy", TOY), ("gone", ToolServer("/no/such/program"))), audit=True, inspect=10, db=":memory:"
)
QUESTION = "What is 2 plus 3?"
MCP = {"type": "mcp", "server_label": "toy"}
GONE = {"type": "mcp", "server_label": "gone"}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(SETTINGS) as found:
        yield found


def response_body(**more: Any) -> dict[str, Any]:
    return {
        "model": "default",
        "input": QUESTION,
        "temperature": 0,
        "tools": [MCP],
        "tool_choice": MCP,
        **more,
    }


def shown(output: list[Any]) -> list[Any]:
    return [item for item in output if item.type != "reasoning"]


def sum_of(arguments: str) -> str:
    numbers = json.loads(arguments)
    return str(numbers["a"] + numbers["b"])


async def check_seen(served: Served, ident: str, call: Any) -> None:
    """Make sure that operators see the first call of this server."""

    async def look(path: str) -> Any:
        return (await fetch(served.server, "GET", path)).json()

    async def rows() -> list[Any]:
        return [row for row in (await look("/admin/audit"))["requests"] if row["protocol"] == "mcp"]

    async def is_written() -> bool:
        return bool(await rows())

    await eventually(is_written)
    [row] = await rows()
    assert (row["route"], row["ending"], row["seconds"]) == ("CALL toy/add", "answered", call.seconds)
    assert row["id"].startswith(ident)
    turns = [await look(f"/admin/inspect?id={name}") for name in (ident, f"{ident}-2")]
    assert all("Add two whole numbers" in turn["prompt"] for turn in turns)
    arguments = [ident, "--url", served.server.address]
    printed = await trio.to_thread.run_sync(lambda: CliRunner().invoke(inspect_command, arguments))
    seen = f"call of toy/add: {json.dumps(json.loads(call.arguments))}\nresult after {call.seconds} s: "
    assert f"\n{seen}{call.output}\n" in printed.output
    events = {event["type"]: event for event in turns[0]["events"]}
    assert events["ServerCall"]["arguments"] == json.dumps(json.loads(call.arguments))
    assert events["ToolResult"]["content"] == [{"text": call.output}]
    assert events["ToolResult"]["seconds"] == call.seconds
    metrics = (await fetch(served.server, "GET", "/metrics")).body.decode()
    assert 'greenroom:mcp_calls_total{result="ok",server="toy"} 1.0' in metrics
    assert 'greenroom:mcp_server_ready{server="toy"} 1.0' in metrics
    assert 'greenroom:mcp_sessions_lost_total{server="gone"} 1.0' in metrics
    shown = io.StringIO()
    sessions = (await look("/admin/status"))["mcp"]
    Console(file=shown, width=100).print(tables({"models": [], "requests": [], "mcp": sessions}))
    server = next(line.split() for line in shown.getvalue().splitlines() if line.startswith("toy"))
    assert (server[1], server[3:]) == ("ready", ["1", "0"])


async def test_responses_whole_and_streamed(served: Served) -> None:
    body = response_body(tools=[MCP, GONE], store=False)
    whole = await openai_clients.ask(served, lambda client: client.responses.create(**body))
    listed, gone, call, message = shown(whole.output)
    assert (listed.type, [tool.name for tool in listed.tools], listed.error) == (
        "mcp_list_tools",
        ["add"],
        None,
    )
    assert (gone.server_label, gone.tools) == ("gone", [])
    assert "No such file" in gone.error
    assert (call.type, call.status, call.server_label, call.name) == ("mcp_call", "completed", "toy", "add")
    assert call.output == sum_of(call.arguments)
    assert message.type == "message"
    assert whole.usage.input_tokens_details.cached_tokens > 0
    await check_seen(served, str(whole._request_id), call)

    def stream(client: Any) -> tuple[list[Any], Any]:
        with client.responses.stream(**body) as events:
            return list(events), events.get_final_response()

    events, final = await openai_clients.ask(served, stream)
    kinds = [event.type.removeprefix("response.") for event in events]
    first = kinds.index("mcp_list_tools.in_progress")
    assert kinds[first - 1 : first + 3] == [
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
    ]
    assert "mcp_list_tools.failed" in kinds
    begun = kinds.index("mcp_call.in_progress")
    assert kinds[begun - 1 : begun + 5] == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    assert shown(final.output)[2].output == call.output
    async with open_socket(served) as socket:
        *_, ended = await socket.answer({"type": "response.create", **body})
    assert [item["type"] for item in ended["response"]["output"]] == [item.type for item in whole.output]


async def calls_made(served: Served) -> list[str]:
    metrics = (await fetch(served.server, "GET", "/metrics")).body.decode()
    return [line for line in metrics.splitlines() if line.startswith("greenroom:mcp_calls_total")]


async def test_an_approval_is_asked_for_given_and_refused(served: Served) -> None:
    wanting = {**MCP, "require_approval": "always"}
    body = response_body(tools=[wanting])
    asked = await openai_clients.ask(served, lambda client: client.responses.create(**body))
    assert [item.type for item in shown(asked.output)] == ["mcp_list_tools", "mcp_approval_request"]
    assert asked.status == "completed"
    request = shown(asked.output)[1]

    def answer(*, approve: bool, background: bool = False) -> Any:
        reply = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
        more = {"input": [reply], "previous_response_id": asked.id, "tool_choice": "auto"}
        return {**response_body(tools=[wanting], background=background), **more}

    given = await openai_clients.ask(served, lambda client: client.responses.create(**answer(approve=True)))
    call = shown(given.output)[0]
    assert (call.type, call.approval_request_id, call.output) == (
        "mcp_call",
        request.id,
        sum_of(call.arguments),
    )
    refused = await openai_clients.ask(
        served, lambda client: client.responses.create(**answer(approve=False))
    )
    assert [item.type for item in shown(refused.output)] == ["message"]

    def in_background(client: Any) -> list[Any]:
        started = client.responses.create(**answer(approve=True, background=True), stream=True)
        return list(started)

    events = await openai_clients.ask(served, in_background)
    ident = events[0].response.id
    again = await openai_clients.ask(
        served, lambda client: list(client.responses.retrieve(ident, stream=True))
    )
    assert [event.type for event in again] == [event.type for event in events]
    assert "response.mcp_call.completed" in [event.type for event in again]
    # In a conversation of a client's own items, too, which get other ids.
    wished = {**request.model_dump(), "type": "mcp_approval_request"}
    said = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    made = await fetch(
        served.server, "POST", "/v1/conversations", {"items": [{"role": "user", "content": QUESTION}, wished]}
    )
    kept = {"conversation": made.json()["id"], "input": [said], "tool_choice": "auto", "stream": False}
    there = await fetch(served.server, "POST", "/v1/responses", {**response_body(tools=[wanting]), **kept})
    assert [item["type"] for item in there.json()["output"] if item["type"] == "mcp_call"], there.body
    # What the model would refuse is refused before the call is made.
    made_before = await calls_made(served)
    elsewhere = response_body(tools=[wanting], model="no-such-model", tool_choice="auto")
    elsewhere["input"] = [{"role": "user", "content": QUESTION}, wished, said]
    for store in (True, False):
        lost = await fetch(served.server, "POST", "/v1/responses", {**elsewhere, "store": store})
        assert lost.status == 404, lost.body
    assert await calls_made(served) == made_before
    unknown = {"type": "mcp_approval_response", "approval_request_id": "other", "approve": True}
    status = (await fetch(served.server, "POST", "/v1/responses", response_body(input=[unknown]))).status
    assert status == 404
    strange = {**request.model_dump(), "type": "mcp_call", "output": "5", "approval_request_id": []}
    odd = response_body(input=[{"role": "user", "content": QUESTION}, strange], max_output_tokens=16)
    assert (await fetch(served.server, "POST", "/v1/responses", odd)).status == 200


async def test_messages_whole_and_streamed(served: Served) -> None:
    tools = [
        {"type": "mcp_toolset", "mcp_server_name": "toy"},
        {"type": "mcp_toolset", "mcp_server_name": "gone"},
    ]
    body: dict[str, Any] = {
        "model": "default",
        "max_tokens": 60,
        "messages": [{"role": "user", "content": QUESTION}],
        "extra_body": {"tools": tools, "tool_choice": {"type": "any"}, "temperature": 0},
    }
    whole = await anthropic_clients.ask(served, lambda client: client.beta.messages.create(**body))
    kinds = [block.type for block in whole.content]
    assert kinds[0] == "text"
    assert "No such file" in whole.content[0].text
    streamed = await anthropic_clients.ask(
        served, lambda client: list(client.beta.messages.create(**body, stream=True))
    )
    begun = [event.content_block for event in streamed if event.type == "content_block_start"]
    assert [block.type for block in begun] == kinds
    use, result = (whole.content[kinds.index(kind)] for kind in ("mcp_tool_use", "mcp_tool_result"))
    assert (use.server_name, use.name, result.tool_use_id) == ("toy", "add", use.id)
    assert result.content[0].text == str(use.input["a"] + use.input["b"])
    assert (kinds[-1], whole.stop_reason) == ("text", "end_turn")
    turn = [block.model_dump(exclude_none=True) for block in whole.content]
    more = {"role": "user", "content": "Thank you."}
    history = [*body["messages"], {"role": "assistant", "content": turn}, more]
    again = {**body, "messages": history, "extra_body": {"tools": tools}}
    assert await anthropic_clients.ask(served, lambda client: client.beta.messages.create(**again))


@pytest.mark.deep
async def test_chat_and_ollama_show_the_steps(served: Served) -> None:
    body = openai_clients.body(
        model="default",
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=60,
        metadata={"mcp_servers": "toy"},
        tool_choice="required",
    )
    whole = await openai_clients.ask(served, lambda client: client.chat.completions.create(**body))
    listed, call, result = whole.choices[0].message.greenroom_steps
    assert (listed["tools"], call["name"], result["output"]) == (["add"], "add", sum_of(call["arguments"]))
    assert whole.choices[0].message.tool_calls is None
    assert whole.choices[0].finish_reason == "stop"
    chunks = await openai_clients.ask(
        served, lambda client: list(client.chat.completions.create(**body, stream=True))
    )
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    steps = [step for delta in deltas for step in getattr(delta, "greenroom_steps", None) or ()]
    assert [step["type"] for step in steps] == ["tools_listed", "call", "result"]
    assert openai_clients.streamed_text(chunks) == whole.choices[0].message.content
    ollama = {
        "model": "default",
        "messages": body["messages"],
        "metadata": {"mcp_servers": "toy"},
        "stream": False,
    }
    answered = await fetch(served.server, "POST", "/api/chat", ollama)
    assert answered.json()["message"]["greenroom_steps"][0]["server"] == "toy"


async def test_wrong_wishes_are_named(served: Served) -> None:
    chat = {"model": "default", "messages": [openai_clients.USER]}
    message = {**chat, "max_tokens": 9}
    toolset = {"type": "mcp_toolset", "mcp_server_name": "toy"}
    named = {"name": "toy", "type": "url"}
    wishes: list[tuple[dict[str, Any], str]] = [
        (response_body(tools=[{**MCP, "server_label": "other"}]), "may use gone, toy"),
        (response_body(tools=[MCP, MCP]), "two MCP servers"),
        (response_body(tools=[{**MCP, "require_approval": "perhaps"}]), "require_approval"),
        (response_body(tools=[{**MCP, "allowed_tools": 3}]), "allowed_tools"),
        (response_body(tools=[{**MCP, "server_url": "https://x.y/mcp"}]), "allow_mcp_urls"),
        (response_body(max_tool_calls=0), "max_tool_calls"),
        (response_body(tool_choice={**MCP, "server_label": "other"}), "`tool_choice` names the MCP server"),
        (response_body(tools=[{**MCP, "authorization": "secret"}]), "beside `server_url`"),
        ({**message, "tools": [{**toolset, "default_config": {"enabled": "no"}}]}, "default_config"),
        ({**message, "tools": [{**toolset, "configs": {"add": 3}}]}, "`tools[0].configs`"),
        ({**message, "mcp_servers": [named, named]}, "two servers of one name"),
        (
            {**message, "mcp_servers": [{**named, "tool_configuration": {"allowed_tools": 3}}]},
            "allowed_tools",
        ),
        ({**chat, "metadata": {"mcp_servers": 3}}, "metadata.mcp_servers"),
        ({**chat, "metadata": {"mcp_servers": "toy"}, "n": 2}, "`n` must be 1"),
    ]
    for body, said in wishes:
        path = "/v1/messages" if "max_tokens" in body else "/v1/chat/completions"
        path = "/v1/responses" if "input" in body else path
        answer = await fetch(served.server, "POST", path, body)
        assert (answer.status, said in answer.json()["error"]["message"]) == (400, True), said
    # Beyond this machine nobody may use a server by default.
    body = {**chat, "metadata": {"mcp_servers": "toy"}}
    afar = await fetch(served.server, "POST", "/v1/chat/completions", body, **{"X-Forwarded-For": "8.8.8.8"})
    assert "may use no MCP servers" in afar.json()["error"]["message"]


async def test_a_key_has_servers_of_its_own(served: Served) -> None:
    async def listed(secret: str = "") -> dict[str, bool]:
        headers = {"X-Forwarded-For": "8.8.8.8", **({"X-Api-Key": secret} if secret else {})}
        found = (await fetch(served.server, "GET", "/v1/mcp_servers", **headers)).json()["data"]
        return {each["id"]: each["default"] for each in found}

    async def key(name: str, **rights: Any) -> str:
        made = await fetch(served.server, "POST", "/admin/keys", {"name": name, **rights}, **boss)
        return str(made.json()["secret"])

    assert await listed() == {}
    boss: dict[str, str] = {}
    boss = {"X-Api-Key": await key("boss", admin=True)}
    assert await listed(boss["X-Api-Key"]) == {"toy": False, "gone": False}
    own = await key("of its own", mcp=["toy"])
    assert await listed(own) == {"toy": True}
    assert await listed(await key("with a right", tools=["mcp:go*"])) == {"gone": False}
    assert await listed(await key("without")) == {}
    chat = openai_clients.body(model="default", max_tokens=60, tool_choice="required")
    chat["messages"] = [{"role": "user", "content": QUESTION}]
    answer = await fetch(served.server, "POST", "/v1/chat/completions", chat, **{"X-Api-Key": own})
    assert answer.status == 200

    async def audited() -> set[str]:
        found = await fetch(served.server, "GET", "/admin/audit?key=of+its+own", **boss)
        return {row["route"] for row in found.json()["requests"]}

    async def has_call() -> bool:
        return "CALL toy/add" in await audited()

    await eventually(has_call)


async def test_servers_named_by_address_obey_the_rules_and_their_secrets_stay() -> None:
    settings = attrs.evolve(SETTINGS, allow_mcp_urls=True)
    secret = "not-to-be-seen"
    async with serving(settings) as served:
        address = {**MCP, "authorization": secret, "headers": {"X-Key": secret}}
        for odd in ({"headers": {"A": 3}}, {"headers": {"Host": "a"}}, {"server_label": "a\nb"}):
            body = response_body(tools=[{**address, "server_url": "https://a.example/", **odd}])
            answer = await fetch(served.server, "POST", "/v1/responses", body)
            assert answer.status == 400
            assert "server_url" in answer.json()["error"]["message"]
        for url in (
            "HTTPS://127.0.0.1/mcp",
            "http://127.0.0.1:9/mcp",
            "https://localhost/mcp",
            "https://u:p@example.org/mcp",
        ):
            body = response_body(tools=[{**address, "server_url": url}], tool_choice="auto")
            answer = await fetch(served.server, "POST", "/v1/responses", body)
            assert secret.encode() not in answer.body
            if answer.status == 200:
                assert "not public" in answer.json()["output"][0]["error"]
                assert answer.json()["tools"][0]["authorization"] is None
            else:
                assert "server_url" in answer.json()["error"]["message"]
        inspected = await fetch(served.server, "GET", "/admin/inspect?id=1")
        assert inspected.status == 200
        assert secret.encode() not in inspected.body
