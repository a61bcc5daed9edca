"""Reordering of long conversations: each text is copied once, each result placed once."""

from __future__ import annotations

import pytest

from greenroom.engine.adapters import message_normalization as normalization
from greenroom.schemas.messages.messages import Message, TextPart, ToolCall


def said(role: str, text: str, *calls: str) -> Message:
    tool_calls = tuple(ToolCall(call, "f", "{}") for call in calls)
    return Message(role, (TextPart(text),) if text else (), tool_calls=tool_calls)  # type: ignore[arg-type]


def result(call: str, text: str) -> Message:
    return Message("tool", (TextPart(text),), tool_call_id=call)


def test_a_long_run_of_one_role_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    join = normalization.join_paragraphs

    def counting(*texts: str) -> str:
        joined.append(sum(map(len, texts)))
        return join(*texts)

    monkeypatch.setattr(normalization, "join_paragraphs", counting)
    (merged,) = normalization.merge_repeated_roles([said("user", "x")] * 5000)
    assert merged.text == "\n\n".join("x" * 5000)
    assert sum(joined) == 5000


def test_calls_of_one_turn_with_one_id_are_told_apart() -> None:
    turns = [
        said("user", "a"),
        said("assistant", "", "c", "c", "d"),
        result("c", "first"),
        result("d", "third"),
        result("c", "second"),
        said("assistant", "", "c"),
        result("c", "last"),
    ]
    told = normalization.tell_calls_apart(turns)
    assert [[call.id for call in turn.tool_calls] for turn in told if turn.tool_calls] == [
        ["c", "c-1", "d"],
        ["c"],
    ]
    answered = {turn.text: turn.tool_call_id for turn in told if turn.role == "tool"}
    assert answered == {"first": "c", "third": "d", "second": "c-1", "last": "c"}


def test_runs_end_where_the_role_changes_or_text_follows_a_call() -> None:
    turns = [
        said("user", "a"),
        attributed := Message("user", (TextPart("b"),), name="Ann"),
        said("assistant", "c"),
        said("assistant", "d", "1"),
        said("assistant", "", "2"),
        said("assistant", "e"),
        result("1", "r"),
        result("2", "s"),
    ]
    merged = normalization.merge_repeated_roles(turns)
    assert [(turn.role, turn.text) for turn in merged] == [
        ("user", "a\n\nb"),
        ("assistant", "c\n\nd"),
        ("assistant", "e"),
        ("tool", "r"),
        ("tool", "s"),
    ]
    assert merged[0].name == attributed.name
    assert [call.id for call in merged[1].tool_calls] == ["1", "2"]


def test_results_come_before_what_was_said_before_they_did() -> None:
    calling, other = said("assistant", "", "1", "2"), said("assistant", "c")
    first, second, late = result("1", "r"), result("2", "s"), result("2", "t")
    system, user = said("system", "a"), said("user", "b")
    placed = normalization.place_results_first
    turns = [user, calling, system, first, user, second]
    assert placed(turns) == [user, calling, first, second, system, user]
    assert placed([*turns, other, user, late]) == [*placed(turns), other, user, late]
    assert placed([calling, first, user, system]) == [calling, first, user, system]


def test_every_call_gets_its_own_result_and_none_is_lost() -> None:
    turns = [said("assistant", "t", "1", "2", "3"), result("3", "c"), result("0", "z"), result("1", "a")]
    apart = normalization.split_parallel_calls([*turns, said("user", "u"), result("2", "late")])
    assert [(turn.text, [call.id for call in turn.tool_calls]) for turn in apart] == [
        ("t", ["1"]),
        ("a", []),
        ("", ["2"]),
        ("", ["3"]),
        ("c", []),
        ("z", []),
        ("u", []),
        ("late", []),
    ]
