"""The pool's plain decisions: who is loaded, who waits, who is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.model.lifecycle import ImpossibleTransition, Lifecycle
from greenroom.actors.pool.eviction_policy import Plan, Resident, plan
from greenroom.actors.pool.restart_intensity import RestartIntensity
from greenroom.actors.pool.tickets import Ticket, TicketQueue
from greenroom.actors.pool.waiting_time import WaitingTime
from greenroom.schemas.lifecycle import TRANSITIONS, ModelState
from greenroom.schemas.model_key import ModelKey

A, B, C = (ModelKey(name) for name in "abc")
IDLE, WAITING, LOADING, READY, UNLOADING, ERROR = ModelState


def test_what_is_wanted_is_loaded_while_there_is_room() -> None:
    models = [Resident(A, READY, leases=1), Resident(B, IDLE, waiting=1), Resident(C, IDLE)]
    assert plan(models, 2) == Plan(load=(B,))


def test_the_longest_wait_is_served_first() -> None:
    models = [
        Resident(A, WAITING, waiting=1, waiting_since=5.0),
        Resident(B, WAITING, waiting=9, waiting_since=3.0),
    ]
    assert plan(models, 1) == Plan(load=(B,), wait=(A,))


def test_the_least_recently_used_idle_model_makes_room() -> None:
    models = [
        Resident(A, READY, last_used=2.0),
        Resident(B, READY, last_used=1.0),
        Resident(C, IDLE, waiting=1),
    ]
    assert plan(models, 2) == Plan(wait=(C,), unload=(B,))


def test_room_that_is_being_made_is_not_made_twice() -> None:
    models = [Resident(A, READY), Resident(B, UNLOADING), Resident(C, WAITING, waiting=1)]
    assert plan(models, 2) == Plan(wait=(C,))


def test_a_model_that_is_held_is_closed_and_not_unloaded() -> None:
    models = [
        Resident(A, READY, leases=3, waiting=2, last_used=1.0),
        Resident(B, READY, leases=1, last_used=2.0),
        Resident(C, WAITING, waiting=1),
    ]
    assert plan(models, 2) == Plan(wait=(C,), closed=frozenset({A}))


def test_a_turn_is_at_least_as_long_as_the_load_was() -> None:
    held = Resident(A, READY, leases=1, turn_left=0.5)
    assert plan([held, Resident(B, WAITING, waiting=1)], 1) == Plan(wait=(B,))


def test_a_load_that_nobody_waits_for_any_more_gives_way() -> None:
    assert plan([Resident(A, LOADING), Resident(B, WAITING, waiting=1)], 1) == Plan(wait=(B,), unload=(A,))
    assert plan([Resident(A, LOADING, waiting=1), Resident(B, WAITING, waiting=1)], 1) == Plan(wait=(B,))


def test_a_model_that_failed_is_loaded_again_on_demand() -> None:
    assert plan([Resident(A, ERROR, waiting=1)], 1) == Plan(load=(A,))


def test_a_hung_model_keeps_its_room() -> None:
    assert plan([Resident(A, ERROR, waiting=1, hung=True), Resident(B, IDLE, waiting=1)], 1) == Plan(
        wait=(B,)
    )


residents = st.lists(
    st.builds(
        Resident,
        st.builds(ModelKey, st.sampled_from("abcdef")),
        st.sampled_from(ModelState),
        leases=st.integers(0, 3),
        waiting=st.integers(0, 3),
        last_used=st.floats(0, 10),
        waiting_since=st.floats(0, 10),
        turn_left=st.floats(-1, 1),
        hung=st.booleans(),
    ),
    unique_by=lambda resident: resident.key,
)


@given(residents, st.integers(1, 4))
def test_whatever_the_situation_no_hold_is_broken_and_no_room_overfilled(
    models: list[Resident], max_models: int
) -> None:
    decided = plan(models, max_models)
    by_key = {model.key: model for model in models}
    in_memory = sum(model.hung or model.state in (LOADING, READY, UNLOADING) for model in models)
    assert len(decided.load) <= max(0, max_models - in_memory)
    assert all(by_key[key].leases == 0 for key in decided.unload)
    assert not decided.unload or decided.wait
    assert all(READY in TRANSITIONS[LOADING] and by_key[key].waiting for key in decided.load)
    assert all(UNLOADING in TRANSITIONS[by_key[key].state] for key in decided.unload)
    assert all(LOADING in TRANSITIONS[by_key[key].state] for key in decided.load)
    assert all(by_key[key].state is READY for key in decided.closed)


def test_states_follow_the_table_only() -> None:
    life = Lifecycle()
    for step in (WAITING, LOADING, READY, UNLOADING, IDLE):
        life.to(step)
    with pytest.raises(ImpossibleTransition, match="idle to ready"):
        life.to(READY)
    assert life.state is IDLE


def test_the_page_for_operators_shows_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "notes" / "actors.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    shown = {row[0].strip("`"): {name.strip(" `") for name in row[2].split(",")} for row in rows}
    assert shown == {str(state): set(map(str, after)) for state, after in TRANSITIONS.items()}


def ticket() -> tuple[Ticket, ReplyStream[object]]:
    replies: ReplyStream[object] = ReplyStream()
    return Ticket(replies.sender, "r"), replies


async def test_tickets_are_served_in_order_and_those_who_left_are_passed_over() -> None:
    queue = TicketQueue()
    (first, gone), (second, _), (third, _) = ticket(), ticket(), ticket()
    for each in (first, second, third):
        queue.add(each)
    gone.close()
    assert queue.next() is second
    assert queue.remove(third)
    assert not queue.remove(third)
    assert queue.next() is None


def test_a_model_that_keeps_failing_is_left_alone_until_the_period_is_over() -> None:
    intensity = RestartIntensity(limit=3, period=60.0)
    for now in (0.0, 10.0):
        intensity.failed(now)
    assert intensity.seconds_left(10.0) == 0.0
    intensity.failed(20.0)
    assert intensity.seconds_left(20.0) == 40.0
    assert intensity.seconds_left(61.0) == 0.0
    intensity.failed(62.0)
    assert intensity.seconds_left(62.0) == 8.0


def test_waiting_times_are_told_once_there_is_something_to_go_by() -> None:
    waiting = WaitingTime(slots=4)
    assert waiting.for_slot(0) is None
    waiting.observe(2.0)
    assert waiting.for_slot(0) == 500
    assert waiting.for_slot(7) == 4000
    assert waiting.for_load(elapsed=3.0, progress=0.0) is None
    assert waiting.for_load(elapsed=3.0, progress=0.75) == 1000
