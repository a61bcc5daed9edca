"""Requests that a model generates for, until their engine's last event."""

from __future__ import annotations

from typing import Any

import structlog

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.model.running_requests import RunningRequest, RunningRequests
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, Timing, Usage
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.problems import internal_error
from greenroom.schemas.protocols.model_protocol import Generate
from greenroom.tests.support.actors.actor_systems import chat


def started(choices: int) -> tuple[RunningRequests, RunningRequest, ReplyStream[Any]]:
    prepared = PreparedPrompt((1, 2, 3), frozenset(), 9, GenerationParameters(n=choices))
    requests, replies = RunningRequests(), ReplyStream[Any]()
    return requests, requests.add(Generate(chat("m"), queued=2.0), prepared, replies.sender), replies


def end_line(running: RunningRequest) -> Any:
    with structlog.testing.capture_logs() as lines:
        running.log_end(structlog.get_logger())
    (line,) = lines
    return line


async def test_the_usage_of_choices_adds_up_but_for_the_prompt_that_they_share() -> None:
    requests, running, _ = started(choices=3)
    usages = (Usage(3, 5, 1, 2), Usage(3, 6, 1, 0, 4, 3), Usage(3, 1, 1))
    finished = [Finished("stop", usage, Timing(0.5, 1.0, 2.0), index=i) for i, usage in enumerate(usages)]
    assert requests.deliver([("r", end) for end in finished[:2]]) == []
    assert requests.deliver([("r", finished[2])]) == [running]
    assert running.usage == Usage(3, 12, 1, 2, 4, 3)
    line = end_line(running)
    assert (line["generated_tokens"], line["cached_tokens"], line["queued_seconds"]) == (12, 1, 2.5)


async def test_a_request_that_fails_keeps_what_its_choices_used() -> None:
    requests, running, replies = started(choices=2)
    failed = Failed(internal_error(), Usage(3, 4), Timing(0.0, 1.0, 2.0))
    events: list[tuple[str, InferenceEvent]] = [("r", Finished("stop", Usage(3, 5))), ("r", failed)]
    assert requests.deliver(events) == [running]
    assert [type(event) async for event in replies] == [Finished, Failed]
    line = end_line(running)
    assert (line["problem"], line["generated_tokens"], line["decode_seconds"]) == ("internal_error", 9, 2.0)
    assert requests.all() == []


async def test_ids_that_clients_repeat_or_make_up_stay_apart() -> None:
    requests, _, replies = started(choices=1)
    prepared = PreparedPrompt((1,), frozenset(), 9)
    ids = [
        requests.add(Generate(chat("m", name)), prepared, replies.sender) for name in ("r#1", "r", "r", "r#1")
    ]
    assert len({running.request.id for running in ids} | {"r"}) == 5
    assert [running.request_id for running in ids] == ["r#1", "r", "r", "r#1"]


async def test_a_request_whose_engine_is_gone_is_logged_with_what_is_known() -> None:
    requests, running, _ = started(choices=1)
    assert requests.cancel(running)
    assert not requests.cancel(running)
    assert requests.all() == [running]
    requests.remove(running)
    line = end_line(running)
    assert (line["reason"], line["prompt_tokens"], line["queued_seconds"]) == ("cancelled", 3, 2.0)
    assert "generated_tokens" not in line
