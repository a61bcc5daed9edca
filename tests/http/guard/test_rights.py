"""Rights of keys over HTTP: their models, limits, priority, and what they have stored."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.engines.watched_engines import WatchedEngines, until, writes
from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving

PICTURE = base64.b64encode(pictures.photo(64, 48)).decode()
MESSAGES = [{"role": "user", "content": "Hello"}]
ENDLESS: dict[str, Any] = {"max_tokens": 200_000, "ignore_eos": True, "stream": True, "temperature": 0}


@attrs.frozen
class Locked:
    """A server with two models and an admin key."""

    served: Served
    boss: str

    async def ask(
        self, method: str, path: str, key: str = "", body: Any = None, **headers: str
    ) -> RawResponse:
        """Return the answer to a request with a key, by default the admin's."""
        return await fetch(self.served.server, method, path, body, x_api_key=key or self.boss, **headers)

    async def key(self, name: str, **rights: Any) -> str:
        """Return the secret of a new key."""
        made = await self.ask("POST", "/admin/keys", body={"name": name, **rights})
        assert made.status == 200, made.body
        return str(made.json()["secret"])


@pytest.fixture
async def locked(tiny_model: TinyModel, tmp_path: Path) -> AsyncIterator[Locked]:
    settings = Settings(
        models=(str(tiny_model("qwen3")), str(tiny_model("llama"))),
        model_settings=(
            ("llama", ModelSettings(alias=("small",))),
            ("qwen3", ModelSettings(max_context=1_024)),  # so its summaries are short
        ),
        db=str(tmp_path / "db"),
        shutdown_timeout=60.0,
    )
    async with serving(settings) as served:
        # Before there are keys, everybody may store.
        before = {"input": "Hi", "model": "qwen3", "max_output_tokens": 2}
        assert (await fetch(served.server, "POST", "/v1/responses", before)).status == 200
        made = await fetch(served.server, "POST", "/admin/keys", {"name": "boss", "admin": True})
        yield Locked(served, made.json()["secret"])


def told(answer: RawResponse) -> bytes:
    """Return a body without the request's own id."""
    return re.sub(rb"req_[0-9a-f]{32}", b"", answer.body)


