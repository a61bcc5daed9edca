"""Event encoding: events read from the store equal those written."""

from __future__ import annotations

import json
import string

from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.responses.event_log import decode_events, encode_events
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.problems import internal_error
from greenroom.schemas.protocols.responses_protocol import Heartbeat, RunEvent, RunStarted

tokens = st.builds(Token, st.text(), st.binary(max_size=8))
numbers = st.floats(-1e4, 0)
logprobs = st.builds(
    TokenLogprob, tokens, numbers, st.lists(st.tuples(tokens, numbers), max_size=3).map(tuple)
)
names = st.lists(st.text(), max_size=2).map(tuple)
nbytes = st.none() | st.integers(0)
statuses = st.builds(
    QueueStatus, st.just("loading"), st.integers(0), st.text(), nbytes, names, names, nbytes, nbytes, nbytes
)
events = st.one_of(
    st.builds(TextDelta, st.text(), logprobs=st.lists(logprobs, max_size=3).map(tuple)),
    st.builds(ReasoningDelta, st.text()),
    st.builds(ToolCallDelta, st.integers(0, 9), st.text(), st.text(), st.text()),
    st.builds(ToolCallDelta, st.integers(0, 9), arguments=st.text(string.printable)),
    st.builds(Admitted, st.integers(0), st.integers(0)),
    st.just(RunStarted()),
    st.just(Heartbeat()),
    st.builds(Heartbeat, statuses),
    st.builds(Heartbeat, st.builds(PromptProgress, *[st.integers(0)] * 3, st.floats(0, 1e6))),
)


@given(st.lists(events, max_size=20))
def test_what_was_encoded_is_decoded(log: list[RunEvent]) -> None:
    assert decode_events(encode_events(log)) == log


def test_what_stands_in_the_response_is_left_out_and_many_are_one_array() -> None:
    log: list[RunEvent] = [TextDelta(str(number)) for number in range(1_234)]
    text = encode_events([*log, Failed(internal_error())])
    assert len(json.loads(text)) == 1_234
    assert decode_events(text) == log
    assert len(text) < 16 * 1_234


def test_half_a_character_is_kept_as_it_is() -> None:
    log: list[RunEvent] = [TextDelta("\ud83d"), TextDelta("\ude00")]
    text = encode_events(log)
    assert text.encode("utf-8"), "as SQLite wants it"
    assert decode_events(text) == log
