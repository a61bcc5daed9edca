"""State transitions of a run, tested without a model and without a store."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.responses.run import (
    HEARTBEAT,
    MAX_BACKGROUND_RUNS,
    NEWS_INTERVAL,
    TRANSITIONS,
    ImpossibleTransition,
    Run,
    Runs,
    check_step,
)
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    FinishReason,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    TextDelta,
    Usage,
)
from greenroom.schemas.events.result_events import ToolsListed
from greenroom.schemas.problems import ProblemError, draining, internal_error
from greenroom.schemas.protocols.responses_protocol import (
    Heartbeat,
    RunEnded,
    RunOutcome,
    RunStarted,
    StartRun,
)
from greenroom.schemas.stored import ResponseStatus, StoredResponse
from greenroom.tests.support.actors.actor_systems import chat

WAITING = QueueStatus("queued", 3, "qwen3")
BEGUN = (Admitted(9), PromptProgress(1, 9))
TEXT = TextDelta("The sea")


def write(outcome: RunOutcome) -> StoredResponse:
    return StoredResponse("resp_1", "", outcome.model or "", outcome.status, 1.0, "{}", outcome.ended)


def new_run(*events: InferenceEvent, background: bool = False) -> Run:
    run = Run(StartRun(chat("qwen3"), "resp_1", "", write, background=background))
    for event in events:
        run.take(event)
    return run


def finished(reason: FinishReason) -> Finished:
    return Finished(reason, Usage(9, 1))


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((*BEGUN, TEXT, finished("stop")), "completed"),
        ((*BEGUN, TEXT, finished("tool_calls")), "completed"),
        ((*BEGUN, finished("stop")), "completed"),
        ((*BEGUN, TEXT, finished("length")), "incomplete"),
        ((*BEGUN, TEXT, Failed(internal_error())), "failed"),
        ((*BEGUN, TEXT), "cancelled"),
        ((Admitted(9), WAITING), "cancelled"),
    ],
)
async def test_a_run_ends_by_the_last_that_is_known_of_it(
    events: tuple[InferenceEvent, ...], status: str
) -> None:
    run = new_run(*events)
    assert run.refusal is None
    outcome = run.decide()
    assert outcome.status == status
    assert outcome.ended is not None
    assert [event for event in outcome.events if isinstance(event, TextDelta)] == [
        event for event in events if isinstance(event, TextDelta)
    ]


@pytest.mark.parametrize("events", [(), (Admitted(9),), (WAITING, Admitted(9))])
async def test_a_request_that_is_refused_is_not_stored(events: tuple[InferenceEvent, ...]) -> None:
    assert new_run(*events, Failed(draining())).refusal == draining()


async def test_a_request_that_is_given_up_before_it_is_known_to_fit_is_not_stored() -> None:
    refusal = new_run(WAITING).refusal
    assert refusal is not None
    assert refusal.code == "response_cancelled"


@pytest.mark.parametrize("events", [(Admitted(9),), BEGUN, (Admitted(9), ToolsListed("files"), TEXT)])
async def test_what_no_client_knows_yet_is_not_stored_either(events: tuple[InferenceEvent, ...]) -> None:
    refusal = new_run(*events, background=True).refusal
    assert refusal is not None
    assert refusal.code == "response_cancelled"
    assert new_run(*events, Failed(draining()), background=True).refusal == draining()


async def test_what_is_stored_already_is_stored_again_when_it_fails() -> None:
    run = new_run(WAITING, background=True)
    run.row = run.snapshot()
    run.take(Failed(draining()))
    assert run.refusal is None
    assert run.decide().status == "failed"


async def test_what_is_complete_is_not_cancelled_any_more() -> None:
    run = new_run(*BEGUN, TEXT, finished("stop"))
    run.cancel()
    run.fail(draining())
    assert run.decide().status == "completed"


async def test_it_waits_until_its_prompt_is_computed() -> None:
    run = new_run(WAITING, Admitted(9))
    assert run.snapshot().status == "queued"
    run.take(PromptProgress(1, 9))
    assert run.snapshot().status == "in_progress"
    assert run.log.entries() == [Admitted(9), RunStarted()]
    run.take(finished("stop"))
    run.decide()
    assert run.snapshot().status == "in_progress", "until it is stored"


async def test_what_cannot_be_stored_has_failed() -> None:
    for reason in ("stop", "length", "cancelled"):
        run = new_run(*BEGUN, TEXT, finished(reason))
        run.decide()
        outcome = run.fail_storing(internal_error())
        assert (outcome.status, outcome.problem) == ("failed", internal_error())
        assert TEXT in outcome.events


async def test_only_the_last_reader_of_a_run_in_the_foreground_ends_it() -> None:
    foreground, background = new_run(*BEGUN), new_run(*BEGUN, background=True)
    for run in (foreground, background):
        run.readers = 2
        run.leave()
        assert not run.scope.cancel_called
        run.leave()
    assert foreground.scope.cancel_called
    assert not background.scope.cancel_called


async def test_silence_is_shown_in_the_log_for_all_alike(mock_clock: MockClock) -> None:
    run = new_run(*BEGUN)
    run.show_life()
    mock_clock.jump(HEARTBEAT)
    run.show_life()
    run.show_life()
    run.take(TEXT)
    mock_clock.jump(HEARTBEAT)
    run.take(finished("stop"))
    run.show_life()
    alive = Heartbeat(PromptProgress(1, 9))
    assert run.log.entries() == [Admitted(9), RunStarted(), alive, TEXT], "and none while it is stored"


async def test_readers_learn_soon_that_a_run_waits_for_something_else(mock_clock: MockClock) -> None:
    run = new_run(WAITING, Admitted(9))
    moved, loading = attrs.evolve(WAITING, position=2), attrs.evolve(WAITING, status="loading")
    for news in (WAITING, WAITING, moved, loading, PromptProgress(1, 9)):
        run.take(news)
        mock_clock.jump(NEWS_INTERVAL)
        run.show_life()
    first, second, started, last = run.log.entries()[1:]
    assert (first, second) == (Heartbeat(WAITING), Heartbeat(loading))
    assert (started, last) == (RunStarted(), Heartbeat(PromptProgress(1, 9)))
    run.take(TEXT)
    mock_clock.jump(HEARTBEAT)
    run.show_life()
    assert run.log.entries()[-1] == Heartbeat()


async def test_its_end_is_told_once_to_all_who_wait_and_frees_its_conversation() -> None:
    released = trio.Event()

    class Lock:
        def take(self) -> Lock:
            return self

        def close(self) -> None:
            released.set()

    run = Run(StartRun(chat("qwen3"), "resp_1", "", write, lock=Lock()))
    told: list[object] = []
    run.when_ended(told.append)
    end = RunEnded(write(RunOutcome("completed")))
    run.end(end)
    assert told == [end]
    run.when_ended(told.append)  # by a message that arrived while the end was being stored
    assert told == [end, end]
    assert released.is_set()
    assert run.log.ended


def test_states_follow_the_table_only() -> None:
    status: ResponseStatus = "queued"
    for step in ("in_progress", "completed", "failed"):
        status = check_step(status, step)
    with pytest.raises(ImpossibleTransition, match="failed to in_progress"):
        check_step(status, "in_progress")
    with pytest.raises(ImpossibleTransition, match="queued to completed"):
        check_step("queued", "completed")


def test_the_page_for_operators_shows_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "notes" / "actors.md").read_text(encoding="utf-8")
    section = page.partition("## The life of a response\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    shown = {row[0].strip("`"): {name.strip(" `") for name in row[2].split(",")} - {""} for row in rows}
    assert shown == TRANSITIONS


def run(response: str, owner: str = "", background: bool = False, client: str = "") -> Run:
    asked = attrs.evolve(chat("qwen3"), client=client)
    return Run(StartRun(asked, response, owner, write, background=background))


async def test_a_run_is_found_by_its_owner_alone() -> None:
    runs = Runs()
    mine = run("resp_1", "me")
    runs.add(mine)
    assert runs.find("me", "resp_1") is mine
    assert runs.find("you", "resp_1") is None
    runs.remove(mine)
    assert runs.find("me", "resp_1") is None


def fill(runs: Runs, client: str) -> list[Run]:
    """Start background runs of a client until one is refused, and return them."""
    begun: list[Run] = []
    for _ in range(MAX_BACKGROUND_RUNS + 1):
        begun.append(run(f"resp_{len(runs)}_{client}", background=True, client=client))
        try:
            runs.add(begun[-1])
        except ProblemError:
            break
    with pytest.raises(ProblemError) as refused:
        runs.add(begun.pop())
    assert (refused.value.problem.status, refused.value.problem.param) == (503, "background")
    return begun


async def test_one_client_leaves_background_runs_to_others_and_gets_no_more_beside_them() -> None:
    runs = Runs()
    mine, yours, theirs = fill(runs, "10.0.0.1#a"), fill(runs, "10.0.0.2"), fill(runs, "key_3")
    assert (len(mine), len(yours), len(theirs)) == (56, 4, 2)
    assert not fill(runs, "10.0.0.1#another")
    runs.add(run("resp_in_front", client="10.0.0.1"))
    for each in mine[:25]:
        runs.remove(each)
    assert len(fill(runs, "key_3")) == 13
    assert not fill(runs, "10.0.0.1")


async def test_a_conversation_has_one_turn_at_a_time() -> None:
    runs = Runs()
    lock = runs.lock("me", "conv_1")
    with pytest.raises(ProblemError) as refused:
        runs.lock("me", "conv_1")
    assert (refused.value.problem.status, refused.value.problem.code) == (409, "conversation_in_use")
    runs.lock("you", "conv_1")
    runs.lock("me", "conv_2")
    lock.close()
    runs.lock("me", "conv_1")
    lock.close()
    with pytest.raises(ProblemError):
        runs.lock("me", "conv_1")


async def test_a_run_keeps_the_conversation_that_its_request_locked() -> None:
    runs = Runs()
    with_request = runs.lock("me", "conv_1")
    turn = Run(StartRun(chat("qwen3"), "resp_1", "me", write, lock=with_request))
    with_request.close()
    with pytest.raises(ProblemError):
        runs.lock("me", "conv_1")
    turn.release()
    runs.lock("me", "conv_1")
