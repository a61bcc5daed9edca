"""The messages that compaction keeps, and the history that a compaction item replaces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.http.responses.compaction import (
    KEPT_TURNS,
    KEY_BYTES,
    Compaction,
    CompactionLimits,
    ContentCipher,
    compacted,
    last_turns,
)
from greenroom.schemas.problems import ProblemError

CIPHER = ContentCipher(bytes(KEY_BYTES))
RULES = {"type": "message", "role": "system", "content": "Answer in French."}


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def call(ident: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": "read", "arguments": arguments}


def result(ident: str, text: str = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": text}


CHAT = [said("user", "Hi"), said("assistant", "Hello"), said("user", "Bye"), said("assistant", "Ciao")]


def test_whole_turns_are_kept_as_many_as_there_is_room_for() -> None:
    assert last_turns(CHAT, KEPT_TURNS) == CHAT
    assert last_turns(CHAT, room=200) == CHAT[2:]


def test_of_a_turn_that_is_too_long_its_question_and_its_end_are_kept() -> None:
    turn = [said("user", "Do it"), call("a"), result("a", "x" * 500), call("b"), result("b")]
    assert last_turns([*CHAT, *turn], room=300) == [turn[0], *turn[3:]]


def test_an_approval_is_not_parted_from_the_call_that_it_approves() -> None:
    wanted = {"type": "mcp_approval_request", "id": "a", "call_id": "a", "arguments": "x" * 500}
    given = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}
    turn = [said("user", "Do it"), wanted, given, said("assistant", "Done")]
    assert last_turns(turn, room=300) == [turn[0], turn[3]]


def test_a_file_that_is_sent_along_becomes_a_word_and_its_turn_is_kept() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 20_000}
    named = {"type": "input_image", "image_url": "https://example.org/a.png"}
    word = {"type": "input_text", "text": "[Image, left out since]"}
    text = {"type": "input_text", "text": "What is this? " * 200}
    turn = [
        {"type": "message", "role": "user", "content": [text, image, named]},
        call("a"),
        {"type": "function_call_output", "call_id": "a", "output": [image]},
    ]
    kept = compacted("It is a beach.", [*CHAT, *turn], CompactionLimits()).items
    assert list(kept) == [
        *CHAT,
        {**turn[0], "content": [text, word, named]},
        call("a"),
        {**turn[2], "output": [word]},
    ]


def test_a_question_without_room_leaves_it_to_what_followed() -> None:
    turn = [said("user", "x" * 500), call("a"), result("a")]
    assert last_turns(turn, room=300) == turn[1:]


ITEMS = st.lists(
    st.one_of(
        st.builds(said, st.sampled_from(("user", "assistant")), st.text(max_size=60)),
        st.builds(call, st.sampled_from("abc")),
        st.builds(result, st.sampled_from("abc"), st.text(max_size=60)),
    ),
    max_size=25,
)


@given(ITEMS, st.integers(0, 800))
def test_no_call_is_parted_from_its_result(items: list[dict[str, Any]], room: int) -> None:
    kept = last_turns(items, room)
    # Compare items by identity, since two may be equal.
    places = [next(i for i, item in enumerate(items) if item is other) for other in kept]
    assert places == sorted(set(places))
    for place in places:
        if items[place]["type"] == "function_call_output":
            calls = [
                i
                for i, item in enumerate(items[:place])
                if item["type"] == "function_call" and item["call_id"] == items[place]["call_id"]
            ]
            answered_before = [
                i
                for i, item in enumerate(items[:place])
                if item["type"] == "function_call_output" and item["call_id"] == items[place]["call_id"]
            ]
            if calls and calls[-1] > max(answered_before, default=-1):
                assert calls[-1] in places


def test_what_was_encrypted_is_decrypted_and_stands_for_what_came_before() -> None:
    encrypted = compacted("They said hello.", [RULES, *CHAT], CompactionLimits()).encrypt(CIPHER)
    assert "hello" not in encrypted
    decrypted = Compaction.decrypt(CIPHER, encrypted, "input[0].encrypted_content")
    read = decrypted.stands_for()
    assert [item["content"] for item in read] == [
        "Answer in French.",
        "What came before, summarized:\n\nThey said hello.",
        "Hi",
        "Hello",
        "Bye",
        "Ciao",
    ]
    assert [item["role"] for item in read[:2]] == ["system", "developer"]


def test_a_conversation_that_is_compacted_again_has_one_summary() -> None:
    once = compacted("First summary.", [RULES, *CHAT], CompactionLimits()).stands_for()
    twice = compacted("Second summary.", [*once, said("user", "More")], CompactionLimits()).stands_for()
    summaries = [item for item in twice if item["role"] == "developer"]
    assert [item["content"] for item in summaries] == ["What came before, summarized:\n\nSecond summary."]
    assert twice.count(RULES) == 1


def test_a_compaction_that_was_changed_is_refused_by_name() -> None:
    encrypted = compacted("They said hello.", CHAT, CompactionLimits()).encrypt(CIPHER)
    with pytest.raises(ProblemError) as error:
        Compaction.decrypt(CIPHER, encrypted[:-8], "input[2].encrypted_content")
    assert error.value.problem.param == "input[2].encrypted_content"


def test_a_compaction_leaves_room_in_a_short_context() -> None:
    assert CompactionLimits.within(1_024) == CompactionLimits(128, 768)
    assert CompactionLimits.within(131_072) == CompactionLimits()
