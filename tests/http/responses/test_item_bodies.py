"""Listed items in the shapes of the official SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.conversations import ConversationItemList
from pydantic import TypeAdapter

from greenroom.http.answering.explanation_body import signed_reasoning
from greenroom.http.responses.item_bodies import item_document, stored_items
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING

SENT: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello", "phase": "commentary"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes?"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"type": "reasoning", "id": "rs_client", "summary": [{"type": "summary_text", "text": "Hm"}]},
    {"type": "reasoning", "summary": "Hm"},
    {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path": "a"}'},
    {"type": "function_call", "call_id": "call_2", "name": "read", "arguments": {"path": "b"}},
    {"type": "function_call_output", "call_id": "call_1", "output": "text", "status": None},
    {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": "***"},
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": "ok"},
    {"type": "compaction", "encrypted_content": "gr1_A"},
)


def test_what_was_sent_is_listed_as_the_sdk_knows_it() -> None:
    stored = stored_items(SENT, lambda prefix, index: f"{prefix}_{index}")
    listed = {
        "object": "list",
        "data": [json.loads(item.body) for item in stored],
        "first_id": stored[0].id,
        "last_id": stored[-1].id,
        "has_more": False,
    }
    page = TypeAdapter(ConversationItemList).validate_python(listed, strict=True)
    assert [item.id for item in page.data] == [item.id for item in stored]
    assert [item.id.split("_")[0] for item in stored] == (
        ["msg", "msg", "msg", "msg", "msg", "rs", "rs", "fc", "fc", "fco", "ctc", "ctco", "cmp"]
    )
    assert page.data[0].model_dump(exclude_none=True) == {
        "id": "msg_0",
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Hi"}],
    }
    assert page.data[1].content[0].type == "output_text"  # type: ignore[union-attr, index]
    assert page.data[8].arguments == '{"path": "b"}'  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "thought",
    [
        {"summary": "Hm"},
        {"summary": [], "content": "Hm"},
        {"content": [{"type": "reasoning_text", "text": "Hm"}]},
    ],
)
def test_a_thought_in_any_form_is_listed_with_what_gives_it_back(thought: dict[str, Any]) -> None:
    [stored] = stored_items([{"type": "reasoning", **thought}], lambda prefix, index: prefix)
    listed = json.loads(item_document(stored, [ENCRYPTED_REASONING]))
    assert signed_reasoning("", listed["encrypted_content"]) == "Hm"


@pytest.mark.parametrize("item", [{"role": "user", "content": "\ud800"}, {"role": "user", "content": "\x00"}])
def test_what_is_no_text_elsewhere_is_kept(item: dict[str, Any]) -> None:
    [stored] = stored_items([item], lambda prefix, index: prefix)
    assert stored.body.isascii()
    assert json.loads(stored.body)["content"][0]["text"] == item["content"]
