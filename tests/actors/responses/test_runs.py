"""The registry of runs, and the locks of conversations."""

from __future__ import annotations

import pytest

from greenroom.actors.responses.run import Run
from greenroom.actors.responses.runs import MAX_BACKGROUND_RUNS, Runs
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.responses_protocol import StartRun
from greenroom.tests.actors.responses.test_run import write
from greenroom.tests.support.actors.actor_systems import chat


def run(response: str, owner: str = "", background: bool = False) -> Run:
    return Run(StartRun(chat("qwen3"), response, owner, write, background=background))


async def test_a_run_is_found_by_its_owner_alone() -> None:
    runs = Runs()
    mine = run("resp_1", "me")
    runs.add(mine)
    assert runs.find("me", "resp_1") is mine
    assert runs.find("you", "resp_1") is None
    runs.remove(mine)
    assert runs.find("me", "resp_1") is None


async def test_too_many_in_the_background_are_refused_by_name_and_others_are_not() -> None:
    runs = Runs()
    first = run("resp_first", background=True)
    runs.add(first)
    for number in range(MAX_BACKGROUND_RUNS - 1):
        runs.add(run(f"resp_{number}", background=True))
    with pytest.raises(ProblemError) as refused:
        runs.add(run("resp_more", background=True))
    assert (refused.value.problem.status, refused.value.problem.param) == (503, "background")
    runs.add(run("resp_more"))
    runs.remove(first)
    runs.add(run("resp_again", background=True))


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
