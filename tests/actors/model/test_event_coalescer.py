"""Event coalescing: fast tokens are reported together, with a bounded delay; other events at once."""

from __future__ import annotations

import itertools

from greenroom.actors.model.model_loop import MIN_INTERVAL, EventCoalescer
from greenroom.schemas.events.events import (
    Finished,
    InferenceEvent,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    Usage,
)


class ClockedCoalescer:
    """A coalescer whose clock the test sets, with its reports and their times."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reported: list[tuple[float, list[str]]] = []
        self.coalescer = EventCoalescer(self._record, lambda: self.now)

    def step(self, seconds: float, *events: InferenceEvent) -> None:
        self.now += seconds
        self.coalescer.add([("a", event) for event in events])

    def _record(self, events: list[tuple[str, InferenceEvent]]) -> None:
        self.reported.append((self.now, [_text_or_name(event) for _, event in events]))


def _text_or_name(event: InferenceEvent) -> str:
    return event.text if isinstance(event, TextDelta | ReasoningDelta) else type(event).__name__


def test_tokens_of_fast_steps_go_together_at_a_steady_pace() -> None:
    clocked = ClockedCoalescer()
    for step in range(9):
        clocked.step(MIN_INTERVAL / 3 + 1e-9, TextDelta(str(step)))
    assert [events for _, events in clocked.reported] == [["0"], ["1", "2", "3"], ["4", "5", "6"]]
    times = [when for when, _ in clocked.reported]
    assert all(later - earlier < MIN_INTERVAL * 1.01 for earlier, later in itertools.pairwise(times))


def test_tokens_of_slow_steps_go_at_once() -> None:
    clocked = ClockedCoalescer()
    for step in range(4):
        clocked.step(1.01 * MIN_INTERVAL, ReasoningDelta(str(step)))
    assert [events for _, events in clocked.reported] == [["0"], ["1"], ["2"], ["3"]]


def test_the_first_token_and_the_end_do_not_wait() -> None:
    clocked = ClockedCoalescer()
    clocked.step(1.0, PromptProgress(3, 3))
    clocked.step(MIN_INTERVAL / 9, TextDelta("first"))
    clocked.step(MIN_INTERVAL / 9, TextDelta("pending"))
    clocked.step(MIN_INTERVAL / 9, TextDelta("last"), Finished("stop", Usage(3, 3)))
    assert [events for _, events in clocked.reported] == [
        ["PromptProgress"],
        ["first"],
        ["pending", "last", "Finished"],
    ]


def test_what_is_pending_goes_before_a_pause_and_only_once() -> None:
    clocked = ClockedCoalescer()
    clocked.step(1.0, TextDelta("first"))
    clocked.step(MIN_INTERVAL / 9, TextDelta("pending"))
    clocked.coalescer.flush()
    clocked.coalescer.flush()
    clocked.step(MIN_INTERVAL / 9)
    assert [events for _, events in clocked.reported] == [["first"], ["pending"]]
