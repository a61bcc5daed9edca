"""Compaction with the official client: its result, and the history that it replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import openai
import pytest
from openai.types.responses import CompactedResponse

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.responses.history.test_history import (
    FIRST,
    QUESTION,
    SECOND,
    TOOL,
    call,
    keep,
    result,
    said,
    tokens,
)
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

RULES = said("developer", "Answer in French.")


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return attrs.evolve(settings, db=str(tmp_path / "store.db"), max_context=1024)


async def compacted(served: Served, **fields: Any) -> CompactedResponse:
    return await ask(served, lambda client: client.responses.compact(model="qwen3", **fields))


def item_of(answer: CompactedResponse) -> Any:
    [item] = answer.output
    assert item.type == "compaction"
    assert "French" not in item.encrypted_content
    return item.model_dump(exclude_none=True)


@pytest.mark.deep
async def test_a_conversation_becomes_one_sealed_item(settings: Settings) -> None:
    async with serving(settings) as served:
        answer = await compacted(served, input=[RULES, *FIRST, *SECOND])
        assert answer.object == "response.compaction"
        assert answer.usage.output_tokens > 0
        item = item_of(answer)
        alone = await tokens(served, [RULES, *FIRST, *SECOND, *QUESTION])
    # The key is stored, so it survives a restart.
    async with serving(settings) as served:
        whole = await tokens(served, [item, *QUESTION])
        assert whole > alone
        # The item replaces all items before it, and keeps the instructions, so they are not repeated.
        assert await tokens(served, [RULES, said("user", "sea " * 200), item, *QUESTION]) == whole
        assert await tokens(served, [said("developer", "Be brief."), item, *QUESTION]) > whole
        answer = await compacted(served, input=[item, *QUESTION])
        again = item_of(answer)
        assert answer.usage.input_tokens > whole
        assert again != item


async def test_what_is_stored_is_compacted_and_a_compaction_is_stored(settings: Settings) -> None:
    async with serving(settings) as served:
        first = await keep(served, "1", FIRST[:1], FIRST[1:])
        second = await keep(served, "2", SECOND[:1], SECOND[1:], parent=first)
        item = item_of(await compacted(served, previous_response_id=second))
        whole = await tokens(served, [item, *QUESTION])
        third = await keep(served, "3", [item], [said("assistant", "Yes.")])
        assert await tokens(served, QUESTION, previous_response_id=third) == await tokens(
            served, [item, said("assistant", "Yes."), *QUESTION]
        )
        made = await ask(served, lambda client: client.conversations.create(items=[*FIRST, item]))
        assert await tokens(served, QUESTION, conversation=made.id) == whole


async def test_a_call_that_waits_for_its_result_is_kept(settings: Settings) -> None:
    waiting = [
        *FIRST,
        said("user", "Read it"),
        call("call_1"),
        result("call_1", "x" * 20_000),
        call("call_2"),
    ]
    async with serving(settings) as served:
        item = item_of(await compacted(served, input=waiting))
        assert await tokens(served, [item, result("call_2")], tools=[TOOL]) < 1_024


@pytest.mark.deep
async def test_more_than_the_context_is_compacted(settings: Settings) -> None:
    long = [said(role, "the sea " * 50) for _ in range(40) for role in ("user", "assistant")]
    async with serving(settings) as served:
        answer = await compacted(served, input=long)
        assert answer.usage.input_tokens < 1_024
        assert answer.usage.output_tokens > 100
        assert answer.to_dict()["dropped_messages"]
        with pytest.raises(openai.BadRequestError) as error:
            await compacted(served, input="sea " * 3_000)
        assert error.value.code == "context_length_exceeded"


@pytest.mark.deep
async def test_a_compaction_that_was_changed_is_refused_by_name(settings: Settings) -> None:
    async with serving(settings) as served:
        item = item_of(await compacted(served, input=FIRST))
        sealed = item["encrypted_content"]
        for changed in (sealed[:-8], sealed[:20] + "AAAA" + sealed[24:], "", "gAAAAABn"):
            with pytest.raises(openai.BadRequestError) as error:
                await tokens(served, [*QUESTION, {**item, "encrypted_content": changed}])
            assert error.value.param == "input[1].encrypted_content"
            assert error.value.code == "invalid_encrypted_content"
        for name, value in (
            ("service_tier", "priority"),
            ("prompt", {"id": "p"}),
            ("context_management", [{"type": "compaction"}]),
            ("personality", "friendly"),
            ("image.context_compression", "enabled"),
            ("prompt_cache_key", 5),
            ("prompt_cache_retention", "1h"),
        ):
            outer, _, inner = name.partition(".")
            with pytest.raises(openai.BadRequestError) as error:
                await compacted(served, input=FIRST, extra_body={outer: {inner: value} if inner else value})
            assert error.value.param == name
        for fields, refusal in (
            ({}, openai.BadRequestError),
            ({"previous_response_id": "a", "conversation": "b"}, openai.NotFoundError),
        ):
            with pytest.raises(refusal):
                await ask(served, lambda client: client.responses.compact(model="qwen3", extra_body=fields))  # noqa: B023


async def test_a_model_must_be_named(settings: Settings) -> None:
    async with serving(settings) as served:
        refused = await fetch(served.server, "POST", "/v1/responses/compact", {"input": "Hello"})
        assert (refused.status, refused.json()["error"]["param"]) == (400, "model")


@pytest.mark.deep
async def test_the_operators_prompt_holds_behind_a_compaction(settings: Settings, tmp_path: Path) -> None:
    operators = "seven eight nine"
    (tmp_path / "prompt").write_text(operators)
    async with serving(attrs.evolve(settings, system_prompt=str(tmp_path / "prompt"))) as served:
        item = item_of(await compacted(served, input=[*FIRST]))
        told = await tokens(served, [item, *QUESTION])
        assert told == await tokens(served, [item, *QUESTION], instructions=operators)
        # If the client has its own instructions, the operator's prompt is left out.
        item = item_of(await compacted(served, input=[RULES, *FIRST]))
        assert await tokens(served, [item, *QUESTION]) < await tokens(
            served, [item, *QUESTION], instructions=operators
        )
