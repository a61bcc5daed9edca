"""The system under asyncio: mounted in FastAPI and Starlette under uvicorn, and without HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import ollama
import openai
import pytest
import structlog
import trio
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from greenroom.api import (
    Failed,
    Finished,
    InferenceEvent,
    ProblemError,
    QueueStatus,
    Settings,
    System,
    TextDelta,
    chat,
    converse,
)
from greenroom.asyncio_bridge import AsyncioBridge
from greenroom.notes import fastapi_example
from greenroom.testing import Faults, ScriptedEngines
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.guarded_forms import GUARDED, KEY, REFUSED, refusals

QUICK = Settings(shutdown_timeout=60.0)
SAID: Any = [{"role": "user", "content": "Hello!"}]


@contextmanager
def under_uvicorn(app: Any) -> Iterator[str]:
    """Serve an application on a thread; afterwards none of its threads is left."""
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(120)
    # Trio keeps idle workers of its own for some seconds.
    wait_until(lambda: all(each.name.startswith("Trio thread") for each in {*threading.enumerate()} - before))


def test_official_clients_reach_a_bridge_in_fastapi() -> None:
    with under_uvicorn(fastapi_example.app) as address:
        base = f"{address}/llm"
        with openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
            chunks: Any = client.chat.completions.create(
                model="default", messages=SAID, stream=True, max_tokens=20
            )
            # How many pieces there are depends on who is faster, the model or its reader.
            assert [each for each in chunks if each.choices and each.choices[0].delta.content]
            stored = client.responses.create(model="default", input="Hello!", max_output_tokens=16)
            assert client.responses.retrieve(stored.id).output_text == stored.output_text != ""
        with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as asked:
            message = asked.messages.create(model="default", messages=SAID, max_tokens=5)
            assert message.usage.output_tokens == 5
        with ollama.Client(base) as third:
            parts = third.chat("default", SAID, stream=True, options={"num_predict": 5})
            assert [part.done for part in parts][-1] is True
        with httpx2.Client(base_url=address, timeout=600) as http:
            assert http.get("/hello/Ada").text
            with pytest.raises(httpx2.RemoteProtocolError):
                http.get(f"/hello/{'Ada' * 15_000}")  # too long for the model
            assert http.get("/llm/v1/models", headers={"host": "evil.example"}).status_code == 403
            assert "text/html" in http.get("/llm/", headers={"accept": "text/html"}).headers["content-type"]


def endless(settings: Settings) -> ScriptedEngines:
    """Return engines whose answer lasts minutes."""
    return ScriptedEngines(settings, ["so on, " * 10_000], Faults(slow={"Hello!": 0.02}))


def ended(logs: list[Any]) -> list[str]:
    """Return the reasons for which requests have ended."""
    return [line["reason"] for line in logs if line["event"] == "request finished"]


def test_limits_hold_in_starlette_and_a_server_may_run_the_bridge_alone() -> None:
    bridge = AsyncioBridge(GUARDED, engines=endless(GUARDED))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> Any:
        async with bridge:
            yield

    with (
        under_uvicorn(Starlette(routes=[Mount("/llm", bridge)], lifespan=lifespan)) as address,
        httpx2.Client(base_url=f"{address}/llm", timeout=600) as http,
    ):
        assert refusals(f"{address}/llm") == REFUSED
        body = {"model": "default", "messages": SAID, "stream": True}
        with structlog.testing.capture_logs() as logs:
            with http.stream("POST", "/v1/chat/completions", json=body, headers=KEY) as answer:
                next(line for line in answer.iter_lines() if "so " in line)  # the model writes
            wait_until(lambda: ended(logs))
        assert ended(logs) == ["cancelled"]
    with under_uvicorn(AsyncioBridge(QUICK, prefix="/own")) as address:
        assert httpx2.get(f"{address}/own/v1/models", timeout=600).status_code == 200
        assert httpx2.get(f"{address}/v1/models", timeout=600).status_code == 404


def test_a_project_like_djangos_leaves_the_lifespan_and_a_prefix_to_the_bridge() -> None:
    page = (Path(__file__).parents[2] / "notes/embed.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(django = .*?)```", page, re.DOTALL)

    async def django(scope: Any, _receive: Any, send: Any) -> None:
        assert scope["type"] == "http"  # as Django, which knows no lifespan
        said: str = await names["bridge"].run(chat, "Hello!", max_tokens=5)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said.encode()})

    names: dict[str, Any] = {"AsyncioBridge": AsyncioBridge, "Settings": Settings}
    names["get_asgi_application"] = lambda: django
    exec(code, names)
    with under_uvicorn(names["application"]) as address, httpx2.Client(base_url=address, timeout=600) as http:
        assert http.get("/hello").text
        assert http.get("/llm/v1/models").json()["data"][0]["id"] == "greenroom-demo"
        assert http.get("/llm/").status_code == 200


async def _read_all(bridge: AsyncioBridge, begun: threading.Event) -> None:
    async for event in bridge.chat("Hello!", max_tokens=50_000):
        if isinstance(event, TextDelta):
            begun.set()


async def _converse(system: System, begun: threading.Event) -> None:
    with converse(system, "Hello!") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                begun.set()


def test_a_request_ends_with_its_reader_however_that_leaves() -> None:
    async def main(logs: list[Any]) -> None:
        async with AsyncioBridge(QUICK, engines=endless(QUICK)) as bridge:
            async for event in bridge.chat("Hello!", max_tokens=50_000):
                if isinstance(event, TextDelta):
                    break
            await asyncio.to_thread(wait_until, lambda: len(ended(logs)) == 1)
            begun, conversed = threading.Event(), threading.Event()
            reading = asyncio.create_task(_read_all(bridge, begun))
            await asyncio.to_thread(begun.wait, 300)
            reading.cancel()  # and nobody asks for its result, which holds its frames
            await asyncio.to_thread(wait_until, lambda: len(ended(logs)) == 2)
            task = asyncio.create_task(bridge.run(_converse, conversed))
            await asyncio.to_thread(conversed.wait, 300)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(wait_until, lambda: len(ended(logs)) == 3)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(main(logs))
    assert sorted(ended(logs)) == ["cancelled", "cancelled", "cancelled"]


def test_a_reader_that_waits_holds_nobody_up_and_misses_nothing() -> None:
    said = "".join(f"{number} " for number in range(500))

    async def main(logs: list[Any]) -> list[InferenceEvent]:
        late: list[InferenceEvent] = []
        async with AsyncioBridge(QUICK, engines=ScriptedEngines(QUICK, [said])) as bridge:
            async for event in bridge.chat("Hello!"):
                if isinstance(event, TextDelta) and not late:
                    # The model ends while nearly all is unread.
                    await asyncio.to_thread(wait_until, lambda: ended(logs))
                late += [event] if isinstance(event, TextDelta | Finished) else []
        return late

    with structlog.testing.capture_logs() as logs:
        late = asyncio.run(main(logs))
    assert _text(late) == said
    assert isinstance(late[-1], Finished)
    assert len(late) < 500


def test_a_timeout_of_one_event_loses_none_and_keeps_the_request() -> None:
    async def main() -> str:
        faults, events = Faults(gate=threading.Event()), list[InferenceEvent]()
        async with AsyncioBridge(QUICK, engines=ScriptedEngines(QUICK, ["It is blue."], faults)) as bridge:
            waiting = bridge.chat("Hello!")
            while not (events and isinstance(events[-1], Finished)):
                try:
                    events.append(await asyncio.wait_for(anext(waiting), 0.01))
                except TimeoutError:
                    assert faults.gate is not None
                    faults.gate.set()
        return _text(events)

    assert asyncio.run(main()) == "It is blue."


def test_a_bridge_that_closes_fails_what_runs_and_has_said_nothing_yet() -> None:
    settings = Settings(shutdown_timeout=0.0)
    said = json.dumps({"model": "default", "messages": SAID, "stream": True}).encode()
    sent: list[Any] = []

    async def main() -> None:
        answers, parts = asyncio.Event(), [{"type": "http.request", "body": said}]

        async def receive() -> Any:
            if not parts:
                await asyncio.Event().wait()
            return parts.pop()

        async def send(message: Any) -> None:
            sent.append(message)
            answers.set()

        async with AsyncioBridge(settings, engines=endless(settings)) as bridge:
            head = *SCOPE["headers"][:2], (b"content-length", b"%d" % len(said))
            answering = asyncio.create_task(bridge({**SCOPE, "headers": head}, receive, send))
            await answers.wait()
            silent = bridge.chat("Hello!", max_tokens=50_000)
            waiting = asyncio.create_task(bridge.run(_sleep))
            await asyncio.sleep(0)
        [*_, last] = [event async for event in silent]
        assert isinstance(last, Failed)
        assert last.problem.code == "draining"
        with pytest.raises(ProblemError, match="shutting down"):
            await waiting
        await answering  # without an error, and without an end

    asyncio.run(main())
    assert (sent[0]["status"], sent[-1].get("more_body")) == (200, True)


async def _sleep(_system: System) -> None:
    await trio.sleep_forever()


def _text(events: list[InferenceEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_failures_come_as_values_and_a_closed_bridge_says_so() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="/nowhere"):
            await AsyncioBridge(Settings(models=("/nowhere",))).__aenter__()
        settings = Settings(shutdown_timeout=2.0, max_batch=1, max_queue=1)
        bridge = AsyncioBridge(settings, engines=endless(settings))
        with pytest.raises(ProblemError, match="not begun its lifespan"):
            bridge.chat("Hello!")
        async with bridge:
            with pytest.raises(RuntimeError, match="open already"):
                await bridge.__aenter__()
            [refused] = [event async for event in bridge.chat("Hello!", temperature=-1.0)]
            assert isinstance(refused, Failed)
            assert refused.problem.param == "temperature"
            with pytest.raises(ZeroDivisionError):
                await bridge.run(_fail)
            unread = bridge.chat("Hello!", max_tokens=50_000)
            await anext(unread)
            waiting = bridge.chat("Hello!")
            assert isinstance(await anext(waiting), QueueStatus)
            with pytest.raises(ProblemError, match="already waiting"):
                await bridge.run(chat, "Hello!")
        *_, last = [event async for event in unread]
        assert isinstance(last, Failed)
        async with bridge:
            assert [event async for event in bridge.chat("Once more", max_tokens=3)]

    asyncio.run(main())


SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/chat/completions",
    "raw_path": b"/v1/chat/completions",
    "query_string": b"",
    "http_version": "1.1",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"9")],
    "server": ("127.0.0.1", 80),
    "client": ("127.0.0.1", 1),
}


def test_misuse_is_told_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def broken() -> Any:
            raise ZeroDivisionError

        bridge = AsyncioBridge(QUICK, engines=endless(QUICK))
        opening = asyncio.create_task(bridge.__aenter__())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with bridge:
            events = bridge.chat("Hello!", max_tokens=50_000)
            reading = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(events)
            assert await reading
            events.close()
            assert not [event async for event in events if isinstance(event, Failed)]
            with structlog.testing.capture_logs() as logs:
                await bridge(SCOPE, broken, send)
            assert "request crashed" in [line["event"] for line in logs]
            with monkeypatch.context() as forked:
                forked.setattr(os, "getpid", lambda: -1)
                [refused] = [event async for event in bridge.chat("Hello!")]
            assert isinstance(refused, Failed)
            assert refused.problem.code == "not_ready"
            side = bridge._side
        sent.clear()
        await bridge._answer(side, SCOPE, broken, send)  # it has come while the bridge closed
        assert sent[0]["status"] == 503

    asyncio.run(main())


async def _fail(_system: System) -> None:
    raise ZeroDivisionError
