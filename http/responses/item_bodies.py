"""The stored and listed form of items: complete members and an id for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, get_args

from quart import Response
from werkzeug.datastructures import MultiDict

from greenroom.http.answering.explanation_body import sign
from greenroom.http.answering.http_responses import list_response
from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid
from greenroom.schemas.stored import ItemPage, StoredItem
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING, Includable
from greenroom.schemas.wire.wire import WireError, one_of

PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
"""Prefixes of items' ids, by type; others have `item`."""

STATUSES = ("in_progress", "completed", "incomplete")
WITHOUT_STATUS = ("compaction", "additional_tools")


def stored_items(items: Sequence[JsonObject], name: Callable[[str, int], str]) -> tuple[StoredItem, ...]:
    """Return items in their stored form. `items`: well-formed items of a client, without references; `name`:
    function from a prefix (`msg`) and the index of the item to an id.
    """
    stored = []
    for index, item in enumerate(items):
        body = item_body(item)
        body["id"] = name(PREFIXES.get(body["type"], "item"), index)
        stored.append(StoredItem(body["id"], json.dumps(body)))
    return tuple(stored)


def item_body(item: JsonObject) -> dict[str, Any]:
    """Return an item with all members that OpenAI's clients expect of a stored one, except for its id."""
    kind = item.get("type") or "message"
    body = {"id": "", **item, "type": "compaction" if kind == "compaction_summary" else kind}
    if kind not in WITHOUT_STATUS and body.get("status") not in STATUSES:
        body["status"] = "completed"
    match kind:
        case "message":
            body["content"] = _parts(item.get("content"), item.get("role") == "assistant")
        case "reasoning":
            body["summary"] = _typed(item.get("summary") or [], "summary_text")
            if item.get("content"):
                body["content"] = _typed(item["content"], "reasoning_text")
        case "function_call" if not isinstance(item.get("arguments"), str):
            body["arguments"] = json.dumps(item.get("arguments") or {})
    return body


def _parts(content: Any, from_assistant: bool) -> list[dict[str, Any]]:
    content = _typed(content, "output_text" if from_assistant else "input_text")
    return [_part(part) for part in content or ()]


def _typed(content: Any, kind: str) -> Any:
    """Return content as parts; a string becomes one of that type."""
    return [{"type": kind, "text": content}] if isinstance(content, str) else content


def _part(part: JsonObject) -> dict[str, Any]:
    if part.get("type") != "output_text":
        return dict(part)
    return {**part, "annotations": part.get("annotations") or [], "logprobs": part.get("logprobs") or []}


def answered_call(item: JsonObject) -> str | None:
    """Return the id of the call whose result, or whose approval, an item is; None if it is neither."""
    kind = item.get("type")
    if kind == "mcp_approval_response":
        return str(item.get("approval_request_id"))
    return item.get("call_id") if isinstance(kind, str) and kind.endswith("_output") else None


def encrypt_reasoning(item: JsonObject) -> JsonObject:
    """Return the item; a reasoning item gets the `encrypted_content` with which a client sends it back."""
    if item["type"] != "reasoning" or item.get("encrypted_content") is not None:
        return item
    # An item that was stored before may have a string.
    parts = _typed(item.get("content") or item["summary"], "summary_text")
    reasoning = "\n\n".join(str(part.get("text") or "") for part in parts)
    return {**item, "encrypted_content": sign(reasoning, hidden=True)}


def item_document(item: StoredItem, included: Sequence[str] = ()) -> bytes:
    """Return an item as JSON."""
    if ENCRYPTED_REASONING not in included or '"reasoning"' not in item.body:
        return item.body.encode()
    return json.dumps(encrypt_reasoning(json.loads(item.body))).encode()


async def item_page(answers: AnswerAccount, page: ItemPage, included: Sequence[str] = ()) -> Response:
    """Return the response for a page of items, in OpenAI's format. Raises ProblemError: 503 if unsent
    responses use up the memory budget.
    """
    return await list_response(
        answers,
        lambda: [item_document(item, included) for item in page.items],
        sum(len(item.body) for item in page.items),
        [item.id for item in page.items],
        page.has_more,
    )


def check_included(query: MultiDict[str, str]) -> list[str]:
    """Return the values of `include`, all known to the API. Raises ProblemError: 400 that names an unknown
    value.
    """
    included = [*query.getlist("include"), *query.getlist("include[]")]
    for name in included:
        try:
            one_of(get_args(Includable), name)
        except WireError as error:
            raise invalid(f"`include` {error}.", "include") from None
    return included
