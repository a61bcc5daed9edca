"""The registry of runs, and the locks of conversations."""

from __future__ import annotations

import attrs
import pytest

from greenroom.actors.responses.run import MAX_BACKGROUND_RUNS, Run, Runs
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.responses_protocol import StartRun
from greenroom.tests.actors.responses.test_run import write
from greenroom.tests.support.actors.actor_systems import chat


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
