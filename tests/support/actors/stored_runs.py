"""Helpers that start and read runs of the responses actor, as a route does."""

from __future__ import annotations

import json
from typing import Any

import trio

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.responses.event_log import Subscribed, Subscription
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.responses_protocol import (
    Lock,
    Retrieve,
    RunEnded,
    RunEvent,
    RunOutcome,
    RunStarted,
    StartRun,
    Subscribe,
)
from greenroom.schemas.stored import UNFINISHED, StoredItem, StoredResponse
from greenroom.tests.support.actors.actor_systems import chat

OWNER = "somebody"


def start(
    response: str,
    *,
    model: str = "qwen3",
    background: bool = False,
    lock: Lock | None = None,
    conversation: str | None = None,
    parent: str | None = None,
    **overrides: Any,
) -> StartRun:
    """Return the message that starts a greedy run, whose stored form has its text as its only output item."""

    def write(outcome: RunOutcome) -> StoredResponse:
        text = "".join(event.text for event in outcome.events if isinstance(event, TextDelta))
        raw = [event.raw for event in outcome.events if isinstance(event, Finished)]
        problem = outcome.problem.code if outcome.problem is not None else None
        item = StoredItem(f"msg_{response}", json.dumps({"type": "message", "text": text}))
        return StoredResponse(
            response,
            OWNER,
            outcome.model or model,
            outcome.status,
            1.0,
            json.dumps({"id": response, "status": outcome.status, "text": text, "error": problem}),
            outcome.ended,
            background,
            conversation,
            parent,
            (StoredItem(f"in_{response}", json.dumps({"type": "message", "text": "Hello there"})),),
            () if outcome.status in UNFINISHED else (item,),
            raw[0] if raw else text,
        )

    return StartRun(chat(model, response, **overrides), response, OWNER, write, background, 60.0, lock)


async def subscribe(refs: ActorRefs, message: StartRun | Subscribe) -> Subscription:
    """Return a subscription to a run's log; fail on a refusal."""
    answer = await refs.responses.ask(message, Subscribed)
    assert isinstance(answer, Subscribed), answer
    return answer.subscription


async def read(subscription: Subscription) -> list[RunEvent]:
    """Return the events of a log to its end."""
    events: list[RunEvent] = []
    try:
        while True:
            events += [await subscription.receive(), *subscription.receive_ready()]
    except trio.EndOfChannel:
        subscription.close()
        return events


async def read_until_text(subscription: Subscription) -> list[RunEvent]:
    """Return the events of a log up to its first text."""
    events: list[RunEvent] = []
    while not any(isinstance(event, TextDelta) for event in events):
        events.append(await subscription.receive())
        assert isinstance(events[-1], TextDelta | RunStarted | Admitted), events
    return events


async def run(refs: ActorRefs, message: StartRun) -> StoredResponse:
    """Start a run without a reader; return its stored response."""
    subscription = await subscribe(refs, message)
    end = await subscription.wait_ended()
    subscription.close()
    assert isinstance(end, RunEnded), end
    return end.response


async def retrieve(refs: ActorRefs, response: str, owner: str = OWNER) -> StoredResponse | Problem:
    """Return a response as its owner, or another one, retrieves it."""
    found = await refs.responses.ask(Retrieve(response, owner), StoredResponse)
    return found.problem if isinstance(found, Failed) else found


async def wait_stored(refs: ActorRefs, response: str) -> StoredResponse:
    """Wait for a response to end, and return it."""
    with trio.fail_after(300):
        while True:
            found = await retrieve(refs, response)
            if isinstance(found, StoredResponse) and found.status not in UNFINISHED:
                return found
            await trio.sleep(0.005)


def text_of(events: list[RunEvent]) -> str:
    """Return the text of events."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))
