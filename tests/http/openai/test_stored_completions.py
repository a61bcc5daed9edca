"""Chat completions stored on completion, with the official client and a real database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import openai
import pytest
from openai.types.chat import ChatCompletion

from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredCompletion
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.actors.stored_records import change
from greenroom.tests.support.clients.openai_clients import USER, ask, body, stream_of, streamed_text
from greenroom.tests.support.clients.web_socket_clients import until_closed
from greenroom.tests.support.engines.watched_engines import WatchedEngines
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.http_servers import Served, fetch, serving


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return attrs.evolve(settings, db=str(tmp_path / "store.db"))


async def created(served: Served, **fields: Any) -> ChatCompletion:
    answer = await ask(
        served, lambda client: client.chat.completions.create(**body(store=True, max_tokens=3, **fields))
    )
    assert isinstance(answer, ChatCompletion)
    return answer


async def test_an_answer_is_found_as_it_was_given_and_outlives_its_server(settings: Settings) -> None:
    async with serving(settings) as served:
        answer = await created(served, metadata={"topic": "sea"}, n=2)
        [streamed, *_] = chunks = await stream_of(served, store=True, metadata={"topic": "sea"})
    async with serving(settings) as served:
        found = await ask(served, lambda client: client.chat.completions.retrieve(answer.id))
        assert found.metadata == {"topic": "sea"}
        assert found.model_dump(exclude={"metadata"}) == answer.model_dump(exclude={"metadata"})
        whole = await ask(served, lambda client: client.chat.completions.retrieve(streamed.id))
        assert whole.choices[0].message.content == streamed_text(chunks)
        assert whole.choices[0].finish_reason == "length"
        assert whole.created == streamed.created
        assert whole.usage


async def test_messages_are_listed_page_by_page(settings: Settings) -> None:
    parts = [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "more"}]
    history = [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
        {"role": "user", "content": parts, "name": "Ada"},
    ]
    async with serving(settings) as served:
        answer = await created(served, messages=history)
        messages = await ask(
            served, lambda client: list(client.chat.completions.messages.list(answer.id, limit=2))
        )
        backwards = await ask(
            served, lambda client: list(client.chat.completions.messages.list(answer.id, order="desc"))
        )
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "user"]
    assert [message.id for message in messages] == [f"{answer.id}-{index}" for index in range(5)]
    assert [message.id for message in backwards] == [message.id for message in reversed(messages)]
    assert messages[2].tool_calls
    assert messages[4].content == "Tell me more"
    assert [part.text for part in messages[4].content_parts or ()] == ["Tell me ", "more"]  # type: ignore[union-attr]
    assert messages[0].content_parts is None


LATER: tuple[Callable[[str, openai.OpenAI], Any], ...] = (
    lambda ident, client: client.chat.completions.retrieve(ident),
    lambda ident, client: client.chat.completions.delete(ident),
    lambda ident, client: client.chat.completions.update(ident, metadata={}),
    lambda ident, client: client.chat.completions.messages.list(ident),
)
CALL = {"id": "call_1", "type": "function", "function": {"name": "color", "arguments": "{}"}}


async def test_completions_are_listed_by_model_and_metadata(settings: Settings) -> None:
    async with serving(settings) as served:
        first = await created(served, metadata={"topic": "sea", "user": "ada"})
        second = await created(served, model="llama", metadata={"topic": "sea"})
        third = await created(served)
        await ask(served, lambda client: client.chat.completions.create(**body()))

        async def listed(**query: Any) -> list[str]:
            found = await ask(served, lambda client: list(client.chat.completions.list(**query)))
            return [completion.id for completion in found]

        assert await listed() == [first.id, second.id, third.id]
        assert await listed(limit=1) == [first.id, second.id, third.id]
        assert await listed(order="desc") == [third.id, second.id, first.id]
        assert await listed(after=first.id) == [second.id, third.id]
        assert await listed(model="llama") == [second.id]
        assert await listed(metadata={"topic": "sea"}) == [first.id, second.id]
        assert await listed(metadata={"topic": "sea", "user": "ada"}) == [first.id]
        assert await listed(metadata={"topic": "land"}) == []
        page = await ask(served, lambda client: client.chat.completions.list(limit=2))
        assert page.has_more is True


async def test_a_filter_by_metadata_names_the_entry_it_asks_for(settings: Settings) -> None:
    async with serving(settings) as served:
        answer = await fetch(served.server, "GET", "/v1/chat/completions?metadata=sea")
    assert answer.status == 400
    assert answer.json()["error"]["param"] == "metadata"
    assert "metadata[key]=value" in answer.json()["error"]["message"]


async def test_metadata_is_replaced_and_a_deleted_completion_is_gone(settings: Settings) -> None:
    async with serving(settings) as served:
        answer = await created(served, metadata={"topic": "sea"})
        updated = await ask(
            served, lambda client: client.chat.completions.update(answer.id, metadata={"kept": "yes"})
        )
        assert updated.metadata == {"kept": "yes"}
        assert updated.choices == answer.choices
        gone = await ask(served, lambda client: client.chat.completions.delete(answer.id))
        assert (gone.id, gone.deleted, gone.object) == (answer.id, True, "chat.completion.deleted")
        for call in LATER:
            with pytest.raises(openai.NotFoundError) as error:
                await ask(served, partial(call, answer.id))
            assert answer.id in str(error.value)


async def test_what_another_key_has_stored_is_unknown(settings: Settings) -> None:
    theirs = StoredCompletion("chatcmpl-theirs", "another key", 1.0, "qwen3", "[]", "{}")
    async with serving(settings) as served:
        store = served.system.refs.store
        await change(store, lambda tables: tables.completions.save(theirs))
        assert await ask(served, lambda client: list(client.chat.completions.list())) == []
        with pytest.raises(openai.NotFoundError):
            await ask(served, lambda client: client.chat.completions.retrieve("chatcmpl-theirs"))
        with pytest.raises(openai.NotFoundError):
            await ask(served, lambda client: client.chat.completions.delete("chatcmpl-theirs"))
        await change(store, lambda tables: tables.completions.find("chatcmpl-theirs", "another key"))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"store": "yes"}, "store"),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_name(
    settings: Settings, fields: dict[str, Any], param: str
) -> None:
    async with serving(settings) as served:
        with pytest.raises(openai.BadRequestError) as error:
            await ask(served, lambda client: client.chat.completions.create(**{**body(store=True), **fields}))
        assert error.value.param == param


async def test_without_a_store_the_answer_is_refused_before_it_is_generated(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, store_responses=False)) as served:
        with pytest.raises(openai.BadRequestError) as error:
            await ask(served, lambda client: client.chat.completions.create(**body(store=True)))
        assert error.value.param == "store"
        assert await ask(served, lambda client: client.chat.completions.create(**body(store=False)))


async def test_an_answer_that_was_left_is_not_stored(settings: Settings) -> None:
    engines = WatchedEngines(settings, stops=True)
    async with serving(settings, engines=engines) as served:

        def leave(client: openai.OpenAI) -> None:
            with client.chat.completions.create(**body(store=True, stream=True)) as stream:
                next(iter(stream))
                wait_until(lambda: engines.stand)

        await ask(served, leave)
        engine = await engines.standing()
        await until_closed(served)
        engine.go_on.set()
        await created(served)
        assert len(await ask(served, lambda client: list(client.chat.completions.list()))) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_stored_says_so(settings: Settings, stream: bool) -> None:
    async with serving(attrs.evolve(settings, audit=True)) as served:

        async def is_recorded() -> bool:
            rows = (await fetch(served.server, "GET", "/admin/audit")).json()["requests"]
            return any(row["error"] for row in rows)

        await created(served)
        assert settings.db
        with closing(sqlite3.connect(settings.db, timeout=300)) as database:
            database.execute("drop table greenroom_completions")
        with pytest.raises(openai.APIError) as error:
            await (stream_of(served, store=True) if stream else created(served))
        assert "store" in str(error.value) or "database" in str(error.value)
        await eventually(is_recorded)
        assert await ask(served, lambda client: client.chat.completions.create(**body()))
