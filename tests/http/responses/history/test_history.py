"""Histories of responses, assembled from a real database and counted by the official client."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import openai
import pytest
import trio

from greenroom.http.responses.history_reader import decode_item, resolve_references
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredConversation, StoredItem, StoredResponse
from greenroom.schemas.wire.responses_items import Item, MessageItem, structure_items
from greenroom.tests.support.actors.stored_records import change, commit
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

TOOL = {"type": "function", "name": "read", "parameters": {"type": "object"}}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return attrs.evolve(settings, db=str(tmp_path / "store.db"))


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def call(ident: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": "read", "arguments": "{}"}


def result(ident: str, text: str = "blue") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": text}


def stored(items: list[dict[str, Any]], stem: str) -> tuple[StoredItem, ...]:
    named = [{**item, "id": f"msg_{stem}_{index}"} for index, item in enumerate(items)]
    return tuple(StoredItem(item["id"], json.dumps(item)) for item in named)


async def keep(
    served: Served, name: str, asked: list[dict[str, Any]], answered: list[dict[str, Any]], **fields: Any
) -> str:
    """Store a response as if it had been generated; return its id."""
    response = StoredResponse(
        f"resp_{name}",
        "",
        "qwen3",
        "completed",
        1.0,
        json.dumps({"instructions": "Speak like a pirate."}),
        input=stored(asked, f"{name}_in"),
        output=stored(answered, name),
        **fields,
    )
    await commit(served.system.refs.store, response)
    return response.id


async def tokens(served: Served, items: Any, **fields: Any) -> int:
    counted = await ask(
        served, lambda client: client.responses.input_tokens.count(model="qwen3", input=items, **fields)
    )
    return counted.input_tokens


FIRST: list[Any] = [said("user", "Tell me about the sea"), said("assistant", "It is blue and very large.")]
SECOND: list[Any] = [said("user", "And the sky?"), said("assistant", "It is blue, too, and larger.")]
OTHER: list[Any] = [said("user", "And a sparrow?"), said("assistant", "It is small.")]
QUESTION: list[Any] = [said("user", "Which is larger?")]


async def test_a_chain_is_read_up_to_the_response_that_is_named_so_it_can_branch(settings: Settings) -> None:
    async with serving(settings) as served:
        first = await keep(served, "1", FIRST[:1], FIRST[1:])
        second = await keep(served, "2", SECOND[:1], SECOND[1:], parent=first)
        other = await keep(served, "3", OTHER[:1], OTHER[1:], parent=first)
        assert await tokens(served, QUESTION, previous_response_id=first) == await tokens(
            served, [*FIRST, *QUESTION]
        )
        for branch, turns in ((second, SECOND), (other, OTHER)):
            whole = await tokens(served, [*FIRST, *turns, *QUESTION], instructions="Be brief.")
            assert (
                await tokens(served, QUESTION, previous_response_id=branch, instructions="Be brief.") == whole
            )


async def test_a_result_that_names_its_call_by_its_own_id_finds_it_again(settings: Settings) -> None:
    listing = [
        said("user", "List the files"),
        {"type": "local_shell_call", "id": "lsh", "call_id": "c", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c", "output": "notes.txt"},
    ]
    async with serving(settings) as served:
        whole = await tokens(served, [*listing, *QUESTION])
        made = await ask(served, lambda client: client.conversations.create(items=cast("Any", listing)))
        assert await tokens(served, QUESTION, conversation=made.id) == whole


async def test_a_branch_whose_parent_was_deleted_is_refused_by_name(settings: Settings) -> None:
    async with serving(settings) as served:
        first = await keep(served, "1", FIRST[:1], FIRST[1:])
        second = await keep(served, "2", SECOND[:1], SECOND[1:], parent=first)
        await change(served.system.refs.store, lambda tables: tables.responses.delete(first, ""))
        with pytest.raises(openai.NotFoundError) as error:
            await tokens(served, QUESTION, previous_response_id=second)
        assert error.value.param == "previous_response_id"


async def test_a_conversation_is_read_to_its_end(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await ask(served, lambda client: client.conversations.create(items=FIRST))
        await keep(served, "1", SECOND[:1], SECOND[1:], conversation=made.id)
        whole = await tokens(served, [*FIRST, *SECOND, *QUESTION])
        assert await tokens(served, QUESTION, conversation=made.id) == whole
        assert await tokens(served, QUESTION, conversation={"id": made.id}) == whole
        answer = await ask(
            served,
            lambda client: client.responses.create(
                model="qwen3",
                input=QUESTION,
                conversation=made.id,
                store=False,
                max_output_tokens=2,
            ),
        )
        assert answer.usage
        assert answer.usage.input_tokens == whole
        assert answer.truncation == "auto"
        assert answer.conversation
        assert answer.conversation.id == made.id


async def test_a_conversation_branches_at_any_of_its_turns(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await ask(served, lambda client: client.conversations.create(items=FIRST))
        second = await keep(served, "1", SECOND[:1], SECOND[1:], conversation=made.id)
        await keep(served, "2", OTHER[:1], OTHER[1:], conversation=made.id)
        branch = await keep(served, "3", QUESTION, FIRST[1:], parent=second)
        for parent, before in ((second, []), (branch, [*QUESTION, FIRST[1]])):
            whole = await tokens(served, [*FIRST, *SECOND, *before, *OTHER[:1]])
            assert await tokens(served, OTHER[:1], previous_response_id=parent) == whole
        whole = await tokens(served, [*FIRST, *SECOND, *OTHER, *QUESTION])
        assert await tokens(served, QUESTION, conversation=made.id) == whole


@pytest.mark.deep
async def test_a_response_may_be_named_beside_its_conversation(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await ask(served, lambda client: client.conversations.create(items=FIRST))
        first = await keep(served, "1", SECOND[:1], SECOND[1:], conversation=made.id)
        added: list[Any] = [said("user", "Say it in a few words.")]
        await ask(served, lambda client: client.conversations.items.create(made.id, items=added))
        both: dict[str, Any] = {"conversation": made.id, "previous_response_id": first}
        # An item added after the response belongs to the conversation, but not to the response's history.
        whole = await tokens(served, [*FIRST, *SECOND, *added, *QUESTION])
        assert await tokens(served, QUESTION, **both) == whole
        alone = await tokens(served, QUESTION, previous_response_id=first)
        assert alone == await tokens(served, [*FIRST, *SECOND, *QUESTION]) < whole
        answer = await ask(
            served,
            lambda client: client.responses.create(
                model="qwen3", input=QUESTION, max_output_tokens=2, extra_body=both
            ),
        )
        assert answer.usage
        assert answer.conversation
        assert (answer.usage.input_tokens, answer.conversation.id) == (whole, made.id)
        assert answer.previous_response_id == first
        items = await ask(served, lambda client: list(client.conversations.items.list(made.id, order="asc")))
        assert len(items) == 7
        assert items[-1].id == answer.output[-1].id
        # Continuing an earlier turn leaves out the later one.
        assert await tokens(served, QUESTION, **both) == whole
        later = {**both, "previous_response_id": answer.id}
        assert await tokens(served, OTHER[:1], **later) == await tokens(
            served, OTHER[:1], conversation=made.id
        )


async def test_a_response_of_another_conversation_is_refused(settings: Settings) -> None:
    async with serving(settings) as served:
        made, other = [
            await ask(served, lambda client: client.conversations.create(items=FIRST)) for _ in range(2)
        ]
        inside = await keep(served, "1", SECOND[:1], SECOND[1:], conversation=other.id)
        apart = await keep(served, "2", SECOND[:1], SECOND[1:])
        for previous in (inside, apart):
            for create in (tokens, respond):
                with pytest.raises(openai.BadRequestError) as error:
                    await create(served, QUESTION, conversation=made.id, previous_response_id=previous)
                assert (error.value.code, error.value.param) == (
                    "conversation_mismatch",
                    "previous_response_id",
                )
                assert previous in error.value.message
                assert made.id in error.value.message
        with pytest.raises(openai.NotFoundError) as unknown:
            await tokens(served, QUESTION, conversation=made.id, previous_response_id="resp_none")
        assert unknown.value.param == "previous_response_id"
        # The refusal released the conversation's lock.
        await respond(served, QUESTION, conversation=made.id)


async def respond(served: Served, items: Any, **fields: Any) -> Any:
    return await ask(
        served,
        lambda client: client.responses.create(
            model="qwen3", input=items, max_output_tokens=2, extra_body=fields
        ),
    )


REFUSED: list[tuple[dict[str, Any], type[openai.APIStatusError], str]] = [
    ({"previous_response_id": "resp_nobody's"}, openai.NotFoundError, "previous_response_id"),
    ({"previous_response_id": "\ud800"}, openai.NotFoundError, "previous_response_id"),
    ({"previous_response_id": "x" * 100_000}, openai.NotFoundError, "previous_response_id"),
    ({"conversation": "conv_nobody's"}, openai.NotFoundError, "conversation"),
    ({"conversation": {"id": "\x00"}}, openai.NotFoundError, "conversation"),
    ({"conversation": {}}, openai.BadRequestError, "conversation.id"),
    ({"conversation": "a", "previous_response_id": "b"}, openai.NotFoundError, "conversation"),
    ({"conversation": "a", "previous_response_id": "\x00"}, openai.NotFoundError, "conversation"),
    ({"input": [{"type": "item_reference", "id": "msg_1_0"}]}, openai.NotFoundError, "input[0].id"),
    ({"input": [{"type": "item_reference", "id": "\ud800"}]}, openai.NotFoundError, "input[0].id"),
    (
        {"input": [{"type": "item_reference", "id": f"msg_{index}_0"} for index in range(1_001)]},
        openai.NotFoundError,
        "input[0].id",
    ),
    (
        {"input": [*QUESTION, {"type": "compaction", "encrypted_content": "gr1_AAAA"}]},
        openai.BadRequestError,
        "input[1].encrypted_content",
    ),
]


async def test_what_is_not_there_is_refused_by_name(settings: Settings) -> None:
    async with serving(settings) as served:
        for fields, status, param in REFUSED:

            def create(client: openai.OpenAI, fields: dict[str, Any] = fields) -> object:
                body = json.dumps({"model": "qwen3", "input": "Hi", "store": False, **fields}).encode()
                headers = {"content-type": "application/json"}
                return client.post("/responses", cast_to=object, content=body, options={"headers": headers})

            with pytest.raises(status) as error:
                await ask(served, create)
            assert error.value.param == param, error.value.message


async def test_a_reference_stands_for_the_item_once(settings: Settings) -> None:
    async with serving(settings) as served:
        await keep(served, "1", FIRST[:1], [call("call_1")])
        asked = [said("user", "Read it"), {"type": "item_reference", "id": "msg_1_0"}, result("call_1")]
        written = [said("user", "Read it"), call("call_1"), result("call_1")]
        assert await tokens(served, asked, tools=[TOOL]) == await tokens(served, written, tools=[TOOL])
        again = [{"type": "item_reference", "id": "msg_1_0"}, result("call_1")]
        whole = await tokens(served, [FIRST[0], call("call_1"), result("call_1")], tools=[TOOL])
        assert await tokens(served, again, previous_response_id="resp_1", tools=[TOOL]) == whole


async def test_an_item_of_a_conversation_is_referred_to_from_anywhere(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await ask(served, lambda client: client.conversations.create(items=FIRST))
        listed = await ask(served, lambda client: client.conversations.items.list(made.id, order="asc").data)
        references = [{"type": "item_reference", "id": item.id} for item in listed]
        whole = await tokens(served, [*FIRST, *QUESTION])
        assert await tokens(served, [*references, *QUESTION]) == whole
        other = await ask(served, lambda client: client.conversations.create(items=cast("Any", references)))
        assert await tokens(served, QUESTION, conversation=other.id) == whole


async def test_a_call_is_answered_in_the_next_turn(settings: Settings) -> None:
    async with serving(settings) as served:
        first = await keep(served, "1", FIRST[:1], [call("call_1")])
        whole = await tokens(served, [FIRST[0], call("call_1"), result("call_1")], tools=[TOOL])
        answered = [result("call_1")]
        assert await tokens(served, answered, previous_response_id=first, tools=[TOOL]) == whole


async def test_a_result_or_an_approval_whose_call_was_deleted_is_left_out(settings: Settings) -> None:
    wanted = {"id": "mcpr_1", "server_label": "toy", "name": "add", "arguments": "{}"}
    given = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    async with serving(settings) as served:
        for pair in ([call("call_1"), result("call_1")], [{**wanted, "type": "mcp_approval_request"}, given]):
            items: Any = [FIRST[0], *pair]
            made = await fetch(served.server, "POST", "/v1/conversations", {"items": items})
            path = f"/v1/conversations/{made.json()['id']}/items"
            listed = (await fetch(served.server, "GET", f"{path}?order=asc")).json()["data"]
            assert (await fetch(served.server, "DELETE", f"{path}/{listed[1]['id']}")).status == 200
            whole = await tokens(served, [FIRST[0], *QUESTION])
            assert await tokens(served, QUESTION, conversation=made.json()["id"]) == whole


async def test_thoughts_of_stored_turns_are_thoughts_again(settings: Settings) -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm, the sea."}]}
    async with serving(settings) as served:
        turn = [thought, call("call_1")]
        first = await keep(served, "1", FIRST[:1], turn)
        whole = await tokens(served, [FIRST[0], *turn, result("call_1")], tools=[TOOL])
        without = await tokens(served, [FIRST[0], *turn[1:], result("call_1")], tools=[TOOL])
        answered = [result("call_1")]
        assert await tokens(served, answered, previous_response_id=first, tools=[TOOL]) == whole > without


@pytest.mark.deep
async def test_a_conversation_too_long_to_be_read_loses_its_beginning_unless_that_is_refused(
    settings: Settings,
) -> None:
    turns = [said(role, f"{index}: the sea") for index in range(6_000) for role in ("user", "assistant")]
    made = StoredConversation("conv_long", "", 1.0)
    async with serving(attrs.evolve(settings, max_context=1024)) as served:
        items = stored(turns, "long")
        await change(served.system.refs.store, lambda tables: tables.conversations.create(made, items))

        def answer(truncation: Any) -> Callable[[openai.OpenAI], Any]:
            return lambda client: client.responses.create(
                model="qwen3",
                input="Which?",
                conversation="conv_long",
                store=False,
                max_output_tokens=2,
                truncation=truncation,
            )

        kept = await ask(served, answer(None))
        assert kept.truncation == "auto"
        await ask(served, lambda client: client.conversations.items.create("conv_long", items=OTHER))
        later = await ask(served, answer(None))
        assert later.usage.input_tokens_details.cached_tokens > kept.usage.input_tokens // 2
        with pytest.raises(openai.BadRequestError) as error:
            await ask(served, answer("disabled"))
        assert error.value.code == "context_length_exceeded"


def large(parts: int, length: int) -> dict[str, Any]:
    texts = [{"type": "input_text", "text": "x" * length}] * parts
    return {"type": "message", "role": "user", "content": texts}


@pytest.mark.deep
async def test_references_count_as_often_as_they_are_made(settings: Settings) -> None:
    """A body of 160 kB once took 3 GB: it referenced one item of 1 MB 2,000 times."""
    async with serving(settings) as served:
        made = await ask(
            served, lambda client: client.conversations.create(items=[cast("Any", large(1_000, 960))])
        )
        [item] = await ask(served, lambda client: list(client.conversations.items.list(made.id)))
        references = [{"type": "item_reference", "id": item.id}] * 2_000
        for refer in (
            lambda client: client.responses.create(model="qwen3", input=references),
            lambda client: client.responses.input_tokens.count(model="qwen3", input=references),
        ):
            with pytest.raises(openai.APIStatusError) as refused:
                await ask(served, refer)
            assert refused.value.status_code == 413
            assert "counted once for each reference" in str(refused.value)


def test_an_item_that_several_refer_to_is_decoded_once() -> None:
    [item] = stored([large(10, 10)], "a")
    references = structure_items([{"type": "item_reference", "id": item.id}] * 5)
    resolved = resolve_references(references, frozenset(), {item.id: item}, lambda: None)
    assert len(resolved) == 5
    assert {id(each) for each in resolved} == {id(resolved[0])}
    assert isinstance(resolved[0].param, MessageItem)


async def test_reading_a_history_ends_when_its_client_has_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"model": "qwen3", "input": "Which?", "conversation": "conv_long"}'
    decoded: list[str] = []
    ended = trio.Event()
    async with serving(settings) as served:
        made, items = StoredConversation("conv_long", "", 1.0), stored(FIRST * 100, "long")
        await change(served.system.refs.store, lambda tables: tables.conversations.create(made, items))
        async with connected(served.server) as client:

            async def hang_up() -> None:
                try:
                    await client.stream.aclose()
                    await trio.sleep_forever()
                finally:
                    ended.set()

            def decode(stored_body: str) -> Item:
                decoded.append(stored_body)
                if len(decoded) == 3:
                    with contextlib.suppress(trio.Cancelled):
                        trio.from_thread.run(hang_up)
                    with contextlib.suppress(trio.Cancelled):
                        for _ in range(60_000):  # the cancellation may reach this thread late
                            trio.from_thread.check_cancelled()
                            time.sleep(0.001)
                return decode_item(stored_body)

            monkeypatch.setattr("greenroom.http.responses.history_reader.decode_item", decode)
            await client.request("POST", "/v1/responses/input_tokens", body)
            await ended.wait()
    assert len(decoded) == 3
