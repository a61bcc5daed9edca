"""Slightly invalid requests to every endpoint of answers and of stored records."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import attrs

from greenroom.tests.support.spoiled.spoiled_bodies import RESPONSE, Json, count, spoil, spoiled_body

ITEMS: Json = {"items": RESPONSE["input"]}
METADATA: Json = {"metadata": {"topic": "sea"}}
PAGE = {"limit": "2", "order": "asc", "after": "{item}"}
STORED: tuple[tuple[str, str, Json], ...] = (
    ("GET", "/v1/chat/completions", {**PAGE, "model": "qwen3", "metadata[topic]": "sea"}),
    ("GET", "/v1/chat/completions/{completion}", {}),
    ("POST", "/v1/chat/completions/{completion}", METADATA),
    ("GET", "/v1/chat/completions/{completion}/messages", PAGE),
    ("DELETE", "/v1/chat/completions/chatcmpl-none", {}),
    ("POST", "/v1/conversations", {**ITEMS, **METADATA}),
    ("GET", "/v1/conversations/{conversation}", {}),
    ("POST", "/v1/conversations/{conversation}", METADATA),
    ("DELETE", "/v1/conversations/conv_none", {}),
    ("POST", "/v1/conversations/{conversation}/items", ITEMS),
    ("GET", "/v1/conversations/{conversation}/items", {**PAGE, "include": "reasoning.encrypted_content"}),
    ("GET", "/v1/conversations/{conversation}/items/{item}", {}),
    ("DELETE", "/v1/conversations/{conversation}/items/msg_none", {}),
    ("POST", "/v1/responses", {"input": "Hi", "conversation": "{conversation}", "max_output_tokens": 8}),
    ("POST", "/v1/responses", {"input": "Hi", "previous_response_id": "{response}", "max_output_tokens": 8}),
    ("POST", "/v1/responses/compact", {"input": RESPONSE["input"], "instructions": "Be brief"}),
    ("GET", "/v1/responses/{response}", {"stream": "true", "starting_after": "2"}),
    ("GET", "/v1/responses/{response}/input_items", PAGE),
    ("POST", "/v1/responses/{response}/cancel", {}),
    ("DELETE", "/v1/responses/resp_none", {}),
)
"""Methods, paths and bodies (or queries) of requests for stored records; `{…}` is replaced by an id."""

_ODD_TEXTS = ("", "0", "-1", "99999999999999999999", "a", "\ud83e", "🦊", "a" * 5_000, "desc", "null", "%00")


@attrs.frozen
class SpoiledRequest:
    """A spoiled request.

    Args:
        path: Path with query.
        body: JSON of a POST.
    """

    method: str
    path: str
    body: Any


def spoiled_request(random: Random, model: str, stored: Mapping[str, str]) -> SpoiledRequest:
    """Return a request in which one value is spoiled on average.

    Args:
        stored: Ids by type: `response`, `conversation`, `item`, `completion`.
    """
    if random.random() < 0.7:
        path, body = spoiled_body(random, model)
        return SpoiledRequest("POST", path, body)
    method, path, right = random.choice(STORED)
    ids = {kind: _spoiled_text(ident, random, 0.1) for kind, ident in stored.items()}
    path = _filled(path, {kind: quote(ident, errors="surrogatepass") for kind, ident in ids.items()})
    if method == "POST":
        body = {"model": model, **right} if path.startswith("/v1/responses") else dict(right)
        return SpoiledRequest(method, path, spoil(_filled(body, ids), random, 1 / count(body)))
    query = {name: _spoiled_text(_filled(value, ids), random, 0.25) for name, value in right.items()}
    query = {name: value for name, value in query.items() if random.random() < 0.7}
    escaped = urlencode(query, errors="surrogatepass")
    return SpoiledRequest(method, f"{path}?{escaped}", None)


def _spoiled_text(text: str, random: Random, rate: float) -> str:
    return random.choice(_ODD_TEXTS) if random.random() < rate else text


def _filled(value: Any, ids: Mapping[str, str]) -> Any:
    """Return a value with its placeholders replaced by ids."""
    if isinstance(value, str):
        for kind, ident in ids.items():
            value = value.replace("{" + kind + "}", ident)
        return value
    if isinstance(value, dict):
        return {name: _filled(item, ids) for name, item in value.items()}
    return [_filled(item, ids) for item in value] if isinstance(value, list) else value
