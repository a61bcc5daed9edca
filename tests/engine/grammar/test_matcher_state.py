"""test_matcher_state."""

from __future__ import annotations

from greenroom.engine.grammar.matcher_state import TriggerMatcher
from greenroom.tests.support.grammars.grammar_walks import Grammars


def test_a_marker_is_found_however_it_is_spelled(grammars: Grammars) -> None:
    trigger = TriggerMatcher(grammars.tokenizer, ["<<tool>", "<end>"])
    single = {text: token for token, text in enumerate(grammars.tokenizer.token_bytes) if len(text) == 1}
    for text, expected in (("<<<tool>", 0), ("<<to<end>", 1), ("<tool>", None), ("<<tool<<tool>", 0)):
        position, found = trigger.start, None
        for byte in text.encode():
            assert found is None
            position, found = trigger.step(position, single[bytes([byte])])
        assert found == expected, text


def test_a_token_that_carries_something_past_a_marker_is_forbidden_only_there(grammars: Grammars) -> None:
    trigger = TriggerMatcher(grammars.tokenizer, ["</t>"])
    carrying = [
        token
        for token, text in enumerate(grammars.tokenizer.token_bytes)
        if text.startswith(b">") and text[1:].strip()
    ]
    spaced = [token for token, text in enumerate(grammars.tokenizer.token_bytes) if text == b">\n"]
    assert carrying
    assert trigger.mask(trigger.start) is None
    position = trigger.start
    for token in grammars.tokenizer.encode("</t"):
        position, _ = trigger.step(position, token)
    mask = trigger.mask(position)
    assert mask is not None
    assert not any(mask.allows(token) for token in carrying)
    assert all(mask.allows(token) for token in spaced)
    assert len(mask.tokens()) == grammars.tokenizer.size - len(carrying)
