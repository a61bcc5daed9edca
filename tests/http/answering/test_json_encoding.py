"""Strings in JSON, in a stream of lines."""

from __future__ import annotations

import json

import pytest

from greenroom.http.answering.json_encoding import json_string


@pytest.mark.parametrize("text", ["", 'a"b\\c', "\0\x1f\x7f", "é你🎭", "\x85\u2028\u2029", "\ud800 alone"])
def test_json_strings_survive_every_reader(text: str) -> None:
    encoded = json_string(text)
    assert json.loads(encoded) == text
    assert len(encoded.decode("utf-8").splitlines()) == 1
