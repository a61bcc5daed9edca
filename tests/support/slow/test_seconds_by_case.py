"""Cases that take over two processor seconds say why."""

from __future__ import annotations

import json

from greenroom.tests.support.slow.seconds_by_case import TABLE


def test_each_dear_case_says_why_in_a_few_words() -> None:
    why = json.loads(TABLE.read_text(encoding="utf-8"))["why"]
    assert why
    assert {case: text for case, text in why.items() if not 3 <= len(text.split()) <= 15} == {}
