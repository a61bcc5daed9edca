"""Limits of waiting as clients meet them: the priority of a request, and the setting `queue_timeout`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.schemas.events.events import Finished, QueueStatus, TextDelta
from greenroom.schemas.messages.requests import MAX_PRIORITY
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually, generate, until
from greenroom.tests.support.servers.http_servers import RawResponse, Served, fetch, serving

USER: Any = [{"role": "user", "content": "Hello"}]
CHATS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER, "max_tokens": 2},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 2},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 2},
    "/v1/messages": {"messages": USER, "max_tokens": 2},
    "/api/chat": {"messages": USER, "stream": False, "options": {"num_predict": 2}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "Hello"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
}


@pytest.mark.parametrize("path", [*CHATS, *OTHERS])
async def test_a_request_may_only_lower_its_priority(server_without_model: Served, path: str) -> None:
    async def ask(**fields: Any) -> RawResponse:
        body = {"model": "nobody", **(CHATS | OTHERS)[path], **fields}
        return await fetch(server_without_model.server, "POST", path, body)

    for wrong in (-1, -(10**30), MAX_PRIORITY + 1, 10**30, 1.0, 0.5, True, "1", "high", [1], {"a": 1}):
        refused = await ask(priority=wrong)
        assert (refused.status, "`priority` must be" in refused.json()["detail"]) == (400, True), wrong
    for right in (None, 0, 1, MAX_PRIORITY):
        assert (await ask(priority=right)).status == 404


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_of_the_service_tiers_only_those_that_put_nobody_back_are_accepted(
    server_without_model: Served, path: str
) -> None:
    for tier, status in {"flex": 404, "auto": 404, "priority": 400, "scale": 400, "": 400, 5: 400}.items():
        body = {"model": "nobody", **CHATS[path], "service_tier": tier}
        answer = await fetch(server_without_model.server, "POST", path, body)
        assert answer.status == status, tier
        assert status == 404 or answer.json()["error"]["param"] == "service_tier"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_what_asks_for_the_status_is_true_or_false(server_without_model: Served, path: str) -> None:
    values: list[Any] = [1, "yes", [], {}]
    for wrong in values:
        options = {"stream_options": {"include_status": wrong}, "stream": True}
        refused = await fetch(
            server_without_model.server, "POST", path, {"model": "nobody", **CHATS[path], **options}
        )
        assert (refused.status, refused.json()["error"]["param"]) == (400, "stream_options.include_status")


async def test_an_answer_names_the_service_tier_that_was_asked_for(
    tiny_model: Callable[..., Path],
) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    async with serving(settings) as served:
        for path in ("/v1/chat/completions", "/v1/responses"):
            for asked, told in (("flex", "flex"), ("auto", "default"), (None, "default")):
                body = {"model": "qwen3", **CHATS[path], "service_tier": asked}
                answer = await fetch(served.server, "POST", path, body)
                assert answer.json().get("service_tier", "default") == told


async def test_background_responses_stand_behind_those_that_somebody_waits_for(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder, db = tiny_model("qwen3"), str(tmp_path / "store.db")
    settings = Settings(models=(str(folder),), max_batch=1, db=db, shutdown_timeout=60.0)
    async with serving(settings, status_timeout=0.1) as served:
        pool = served.system.pool
        with generate(pool, "qwen3", "holder", max_tokens=20_000) as holder:
            await until(holder, TextDelta)
            body = {"model": "qwen3", "input": "Hello", "max_output_tokens": 2, "background": True}
            queued = (await fetch(served.server, "POST", "/v1/responses", body)).json()
            assert queued["status"] == "queued"
            with generate(pool, "qwen3", "new") as new:
                status = (await until(new, QueueStatus))[-1]
                assert isinstance(status, QueueStatus)
                assert status.position == 0
                holder.close()
                await until(new, Finished)

        async def has_ended() -> bool:
            answer = await fetch(served.server, "GET", f"/v1/responses/{queued['id']}")
            return bool(answer.json()["status"] == "incomplete")

        await eventually(has_ended)


async def test_only_plain_requests_fail_after_queue_timeout_and_are_told_when_to_retry(
    tiny_model: Callable[..., Path],
) -> None:
    folder = tiny_model("qwen3")
    settings = Settings(models=(str(folder),), max_batch=1, queue_timeout=0.3, shutdown_timeout=60.0)
    chat = CHATS["/v1/chat/completions"]
    async with serving(settings) as served, trio.open_nursery() as nursery:
        streamed: list[RawResponse] = []
        plain = [*CHATS.items(), ("/v1/responses", {**CHATS["/v1/responses"], "store": False})]
        left = len(plain)

        async def stream() -> None:
            body = {"model": "qwen3", **chat, "stream": True}
            streamed.append(await fetch(served.server, "POST", "/v1/chat/completions", body))

        async def time_out(path: str, fields: dict[str, Any]) -> None:
            nonlocal left
            refused = await fetch(served.server, "POST", path, {"model": "qwen3", **fields})
            assert refused.status == 503
            assert "queue_timeout" in refused.json()["detail"]
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert "x-should-retry" not in refused.headers
            left -= 1
            if not left:
                holder.close()

        with generate(served.system.pool, "qwen3", "holder", max_tokens=20_000) as holder:
            await until(holder, TextDelta)
            nursery.start_soon(stream)
            async with trio.open_nursery() as waiting:
                for path, fields in plain:
                    waiting.start_soon(time_out, path, fields)
    assert streamed[0].status == 200
    assert b'"finish_reason":"length"' in streamed[0].body
