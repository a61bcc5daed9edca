"""JSON encoding of strings in streams of lines."""

from __future__ import annotations

import json

import pytest

from greenroom.http.encoding.encoding import json_bytes, json_bytes_in_pieces, json_string, timestamp


@pytest.mark.parametrize("text", ["", 'a"b\\c', "\0\x1f\x7f", "é你🎭", "\x85\u2028\u2029", "\ud800 alone"])
def test_json_strings_survive_every_reader(text: str) -> None:
    encoded = json_string(text)
    assert json.loads(encoded) == text
    assert len(encoded.decode("utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    "document",
    [
        None,
        "text",
        [],
        {},
        [[]],
        {"a": [], "b": {"c": list(range(2_000)), "d": None}},
        [{"id": i, "piece": "\u6d77"} for i in range(1_025)],
        {"choices": [{"logprobs": {"tops": [{"a": -0.5}, None] * 700}}, {"logprobs": None}] * 2},
        ["a", 1, [2.5, [True]]],
        ({"a": (1, 2)},),
    ],
)
def test_a_document_is_the_same_in_pieces(document: object) -> None:
    assert json_bytes_in_pieces(document) == json_bytes(document)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250000Z"),
        (1_700_000_000.000001, "2023-11-14T22:13:20.000001Z"),
        (1_700_000_001, "2023-11-14T22:13:21Z"),
    ],
)
def test_times_are_written_as_rfc_3339_has_them(seconds: float, text: str) -> None:
    assert timestamp(seconds) == text
