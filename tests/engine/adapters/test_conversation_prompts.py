"""Selection of the turns to drop from overlong conversations, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from greenroom.engine.adapters.conversation_prompts import (
    first_fitting,
    starts_on_grid,
    turn_starts,
    without_oldest,
)
from greenroom.schemas.messages.messages import Message, Role, TextPart, ToolCall

Spec = Any


def conversation(*specs: Spec) -> list[Message]:
    """Return messages: `u`, `a`, `s`, `a:x y` with calls of those ids, `t:x` as the result of one."""
    roles: dict[str, Role] = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    messages = []
    for spec in specs:
        kind, _, ids = spec.partition(":")
        calls = tuple(ToolCall(ident, "f", "{}") for ident in ids.split()) if kind == "a" else ()
        result = ids if kind == "t" else None
        messages.append(Message(roles[kind], (TextPart(spec),), tool_calls=calls, tool_call_id=result))
    return messages


@pytest.mark.parametrize(
    ("specs", "starts"),
    [
        ("s u a u a u", [3, 5]),
        ("u", []),
        ("s", []),
        ("a u", [1]),
        ("s s u a s u", [5]),
        ("u u u", [1, 2]),
        ("u,a:x,t:x,a,u", [4]),
        # The result follows a user message.
        ("u,a:x,u,t:x,a,u", [5]),
        ("u,a:x y,t:x,u,t:y,u,a,u", [5, 7]),
        # A reused id belongs to the latest call before it.
        ("u,a:x,t:x,u,a:x,t:x,u", [3, 6]),
    ],
)
def test_a_conversation_may_begin_at_a_turn_and_never_between_call_and_result(
    specs: str, starts: list[int]
) -> None:
    parts = specs.split(",") if "," in specs else specs.split()
    assert turn_starts(conversation(*parts)) == starts


def test_system_messages_stay() -> None:
    messages = conversation("s", "u", "a", "s", "u", "a", "u")
    assert [message.role for message in without_oldest(messages, 6)] == ["system", "system", "user"]


def test_the_cut_stays_while_a_conversation_grows() -> None:
    """Every start on the grid of a conversation is on the grid of all its continuations."""
    grids = []
    for turns in range(1, 60):
        messages = conversation(*["u", "a"] * turns, "u")
        grids.append(starts_on_grid(messages, turn_starts(messages), 400))
    for shorter, longer in pairwise(grids):
        assert longer[: len(shorter)] == shorter
    # With 66 bytes each, these turns exceed multiples of 400.
    assert grids[-1] == [2 * -(-400 * step // 66) for step in range(1, 10)]


@hypothesis.given(st.integers(0, 10_000), st.data())
def test_a_few_attempts_find_the_first_that_fits(count: int, data: st.DataObject) -> None:
    """No attempt is much longer than the result."""
    first = data.draw(st.integers(0, count))
    attempts: list[int] = []

    def attempt(start: int) -> tuple[int] | None:
        attempts.append(start)
        return (start,) if start >= first else None

    assert first_fitting(range(count), attempt) == ((first,) if first < count else None)
    fitting = count - first
    assert all(count - start <= 2 * fitting + 1 for start in attempts)
    assert len(attempts) <= 2 * max(1, fitting).bit_length() + 1


def test_nothing_fits_where_nothing_may_be_dropped() -> None:
    def attempts() -> Iterator[int]:
        raise AssertionError
        yield

    assert first_fitting([], lambda start: next(attempts())) is None
