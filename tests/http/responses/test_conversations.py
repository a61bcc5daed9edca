"""Stored conversations, with the official client and a real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
import openai
import pytest
from openai.types.conversations import Conversation

from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredConversation, StoredItem
from greenroom.tests.support.actors.stored_records import change
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.engines.watched_engines import WatchedEngines
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

Call = Callable[[str, Any], Any]
HI: Any = {"role": "user", "content": "Hi"}
HELLO: Any = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
CALL: Any = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
RESULT: Any = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return attrs.evolve(settings, db=str(tmp_path / "store.db"))


async def created(served: Served, **fields: Any) -> Conversation:
    return await ask(served, lambda client: client.conversations.create(**fields))


async def listed(served: Served, conversation: str, **query: Any) -> list[Any]:
    return await ask(served, lambda client: list(client.conversations.items.list(conversation, **query)))


async def test_a_conversation_is_created_read_updated_and_deleted(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await created(served, metadata={"topic": "sea"}, items=[HI, HELLO])
        assert made.id.startswith("conv_")
        assert (made.object, made.metadata) == ("conversation", {"topic": "sea"})
    async with serving(settings) as served:
        assert await ask(served, lambda client: client.conversations.retrieve(made.id)) == made
        changed = await ask(served, lambda client: client.conversations.update(made.id, metadata={"a": "b"}))
        assert changed == made.model_copy(update={"metadata": {"a": "b"}})
        assert [item.role for item in await listed(served, made.id, order="asc")] == ["user", "assistant"]
        gone = await ask(served, lambda client: client.conversations.delete(made.id))
        assert (gone.id, gone.deleted, gone.object) == (made.id, True, "conversation.deleted")
        with pytest.raises(openai.NotFoundError) as error:
            await ask(served, lambda client: client.conversations.retrieve(made.id))
        assert made.id in error.value.message


async def test_conversations_are_listed_by_owner_newest_first_and_found_by_their_titles(
    settings: Settings,
) -> None:
    async with serving(settings) as served:

        async def listed(**query: str | int) -> tuple[list[str], bool]:
            answer = await fetch(served.server, "GET", f"/v1/conversations?{urlencode(query)}")
            assert answer.status == 200, answer.body
            page = answer.json()
            found = [each["metadata"].get("title", "") for each in page["data"]]
            assert page["last_id"] == (page["data"][-1]["id"] if found else None)
            ids[:] = [each["id"] for each in page["data"]]
            return found, page["has_more"]

        ids = list[str]()
        assert await listed() == ([], False)
        for title in ("Soup", "Bread soup", "100% rye", None, "It's _bread_"):
            body = {} if title is None else {"metadata": {"title": title}}
            assert (await fetch(served.server, "POST", "/v1/conversations", body)).status == 200
        assert await listed() == (["It's _bread_", "", "100% rye", "Bread soup", "Soup"], False)
        assert await listed(limit=2) == (["It's _bread_", ""], True)
        assert await listed(limit=2, after=ids[-1]) == (["100% rye", "Bread soup"], True)
        assert await listed(query="BREAD") == (["It's _bread_", "Bread soup"], False)
        for text, count in (("%", 1), ("_", 1), ("'", 1), ("x" * 512, 0)):
            assert len((await listed(query=text))[0]) == count
        for query, field in (("query=" + "x" * 513, "query"), ("limit=0", "limit"), ("order=asc", "order")):
            refused = await fetch(served.server, "GET", f"/v1/conversations?{query}")
            assert (refused.status, refused.json()["error"]["param"]) == (400, field)
        gone = await fetch(served.server, "GET", "/v1/conversations?after=conv_never")
        assert gone.status == 404


async def test_items_are_added_listed_read_and_deleted(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await created(served)
        await ask(served, lambda client: client.conversations.items.create(made.id, items=[HI, HELLO]))
        added = await ask(
            served, lambda client: client.conversations.items.create(made.id, items=[CALL, RESULT])
        )
        assert [item.type for item in added.data] == ["function_call", "function_call_output"]
        assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[1].id, False)

        everything = await listed(served, made.id, order="asc")
        assert [item.type for item in everything] == [
            "message",
            "message",
            "function_call",
            "function_call_output",
        ]
        assert len({item.id for item in everything}) == 4
        assert everything[0].content[0].text == "Hi"
        assert await listed(served, made.id, order="asc", limit=1) == everything
        assert await listed(served, made.id) == everything[::-1]
        assert await listed(served, made.id, order="asc", after=everything[1].id) == everything[2:]
        include: list[Any] = ["message.output_text.logprobs"]
        assert await listed(served, made.id, order="asc", include=include) == everything

        one = await ask(
            served,
            lambda client: client.conversations.items.retrieve(everything[3].id, conversation_id=made.id),
        )
        assert one == everything[3]
        left = await ask(
            served,
            lambda client: client.conversations.items.delete(everything[3].id, conversation_id=made.id),
        )
        assert left == made
        assert await listed(served, made.id, order="asc") == everything[:3]
        with pytest.raises(openai.NotFoundError) as error:
            await ask(
                served,
                lambda client: client.conversations.items.retrieve(everything[3].id, conversation_id=made.id),
            )
        assert everything[3].id in error.value.message


async def test_items_are_neither_added_nor_deleted_while_a_turn_is_generated(settings: Settings) -> None:
    turn: Any = {"model": "qwen3", "input": "Hi", "background": True, "temperature": 0}
    engines = WatchedEngines(settings, stops=True)
    async with serving(settings, engines=engines) as served:
        made = await created(served, items=[HI])
        [item] = await listed(served, made.id)
        begun = await ask(served, lambda client: client.responses.create(**turn, conversation=made.id))
        engine = await engines.standing()
        changes: list[Callable[[Any], Any]] = [
            lambda client: client.conversations.items.create(made.id, items=[HELLO]),
            lambda client: client.conversations.items.delete(item.id, conversation_id=made.id),
        ]
        for change in changes:
            with pytest.raises(openai.ConflictError) as refused:
                await ask(served, change)
            assert refused.value.code == "conversation_in_use"
        await ask(served, lambda client: client.responses.cancel(begun.id))
        engine.go_on.set()
        for change in changes:
            await ask(served, change)
        assert item.id not in [left.id for left in await listed(served, made.id)]


async def test_whoever_is_answered_may_change_a_conversation_again_at_once(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await created(served, items=[HI])
        path, body = f"/v1/conversations/{made.id}/items", {"items": [HELLO]}
        async with connected(served.server) as one, connected(served.server) as other:
            for client in (one, other) * 20:
                await client.request("POST", path, json.dumps(body).encode())
                assert (await client.receive_response()).status == 200


async def test_a_thought_is_listed_with_what_gives_it_back_where_that_is_wanted(settings: Settings) -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
    include: Any = ["reasoning.encrypted_content"]
    async with serving(settings) as served:
        made = await created(served, items=[HI, thought])
        [plain, _] = await listed(served, made.id)
        [sealed, _] = await listed(served, made.id, include=include)
        assert plain.encrypted_content is None
        assert sealed.encrypted_content
        assert sealed.model_copy(update={"encrypted_content": None}) == plain
        one = await ask(
            served,
            lambda client: client.conversations.items.retrieve(
                plain.id, conversation_id=made.id, include=include
            ),
        )
        assert one == sealed
        back: Any = {"type": "reasoning", "summary": [], "encrypted_content": sealed.encrypted_content}
        assert await created(served, items=[HI, back])


def item_of(kind: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": kind}]}


REFUSED: list[tuple[Call, str]] = [
    (lambda ident, client: client.conversations.create(items=[HI] * 21), "items"),
    (lambda ident, client: client.conversations.items.create(ident, items=[HI] * 21), "items"),
    (lambda ident, client: client.conversations.items.create(ident, items="Hi"), "items"),
    (lambda ident, client: client.conversations.items.create(ident, items=[HI, {}]), "items[1]"),
    (
        lambda ident, client: client.conversations.items.create(ident, items=[item_of("input_image")]),
        "items[0].content[0].image_url",
    ),
    (
        lambda ident, client: client.conversations.items.create(ident, items=[{**CALL, "name": ""}]),
        "items[0].name",
    ),
    (
        lambda ident, client: client.conversations.items.create(
            ident, items=[{"type": "compaction", "encrypted_content": "gr1_AAAA"}]
        ),
        "items[0].encrypted_content",
    ),
    (
        lambda ident, client: client.conversations.items.create(
            ident, items=[{"type": "compaction_trigger"}]
        ),
        "items[0]",
    ),
    (lambda ident, client: client.conversations.items.list(ident, limit=101), "limit"),
    (lambda ident, client: client.conversations.items.list(ident, order="up"), "order"),
    (lambda ident, client: client.conversations.items.list(ident, include=["everything"]), "include"),
    (lambda ident, client: client.conversations.create(metadata={"k": "v" * 513}), "metadata.k"),
    (lambda ident, client: client.conversations.update(ident, metadata={"k" * 65: ""}), "metadata"),
]


async def test_what_cannot_be_kept_is_refused_by_name(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await created(served)
        for call, param in REFUSED:
            with pytest.raises(openai.BadRequestError) as error:
                await ask(served, partial(call, made.id))
            assert error.value.param == param
        assert await listed(served, made.id) == []


UNKNOWN: list[Call] = [
    lambda ident, client: client.conversations.retrieve(ident),
    lambda ident, client: client.conversations.update(ident, metadata={}),
    lambda ident, client: client.conversations.delete(ident),
    lambda ident, client: client.conversations.items.create(ident, items=[HI]),
    lambda ident, client: client.conversations.items.list(ident),
    lambda ident, client: client.conversations.items.retrieve("msg_theirs", conversation_id=ident),
    lambda ident, client: client.conversations.items.delete("msg_theirs", conversation_id=ident),
    lambda ident, client: client.responses.create(model="qwen3", input="Hi", conversation=ident, store=False),
]


async def test_what_another_key_has_is_unknown(settings: Settings) -> None:
    theirs = StoredConversation("conv_theirs", "another key", 1.0)
    item = StoredItem("msg_theirs", '{"id":"msg_theirs","type":"message","role":"user","content":[]}')
    async with serving(settings) as served:
        store = served.system.refs.store
        await change(store, lambda tables: tables.conversations.create(theirs, (item,)))
        for call in UNKNOWN:
            for ident in ("conv_theirs", "conv_nobody's"):
                with pytest.raises(openai.NotFoundError) as error:
                    await ask(served, partial(call, ident))
                assert ident in error.value.message


HOSTILE = (
    "%00",
    "%ff",
    "..%2f..",
    "'; drop table greenroom_items; --",
    "x" * 10_000,
    "%F0%9F%92%A9",
    "%ED%A0%80",
)


@pytest.mark.parametrize("ident", HOSTILE)
async def test_a_hostile_id_is_unknown(server_without_model: Served, ident: str) -> None:
    name = ident.replace(" ", "%20")
    for path in (
        f"/v1/conversations/{name}",
        f"/v1/conversations/{name}/items",
        f"/v1/chat/completions/{name}",
    ):
        response = await fetch(server_without_model.server, "GET", path)
        assert response.status == 404, response.body
    response = await fetch(server_without_model.server, "GET", f"/v1/conversations/conv_1/items?after={name}")
    assert response.status == 404
