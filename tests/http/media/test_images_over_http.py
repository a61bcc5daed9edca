"""Images sent to text models: a placeholder text, and image numbers if the settings enable them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.actors.system import open_system
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import create_app_with
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.watched_engines import until
from greenroom.tests.support.hostile import pictures, pngs
from greenroom.tests.support.hostile.addresses import trap
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, running, serving

PHOTO = pictures.photo()
TEXT = base64.b64encode(PHOTO).decode()
URL = f"data:image/jpeg;base64,{TEXT}"
NAME = f"image_{hashlib.sha256(PHOTO).hexdigest()[:8]}.jpeg"
TABLE = f"\n\n<!-- greenroom:filenames -->\n| Image | Filename |\n|-------|----------|\n| 1 | {NAME} |"
SEEN: Any = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": URL}}]
ANTHROPIC: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": TEXT}}


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("llama")),), temperature=0.0, max_tokens=5, shutdown_timeout=60.0)


async def answer(served: Served, path: str, status: int = 200, **body: Any) -> Any:
    response = await fetch(served.server, "POST", path, {"model": "default", "max_tokens": 5, **body})
    assert response.status == status, response.body
    return response.json()


async def test_images_ids_number_images_and_append_their_table(settings: Settings) -> None:
    plain: dict[str, Any] = {"messages": [{"role": "user", "content": f"a\n[Image 1: {NAME}]"}]}
    seen: dict[str, Any] = {"messages": [{"role": "user", "content": SEEN}]}
    more: dict[str, Any] = {"n": 2, "temperature": 1, "seed": 3, "logprobs": True}
    async with serving(settings) as served:
        refused = await answer(served, "/v1/chat/completions", 400, **seen)
        assert refused["error"]["param"] == "messages[0].content[1].image_url.url"
        assert "is a text model" in refused["error"]["message"]
        expected = await answer(served, "/v1/chat/completions", **plain)
        choices = await answer(served, "/v1/chat/completions", **plain, **more)
    settings = attrs.evolve(settings, images_ids="on")
    async with serving(settings) as served:
        numbered = await answer(served, "/v1/chat/completions", **seen)
        said = expected["choices"][0]["message"]["content"]
        assert numbered["choices"][0]["message"]["content"] == said + TABLE
        assert numbered["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]
        assert numbered["usage"]["completion_tokens"] == expected["usage"]["completion_tokens"]
        both = await answer(served, "/v1/chat/completions", **seen, **more)
        assert [choice["message"]["content"] for choice in both["choices"]] == [
            choice["message"]["content"] + TABLE for choice in choices["choices"]
        ]
        assert [choice["logprobs"] for choice in both["choices"]] == [
            choice["logprobs"] for choice in choices["choices"]
        ]
        schema = {"type": "json_object"}
        constrained = await answer(
            served, "/v1/chat/completions", **seen, response_format=schema, max_completion_tokens=40
        )
        assert "filenames" not in constrained["choices"][0]["message"]["content"]


async def test_every_protocol_numbers_the_same_image_alike(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, images_ids="on")) as served:
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": SEEN}]}
        chat = await answer(served, "/v1/chat/completions", **asked)
        unthinking = await answer(served, "/v1/chat/completions", **asked, enable_thinking=False)
        content = [{"type": "text", "text": "a"}, ANTHROPIC]
        messages = await answer(
            served, "/v1/messages", messages=[{"role": "user", "content": content}], temperature=0
        )
        items = [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": URL},
        ]
        response = await answer(
            served, "/v1/responses", input=[{"role": "user", "content": items}], max_output_tokens=5
        )
        ollama = await answer(
            served,
            "/api/chat",
            messages=[{"role": "user", "content": "a", "images": [TEXT]}],
            stream=False,
            options={"num_predict": 5},
        )
    text = chat["choices"][0]["message"]["content"]
    assert text.endswith(TABLE)
    assert messages["content"][-1]["text"] == unthinking["choices"][0]["message"]["content"]
    assert response["output"][-1]["content"][0]["text"] == text
    assert ollama["message"]["content"].endswith(TABLE)


async def test_a_stored_response_keeps_its_image_and_goes_on_with_it(settings: Settings) -> None:
    settings = attrs.evolve(settings, images_ids="on", db=":memory:")
    items = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URL, "detail": "low"}]
    async with serving(settings) as served:
        first = await answer(
            served, "/v1/responses", input=[{"role": "user", "content": items}], max_output_tokens=5
        )
        listed = await fetch(served.server, "GET", f"/v1/responses/{first['id']}/input_items")
        assert listed.json()["data"][0]["content"][1] == items[1]
        second = await answer(
            served,
            "/v1/responses",
            input="b",
            previous_response_id=first["id"],
            max_output_tokens=5,
        )
        assert "filenames" not in json.dumps(second["output"])
        counted = await answer(
            served, "/v1/responses/input_tokens", input="b", previous_response_id=first["id"]
        )
        assert counted["input_tokens"] == second["usage"]["input_tokens"]
        said = [{"role": "user", "content": [{"type": "text", "text": "a"}, ANTHROPIC]}]
        counted = await answer(served, "/v1/messages/count_tokens", messages=said)
        message = await answer(served, "/v1/messages", messages=said)
        used = message["usage"]
        assert counted["input_tokens"] == used["input_tokens"] + used["cache_read_input_tokens"]
        made = await fetch(
            served.server, "POST", "/v1/conversations", {"items": [{"role": "user", "content": items}]}
        )
        kept = await fetch(served.server, "GET", f"/v1/conversations/{made.json()['id']}/items")
        assert kept.json()["data"][0]["content"][1] == items[1]
        await answer(served, "/v1/responses", input="b", conversation=made.json()["id"], max_output_tokens=5)


async def test_a_stored_chat_keeps_its_images(settings: Settings) -> None:
    settings = attrs.evolve(settings, images_ids="on", db=":memory:")
    async with serving(settings) as served:
        made = await answer(
            served, "/v1/chat/completions", messages=[{"role": "user", "content": SEEN}], store=True
        )
        kept = await fetch(served.server, "GET", f"/v1/chat/completions/{made['id']}/messages")
        [message] = kept.json()["data"]
        assert (message["content"], message["content_parts"]) == ("a", SEEN)
        found = await fetch(served.server, "GET", f"/v1/chat/completions/{made['id']}")
        assert found.json()["choices"][0]["message"]["content"].endswith(TABLE)


@pytest.mark.deep
async def test_a_compacted_conversation_goes_on_without_its_images(settings: Settings) -> None:
    settings = attrs.evolve(settings, images_ids="on", db=":memory:", temperature=None, max_context=1024)
    items = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URL}]
    said = [{"role": "user", "content": items}, {"role": "assistant", "content": "b"}]
    async with serving(settings) as served:
        compacted = await answer(served, "/v1/responses/compact", input=said)
        going_on = [*compacted["output"], {"role": "user", "content": "c"}]
        await answer(served, "/v1/responses", input=going_on, max_output_tokens=5)


async def test_what_is_named_by_its_address_is_fetched_for_every_protocol(settings: Settings) -> None:
    settings = attrs.evolve(settings, images_ids="on", db=":memory:")
    name = f"image_{hashlib.sha256(pngs.png()).hexdigest()[:8]}.png"
    with trap() as local:
        url = f"{local.address}/image.png"
        image = {"type": "input_image", "image_url": url}
        source = {"type": "image", "source": {"type": "url", "url": url}}
        requests: list[tuple[str, dict[str, Any]]] = [
            (
                "/v1/chat/completions",
                {
                    "messages": [
                        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
                    ]
                },
            ),
            ("/v1/messages", {"messages": [{"role": "user", "content": [source]}]}),
            ("/v1/responses", {"input": [{"role": "user", "content": [image]}], "max_output_tokens": 5}),
            (
                "/v1/responses",
                {"input": [{"role": "user", "content": [image]}], "max_output_tokens": 5, "store": False},
            ),
            ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [source]}]}),
            ("/v1/responses/input_tokens", {"input": [{"role": "user", "content": [image]}]}),
            (
                "/apply-template",
                {
                    "messages": [
                        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
                    ]
                },
            ),
        ]
        async with serving(settings) as served:
            for path, body in requests:
                refused = await answer(served, path, 400, **body)
                assert "[images] fetch" in json.dumps(refused), path
        async with serving(attrs.evolve(settings, images_fetch="http")) as served:
            for path, body in requests:
                refused = await answer(served, path, 400, **body)
                assert "has the port" in json.dumps(refused), path
        assert not local.asked
        allowed = attrs.evolve(settings, images_fetch="http", images_fetch_hosts=("127.0.0.1",))
        async with serving(allowed) as served:
            for path, body in requests:
                answered = json.dumps(await answer(served, path, **body))
                assert name in answered or "tokens" in path
            assert len(local.asked) == len(requests)


async def test_a_client_that_leaves_ends_the_fetching(settings: Settings) -> None:
    settings = attrs.evolve(settings, images_fetch="http", images_fetch_hosts=("127.0.0.1",))
    with trap() as local:
        async with open_system(settings) as system:
            services = RouteServices(system.refs, settings)
            async with running(create_app_with(services), settings) as server:
                content = [{"type": "image_url", "image_url": {"url": f"{local.address}/silent"}}]
                body = {"model": "default", "messages": [{"role": "user", "content": content}]}
                async with connected(server) as client:
                    await client.request("POST", "/v1/chat/completions", json.dumps(body).encode())
                    await until(lambda: local.asked == ["/silent"])
                    assert services.fetcher.under_way == 1
                await until(lambda: services.fetcher.under_way == 0)
