"""Replies: sending never blocks, no event is lost, and untaken events are given back."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.actors.core.reply import Grant, ReplyBuffer, ReplyStream
from greenroom.schemas.events.events import (
    Finished,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)


class CountingGrant(Grant):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def drained(*events: object) -> list[object]:
    pending = ReplyBuffer()
    for event in events:
        pending.add(event)
    return list(pending.drain())


def test_text_that_nobody_took_is_one_delta() -> None:
    assert drained(TextDelta("a"), TextDelta("b"), TextDelta("c")) == [TextDelta("abc")]


def test_deltas_of_different_kinds_keep_their_order() -> None:
    events = [ReasoningDelta("a"), ReasoningDelta("b"), TextDelta("c"), ReasoningDelta("d")]
    assert drained(*events) == [ReasoningDelta("ab"), TextDelta("c"), ReasoningDelta("d")]


def test_choices_merge_beside_each_other() -> None:
    events = [TextDelta("a"), TextDelta("x", 1), TextDelta("b"), TextDelta("y", 1)]
    assert drained(*events) == [TextDelta("ab"), TextDelta("xy", 1)]


def test_argument_fragments_merge_into_their_own_call_only() -> None:
    events = [
        ToolCallDelta(0, "id0", "f", "{"),
        ToolCallDelta(0, arguments='"a"'),
        ToolCallDelta(0, arguments=": 1}"),
        ToolCallDelta(1, "id1", "g"),
        ToolCallDelta(1, arguments="{}"),
    ]
    assert drained(*events) == [ToolCallDelta(0, "id0", "f", '{"a": 1}'), ToolCallDelta(1, "id1", "g", "{}")]


def test_a_newer_status_takes_the_place_of_an_older_one() -> None:
    events = [
        QueueStatus("loading", 3, "m"),
        PromptProgress(1, 9),
        QueueStatus("queued", 1, "m"),
        PromptProgress(5, 9),
    ]
    assert drained(*events) == [QueueStatus("queued", 1, "m"), PromptProgress(5, 9)]


def test_nothing_joins_a_choice_that_has_finished() -> None:
    finished = Finished("stop", Usage(1, 1))
    assert drained(TextDelta("a"), finished, TextDelta("b", 1)) == [
        TextDelta("a"),
        finished,
        TextDelta("b", 1),
    ]


def test_log_probabilities_join_with_their_text() -> None:
    scores = [TokenLogprob(Token(text, text.encode()), -1.0) for text in "abc"]
    events = [TextDelta(score.token.text, 0, (score,)) for score in scores]
    assert drained(*events, TextDelta("d")) == [TextDelta("abcd", 0, tuple(scores))]


async def test_a_reader_that_stalls_holds_no_more_than_the_text() -> None:
    replies = ReplyStream[TextDelta]()
    for _ in range(10_000):
        replies.sender.send(TextDelta("ab"))
    assert await replies.receive() == TextDelta("ab" * 10_000)


async def test_the_end_comes_after_what_was_sent() -> None:
    replies = ReplyStream[TextDelta]()
    replies.sender.send(TextDelta("a"))
    replies.sender.end()
    assert [event async for event in replies] == [TextDelta("a")]
    with pytest.raises(trio.EndOfChannel):
        await replies.receive()


async def test_receiving_can_be_cancelled_and_repeated_without_loss(nursery: trio.Nursery) -> None:
    replies = ReplyStream[TextDelta]()
    scope = trio.CancelScope()

    async def receive() -> None:
        with scope:
            await replies.receive()

    nursery.start_soon(receive)
    await wait_all_tasks_blocked()
    # The event arrives and the receiver is cancelled in the same instant: whichever wins, nothing is lost.
    scope.cancel()
    replies.sender.send(TextDelta("a"))
    await wait_all_tasks_blocked()
    assert await replies.receive() == TextDelta("a")


async def test_closing_tells_the_sender_once_and_gives_back_what_was_not_taken() -> None:
    replies = ReplyStream[CountingGrant]()
    taken, left, late, ends = CountingGrant(), CountingGrant(), CountingGrant(), list[str]()
    replies.sender.watch(lambda: ends.append("over"))
    replies.sender.send(taken)
    replies.sender.send(left)
    assert await replies.receive() is taken
    replies.close()
    replies.close()
    assert not replies.sender.send(late)
    assert (taken.closed, left.closed, late.closed) == (0, 1, 1)
    assert ends == ["over"]
    with pytest.raises(trio.ClosedResourceError):
        await replies.receive()


async def test_a_grant_is_held_or_given_back_wherever_its_receiver_is_cancelled() -> None:
    chance = random.Random(7)
    outcomes = set[str]()
    for _ in range(500):
        replies, grant, held = ReplyStream[CountingGrant](), CountingGrant(), list[CountingGrant]()

        async def receive(
            replies: ReplyStream[CountingGrant] = replies, held: list[CountingGrant] = held
        ) -> None:
            with replies:
                held.append(await replies.receive())

        async def cross(steps: int, act: str, scope: trio.CancelScope, grant: CountingGrant = grant) -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            if act == "cancel":
                scope.cancel()
            else:
                replies.sender.send(grant)  # noqa: B023

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            nursery.start_soon(cross, chance.randrange(4), "cancel", nursery.cancel_scope)
            with trio.CancelScope(shield=True):
                await cross(chance.randrange(4), "send", nursery.cancel_scope)
        assert len(held) + grant.closed == 1
        outcomes.add("held" if held else "given back")
    assert outcomes == {"held", "given back"}
