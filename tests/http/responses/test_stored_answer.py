"""Streams read again: with the options of their request, unless the reader overrides them."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from greenroom.http.responses.response_object import ResponseEcho
from greenroom.http.responses.stored_answer import StoredQuery, stream_of
from greenroom.schemas.events.events import Finished
from greenroom.schemas.protocols.responses_protocol import RunEnded
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredResponse
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING
from greenroom.tests.http.responses.test_background_responses import events_of
from greenroom.tests.http.responses.test_response_stream import ANSWER, echo, whole_of
from greenroom.tests.http.responses.test_stored_responses import body
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.clients.response_events import read_events
from greenroom.tests.support.servers.http_servers import serving


@pytest.mark.parametrize("created", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_thoughts_are_the_same_in_every_event_that_has_them(created: bool, asked: bool) -> None:
    include = [ENCRYPTED_REASONING] if created else []
    made = ResponseEcho({**echo().members, "include": include}, encrypts_reasoning=created)
    whole = whole_of(ANSWER, made)
    begun = json.dumps({**whole, "status": "in_progress", "output": []})
    running = StoredResponse("resp_ab", "", "tiny", "in_progress", 1_000, begun, background=True)
    ended = attrs.evolve(running, status="completed", body=json.dumps(whole), events="[]")
    stream = stream_of(running, StoredQuery(stream=True, starting_after=-1, encrypted=asked))
    entries = [*(event for event in ANSWER if not isinstance(event, Finished)), RunEnded(ended)]
    events = read_events(stream.opening() + b"".join(map(stream.event, entries)))
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    assert [("encrypted_content" in item) for item in items if item["type"] == "reasoning"] == [
        created or asked
    ]


@pytest.mark.parametrize("created", [False, True])
async def test_pieces_are_padded_again_unless_the_reader_says_otherwise(
    settings: Settings, created: bool
) -> None:
    asked = body(background=True, stream=True)
    if created:
        asked["stream_options"] = {"include_obfuscation": True}
    async with serving(settings) as served:
        first = await ask(
            served, lambda client: [event.to_dict() for event in client.responses.create(**asked)]
        )
        ident = first[0]["response"]["id"]
        for query, padded in (
            ("", created),
            ("&include_obfuscation=true", True),
            ("&include_obfuscation=false", False),
        ):
            again = read_events(await events_of(served, ident, query))
            deltas = [event for event in again if event["type"].endswith(".delta")]
            assert {"obfuscation" in event for event in deltas} == {padded}, query
            assert [_unpadded(event) for event in again] == [_unpadded(event) for event in first]


def _unpadded(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "obfuscation"}