def chat(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": MESSAGES, "max_tokens": 3, **fields}


OF_ANOTHER_MODEL: tuple[tuple[str, Any], ...] = (
    ("/v1/chat/completions", chat("qwen3")),
    ("/v1/completions", {"model": "qwen3", "prompt": "a", "max_tokens": 2}),
    ("/v1/responses", {"model": "qwen3", "input": "a", "max_output_tokens": 2}),
    ("/v1/messages", chat("qwen3")),
    ("/v1/messages/count_tokens", {"model": "qwen3", "messages": MESSAGES}),
    ("/api/chat", {"model": "qwen3", "messages": MESSAGES, "stream": False}),
    ("/api/generate", {"model": "qwen3"}),
    ("/api/generate", {"model": "qwen3", "keep_alive": 0}),
    ("/api/show", {"model": "qwen3"}),
    ("/tokenize", {"model": "qwen3", "prompt": "a"}),
)


async def test_other_models_than_a_keys_own_do_not_exist(locked: Locked) -> None:
    guest = await locked.key("guest", models=["lla*"])
    for path, body in OF_ANOTHER_MODEL:
        refused = await locked.ask("POST", path, guest, body)
        never = await locked.ask("POST", path, guest, {**body, "model": "qwen9"})
        assert (refused.status, never.status) == (404, 404), path
        assert told(refused).replace(b"qwen3", b"qwen9") == told(never), path
        assert b"llama" not in never.body.replace(b"llama-", b""), path


async def test_a_key_lists_and_uses_its_models_and_their_aliases(locked: Locked) -> None:
    guest = await locked.key("guest", models=["lla*"])
    listed = (await locked.ask("GET", "/v1/models", guest)).json()["data"]
    assert {model["id"] for model in listed} == {"llama", "small"}
    tags = (await locked.ask("GET", "/api/tags", guest)).json()["models"]
    assert {model["name"].removesuffix(":latest") for model in tags} == {"llama", "small"}
    assert (await locked.ask("GET", "/v1/models/qwen3", guest)).status == 404
    assert (await locked.ask("GET", "/v1/models/llama", guest)).status == 200
    for name in ("llama", "small"):
        answer = await locked.ask("POST", "/v1/chat/completions", guest, chat(name))
        assert (answer.status, answer.json()["model"]) == (200, "llama")
    assert len((await locked.ask("GET", "/v1/models")).json()["data"]) == 3


FUNCTION = {"name": "read_mail", "parameters": {"type": "object"}}
SCHEMA = {"name": "read_mail", "input_schema": {"type": "object"}}
DECLARED: dict[str, tuple[Any, str]] = {
    "/v1/chat/completions": (chat("llama"), "chat"),
    "/v1/messages": (chat("llama"), "anthropic"),
    "/v1/messages/count_tokens": ({"model": "llama", "messages": MESSAGES}, "anthropic"),
    "/v1/responses": ({"model": "llama", "input": "a", "max_output_tokens": 2}, "flat"),
    "/v1/responses/input_tokens": ({"model": "llama", "input": "a"}, "flat"),
    "/api/chat": (
        {"model": "llama", "messages": MESSAGES, "stream": False, "options": {"num_predict": 3}},
        "chat",
    ),
}


async def test_a_request_declares_only_tools_that_its_key_allows(locked: Locked) -> None:
    def declaring(path: str, name: str) -> Any:
        body, form = DECLARED[path]
        function = {**(SCHEMA if form == "anthropic" else FUNCTION), "name": name}
        tool = {
            "chat": {"type": "function", "function": function},
            "flat": {"type": "function", **function},
            "anthropic": function,
        }[form]
        return {**body, "tools": [tool]}

    guest = await locked.key("guest", tools=["get_*", "search"])
    for path in DECLARED:
        for name, status in (("read_mail", 403), ("research", 403), ("search", 200), ("get_time", 200)):
            answer = await locked.ask("POST", path, guest, declaring(path, name))
            assert answer.status == status, (path, name, answer.body)
            if status == 403:
                assert b"tools" in answer.body, path
                assert name.encode() in answer.body, path
        assert (await locked.ask("POST", path, guest, DECLARED[path][0])).status == 200, path
        assert (await locked.ask("POST", path, body=declaring(path, "read_mail"))).status == 200, path


async def test_requests_beyond_a_keys_limit_are_429_with_the_headers_that_clients_read(
    locked: Locked,
) -> None:
    # While it is loaded, the guest could earn another request.
    assert (await locked.ask("POST", "/admin/models/load", body={"model": "llama"})).status == 200
    guest = await locked.key("guest", requests_per_minute=2)
    first = await locked.ask("POST", "/v1/chat/completions", guest, chat("llama"))
    assert first.status == 200
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == (
        "2",
        "1",
    )
    second = await locked.ask("POST", "/v1/messages", guest, chat("llama"), anthropic_version="2023-06-01")
    assert second.status == 200
    assert second.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert second.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    refused = await locked.ask("POST", "/v1/chat/completions", guest, chat("llama"))
    assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert (await locked.ask("GET", "/v1/models", guest)).status == 200
    assert (await locked.ask("POST", "/v1/chat/completions", body=chat("llama"))).status == 200


async def test_tokens_beyond_a_keys_limit_are_paid_back_before_the_next_request(locked: Locked) -> None:
    guest = await locked.key("guest", tokens_per_minute=5)
    first = await locked.ask("POST", "/v1/chat/completions", guest, chat("llama"))
    assert first.status == 200
    assert first.json()["usage"]["total_tokens"] > 5
    refused = await locked.ask("POST", "/v1/chat/completions", guest, chat("llama"))
    assert (refused.status, refused.headers["x-ratelimit-remaining-tokens"]) == (429, "0")
    assert "tokens" in refused.json()["error"]["message"]


async def test_a_request_is_charged_all_that_it_may_cost_until_its_end(locked: Locked) -> None:
    guest = await locked.key("guest", tokens_per_minute=60_000)

    async def left() -> int:
        asked = await locked.ask("POST", "/tokenize", guest, {"model": "llama", "prompt": "a"})
        return int(asked.headers["x-ratelimit-remaining-tokens"])

    async def is_returned() -> bool:
        return await left() > 50_000

    async with connected(locked.served.server) as client:
        long = chat("llama", **{**ENDLESS, "max_tokens": 50_000})
        await client.request("POST", "/v1/chat/completions", json.dumps(long).encode(), x_api_key=guest)
        await client.read_until(b'"content"')
        assert await left() < 45_000
    await eventually(is_returned)


async def test_a_key_has_no_more_requests_at_once_than_it_may(locked: Locked) -> None:
    guest = await locked.key("guest", concurrent=2)
    endless = {"model": "llama", "input": "a", "background": True, "max_output_tokens": 200_000}
    run = (await locked.ask("POST", "/v1/responses", guest, endless)).json()["id"]

    async def asks() -> bool:
        return (await locked.ask("POST", "/v1/chat/completions", guest, chat("llama"))).status == 200

    async with connected(locked.served.server) as client:
        long = json.dumps(chat("llama", **ENDLESS)).encode()
        await client.request("POST", "/v1/chat/completions", long, x_api_key=guest)
        await client.read_until(b'"content"')
        refused = await locked.ask("POST", "/v1/chat/completions", guest, chat("llama"))
        assert (refused.status, refused.headers["retry-after"]) == (429, "2")
        assert "2 requests at once" in refused.json()["error"]["message"]
        assert (await locked.ask("GET", f"/v1/responses/{run}", guest)).status == 200
        assert (await locked.ask("POST", "/v1/chat/completions", body=chat("llama"))).status == 200
        assert (await locked.ask("POST", f"/v1/responses/{run}/cancel", guest)).status == 200
        await eventually(asks)
    await eventually(asks)


async def test_an_empty_prompt_unloads_no_model_that_another_key_uses(locked: Locked) -> None:
    alice, bob = await locked.key("alice"), await locked.key("bob")
    unload = {"model": "llama", "keep_alive": 0}
    async with connected(locked.served.server) as client:
        long = json.dumps(chat("llama", **ENDLESS)).encode()
        await client.request("POST", "/v1/chat/completions", long, x_api_key=alice)
        await client.read_until(b'"content"')
        for path in ("/api/generate", "/api/chat"):
            refused = await locked.ask("POST", path, bob, unload)
            assert refused.status == 409
            assert refused.json()["error"].startswith("Others use the model 'llama'")
    allowed = await locked.ask("POST", "/api/generate", body=unload)
    assert (allowed.status, allowed.json()["done_reason"]) == (200, "unload")


@pytest.mark.deep
async def test_answers_that_make_way_for_another_key_are_the_same_as_alone(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    models, db = (str(tiny_model("llama")),), str(tmp_path / "db")
    fields = {"n": 4, "max_tokens": 120, "ignore_eos": True, "temperature": 0.9, "seed": 5, "logprobs": True}

    def said(choices: list[dict[str, Any]], part: str) -> dict[int, tuple[str, list[str]]]:
        """Return the text and the tokens of each choice."""
        found: dict[int, tuple[str, list[str]]] = {}
        for choice in choices:
            text, tokens = found.get(choice["index"], ("", []))
            more = [each["token"] for each in (choice.get("logprobs") or {}).get("content") or ()]
            found[choice["index"]] = text + (choice[part].get("content") or ""), tokens + more
        return found

    settings = Settings(models=models, db=db, max_batch=4, shutdown_timeout=60.0)
    engines = WatchedEngines(settings)
    async with serving(settings, engines=engines) as served:
        made = await fetch(served.server, "POST", "/admin/keys", {"name": "boss", "admin": True})
        locked = Locked(served, made.json()["secret"])
        alice, bob = await locked.key("alice"), await locked.key("bob")
        path, one = "/v1/chat/completions", chat("llama", **{**fields, "n": 1, "max_tokens": 20})
        alone = await locked.ask("POST", path, alice, chat("llama", **fields))
        other = await locked.ask("POST", path, bob, one)
        expected = said(alone.json()["choices"], "message")
        assert len({text for text, _ in expected.values()}) == 4
        engine = engines.engine
        assert engine is not None
        besides: list[RawResponse] = []

        async def ask_beside() -> None:
            besides.append(await locked.ask("POST", path, bob, one))

        async with connected(served.server) as client, trio.open_nursery() as nursery:
            streamed = json.dumps(chat("llama", **fields, stream=True)).encode()
            steps = len(engine.steps)
            engine.go_on.clear()
            try:
                await client.request("POST", path, streamed, x_api_key=alice)
                while not writes(engine.steps[steps:]):
                    engine.go_on.set()
                    engine.go_on.clear()
                    await trio.sleep(0.001)
                with capture_logs() as logs:
                    nursery.start_soon(ask_beside)
                    await until(lambda: any(line["event"] == "request admitted" for line in logs))
            finally:
                engine.go_on.set()
            stream = await client.read_until(b"data: [DONE]")

        async def has_made_way() -> bool:
            metrics = (await locked.ask("GET", "/metrics")).body.decode()
            return bool(re.search(r"^\S*num_preemptions_total\S* [1-9]", metrics, re.MULTILINE))

        await eventually(has_made_way)
    [beside] = besides
    chunks = re.findall(rb"^data: (\{.*\})\r?$", stream, re.MULTILINE)
    choices = [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]
    assert said(choices, "delta") == expected
    assert said(beside.json()["choices"], "message") == said(other.json()["choices"], "message")


@pytest.mark.parametrize("isolates", [False, True])
async def test_isolated_keys_share_no_prefixes(tiny_model: TinyModel, tmp_path: Path, isolates: bool) -> None:
    settings = Settings(
        models=(str(tiny_model("llama")),),
        db=str(tmp_path / "db"),
        isolate_prefixes=isolates,
        shutdown_timeout=60.0,
    )
    said = {**chat("llama"), "messages": [{"role": "user", "content": "word " * 300}]}

    async def cached(key: str) -> int:
        answer = await fetch(served.server, "POST", "/v1/chat/completions", said, x_api_key=key)
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    async with serving(settings) as served:
        made = await fetch(served.server, "POST", "/admin/keys", {"name": "boss", "admin": True})
        locked = Locked(served, made.json()["secret"])
        alice, bob = await locked.key("alice"), await locked.key("bob")
        assert await cached(alice) == 0
        assert await cached(alice) > 200
        assert (await cached(bob) > 200) is not isolates
        assert await cached(bob) > 200


@pytest.mark.parametrize("isolates", [False, True])
async def test_isolated_keys_do_not_tell_each_other_of_their_images(
    tiny_vision_model: TinyVisionModel, tmp_path: Path, isolates: bool
) -> None:
    models, db = (str(tiny_vision_model("qwen2_vl")),), str(tmp_path / "db")
    settings = Settings(models=models, db=db, isolate_prefixes=isolates, shutdown_timeout=60.0)
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PICTURE}"}}

    async def cached(key: str, text: str) -> int:
        content = [{"type": "text", "text": text}, image, {"type": "text", "text": "What is this?"}]
        messages = [{"role": "user", "content": content}]
        said = {**chat("default"), "messages": messages, "include_explain": True}
        answer = await fetch(served.server, "POST", "/v1/chat/completions", said, x_api_key=key)
        return int(answer.json()["usage"]["greenroom"]["cached_tokens"]["images"])

    async with serving(settings) as served:
        made = await fetch(served.server, "POST", "/admin/keys", {"name": "boss", "admin": True})
        locked = Locked(served, made.json()["secret"])
        alice, bob = await locked.key("alice"), await locked.key("bob")
        assert await cached(alice, "One.") == 0
        assert await cached(alice, "Two.") > 0
        assert (await cached(bob, "Three.") > 0) is not isolates
        assert await cached(bob, "Four.") > 0


async def test_what_a_key_has_stored_is_its_own_and_that_from_before_keys_the_admins(locked: Locked) -> None:
    alice, bob = await locked.key("alice"), await locked.key("bob")
    turn = {"input": "Hi", "model": "llama", "max_output_tokens": 2}
    made = (await locked.ask("POST", "/v1/responses", alice, turn)).json()["id"]
    path = f"/v1/responses/{made}"
    assert (await locked.ask("GET", path, alice)).status == 200
    refused = await locked.ask("GET", path, bob)
    never = await locked.ask("GET", "/v1/responses/resp_never", bob)
    assert told(refused).replace(made.encode(), b"resp_never") == told(never)
    assert (refused.status, (await locked.ask("GET", path)).status) == (404, 404)
    keys = (await locked.ask("GET", "/admin/keys")).json()["keys"]
    owner = next(key["id"] for key in keys if key["name"] == "alice")
    assert (await locked.ask("GET", f"{path}?owner={owner}", bob)).status == 404
    assert (await locked.ask("GET", f"{path}?owner={owner}")).status == 200
    assert (await locked.ask("DELETE", f"{path}?owner={owner}")).status == 200
    assert (await locked.ask("GET", path, alice)).status == 404


@pytest.mark.deep
async def test_a_compaction_opens_for_its_own_key_only_and_one_from_before_keys_for_admins(
    locked: Locked,
) -> None:
    alice, bob = await locked.key("alice"), await locked.key("bob")
    turn = {"input": [{"role": "user", "content": "Hi"}], "model": "qwen3"}

    async def item(key: str) -> Any:
        made = await locked.ask("POST", "/v1/responses/compact", key, turn)
        assert made.status == 200, made.body
        return made.json()["output"][-1]

    async def status(key: str, compaction: Any) -> int:
        body = {**turn, "input": [compaction, *turn["input"]], "max_output_tokens": 2}
        return (await locked.ask("POST", "/v1/responses", key, body)).status

    own, admins = await item(alice), await item("")
    assert [await status(key, own) for key in (alice, bob, "")] == [200, 400, 400]
    assert [await status(key, admins) for key in (alice, bob, "")] == [400, 400, 200]
