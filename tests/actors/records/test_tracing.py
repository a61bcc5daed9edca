"""Spans of requests at a collector: one tree for each, by the conventions' names."""

from __future__ import annotations

import http.server
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from greenroom.actors.records import tracing
from greenroom.api import ConversationOptions, Failed, chat, converse, create_app, generate, open_system
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, TraceContext
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer
from greenroom.testing import Faults, OpenScripted
from greenroom.tests.support.servers.far_servers import STREAMS, Script, answering, chunk, standing_in
from greenroom.tests.support.servers.server_processes import serving

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", exc_type=ImportError)

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Receive spans over OTLP."""
    bodies: list[bytes] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Traced:
    """A program's provider, whose spans arrive at a collector."""

    def __init__(self, address: str, bodies: list[bytes]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self.provider, self._bodies = TracerProvider(shutdown_on_exit=False), bodies
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))

    async def spans(self) -> list[Any]:
        """End the export, and return all spans."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        await trio.to_thread.run_sync(self.provider.shutdown)
        sent = [ExportTraceServiceRequest.FromString(body) for body in self._bodies]
        return [
            span
            for each in sent
            for resource in each.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    from opentelemetry import trace

    monkeypatch.setattr(tracing, "_tracer", None)
    with collector() as (address, bodies):
        made = Traced(address, bodies)
        monkeypatch.setattr(trace, "get_tracer", made.provider.get_tracer)
        yield made


def values_of(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_a_streamed_loop_of_tools_is_one_tree_at_a_collector(
    scripted_system: OpenScripted, traced: Traced
) -> None:
    seen: list[str] = []

    async def weather(city: str) -> str:
        from opentelemetry.trace import get_current_span

        seen.append(str(tracing.place_of(get_current_span())))
        return f"Rain in {city}."

    options = ConversationOptions(functions=(weather,))
    async with scripted_system([CALL, "It rains."], trace_content=True) as system:
        program = traced.provider.get_tracer("program").start_as_current_span("of the program")
        with program, converse(system, "How is the weather?", options) as events:
            said = [event async for event in events]
        assert not isinstance(said[-1], Failed)
    spans = await traced.spans()
    assert len({span.trace_id for span in spans}) == 1
    by_id = {span.span_id: span for span in spans}
    [root] = [span for span in spans if not span.parent_span_id]
    assert root.name == "of the program"
    tree = {(by_id[span.parent_span_id].name, span.name) for span in spans if span is not root}
    agent, turn, tool = "invoke_agent greenroom-demo", "chat greenroom-demo", "execute_tool weather"
    assert {(root.name, agent), (agent, turn), (agent, tool)} <= tree
    assert {(turn, "wait"), (turn, "prepare")} <= tree
    assert len(spans) <= 5 + 2 * 4  # none for a token
    turns = [span for span in spans if span.name == turn]
    assert len(turns) == 2
    told = values_of(turns[0])
    assert (told["gen_ai.operation.name"], told["gen_ai.provider.name"]) == ("chat", "greenroom")
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.usage.output_tokens"] > 0
    assert "How is the weather?" in told["gen_ai.input.messages"]
    [called] = [span for span in spans if span.name == tool]
    assert [place.split("-")[1:3] for place in seen] == [[called.trace_id.hex(), called.span_id.hex()]]
    for span in spans:
        assert span.start_time_unix_nano <= span.end_time_unix_nano


async def test_a_request_over_http_hangs_below_its_client_and_tells_no_content(
    scripted_system: OpenScripted, traced: Traced, faults: Faults
) -> None:
    faults.crash.add("Boom!")
    async with scripted_system(["A long secret answer."], "small") as system:
        client: Any = create_app(system, system.settings).test_client()
        for text, status in (("A secret question", 200), ("Boom!", 500)):
            body = {"model": "small", "messages": [{"role": "user", "content": text}], "temperature": 0.5}
            answer = await client.post("/v1/chat/completions", json=body, headers={"traceparent": CLIENT})
            assert answer.status_code == status
        asked = ChatInput((Message("user", (TextPart("Given up"),)),))
        with generate(system, asked, model="small") as events:
            await anext(events)
    spans = await traced.spans()
    answered, failed, given_up = [span for span in spans if span.name == "chat small"]
    for span in (answered, failed):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(CLIENT.split("-")[1:3])
    assert values_of(answered)["gen_ai.request.temperature"] == 0.5
    assert values_of(failed)["error.type"] == "model_crashed"
    assert failed.status.code == 2
    assert given_up.trace_id != answered.trace_id
    assert b"secret" not in b"".join(span.SerializeToString() for span in spans)


@pytest.mark.deep  # it starts a server of tools
async def test_a_model_elsewhere_and_a_tool_of_an_mcp_server_are_in_the_clients_tree(traced: Traced) -> None:
    pytest.importorskip("mcp")
    toy = str(Path(__file__).parents[2] / "support/tools/toy_server.py")
    server = ToolServer(sys.executable, (toy,), timeout=90.0)
    call = {"index": 0, "id": "c1", "function": {"name": "surroundings", "arguments": "{}"}}
    calling = Script((chunk({"tool_calls": [call]}), chunk(reason="tool_calls"), b"data: [DONE]\n\n"))
    body = {"model": "far/big", "input": "Where?", "tools": [{"type": "mcp", "server_label": "toy"}]}
    state = {"traceparent": CLIENT, "tracestate": "vendor=x,other=y"}
    turns = iter([calling, Script(STREAMS["openai"])])
    listed = answering(Script(), "big")
    async with standing_in(lambda asked: next(turns) if asked.method == "POST" else listed(asked)) as far:
        remotes = (("far", Remote(far.url, "openai")),)
        settings = Settings(mcp=(("toy", server),), remotes=remotes, shutdown_timeout=60.0)
        async with open_system(settings) as system:
            client: Any = create_app(system, settings).test_client()
            own = {"client": ("127.0.0.1", 1)}
            answer = await client.post("/v1/responses", json=body, headers=state, scope_base=own)
            answered = await answer.get_json()
        asked = [each.headers for each in far.posts]
    spans = {span.span_id.hex(): span for span in await traced.spans()}
    [told] = [json.loads(item["output"])["meta"] for item in answered["output"] if item["type"] == "mcp_call"]

    def above(place: str) -> list[str]:
        """Return the names from the client's place down, without those of MCP's own SDK."""
        if place == CLIENT.split("-")[2]:
            return []
        assert spans[place].trace_id.hex() == CLIENT.split("-")[1]
        name = spans[place].name
        return above(spans[place].parent_span_id.hex()) + ([] if name.startswith("MCP ") else [name])

    handed = [told, *asked]
    assert [each["tracestate"] for each in handed] == ["vendor=x,other=y"] * 3
    agent, turn = "invoke_agent far/big", "chat far/big"
    places = [above(each["traceparent"].split("-")[2]) for each in handed]
    assert places == [[agent, "execute_tool surroundings"], [agent, turn], [agent, turn]]
    assert [above(each) for each, span in spans.items() if span.name == "remote"] == [
        [agent, turn, "remote"]
    ] * 2


async def test_without_a_provider_a_clients_place_is_handed_on_and_nothing_is_made(
    scripted_system: OpenScripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
    async with scripted_system(["Yes."]) as system:
        assert await chat(system, "Are you there?") == "Yes."
    assert tracing.begin_span(None) is None  # type: ignore[arg-type]
    place = TraceContext(CLIENT, "vendor=x")
    assert tracing.place_in_trace(place) == place
    with tracing.tool_span("weather", "call_1", place) as span:
        assert span.trace == place


@pytest.mark.deep
def test_a_server_exports_as_the_variables_say() -> None:
    with (
        collector() as (address, bodies),
        serving("--demo", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=address) as server,
    ):
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 3}
        url = f"{server.address}/v1/chat/completions"
        assert httpx2.post(url, json=body, timeout=600, headers={"traceparent": CLIENT}).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    exported = b"".join(bodies)
    assert bytes.fromhex(CLIENT.split("-")[1]) in exported
    assert b"chat greenroom-demo" in exported
    assert b"service.name" in exported
