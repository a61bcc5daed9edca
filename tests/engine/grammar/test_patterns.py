"""test_patterns."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.engine.grammar.grammar_builder import anchored_pattern
from greenroom.engine.grammar.patterns import portable_pattern
from greenroom.schemas.messages.requests import Constraint, JsonSchemaFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import Grammars, accepted_prefix

PATTERNS = (
    *(r"^\d+$", r"^\D{3}$", r"\w\W\w", r"^\S+\s\S+$", r"[^\d\s]{2}", r"[\W\d]x", r"^[^\W]{2,3}$", "^.{2}$"),
    *(r"^a|b$", r"(?:ab)+?c", r"^[[\]a-]+$", r"^{x}$", r"^\u00e9\x41$", r"^(a|b){2}$", r"^\/\.\-$"),
    *(r"^[a&&b]$", r"^#\t$", r"^[\b]?$", r"^x{2,}$", r"^(?:)$", "^~/$"),
)


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_a_pattern_admits_matches_in_python_too(grammars: Grammars, pattern: str) -> None:
    constraint = Constraint(JsonSchemaFormat({"type": "string", "pattern": pattern, "maxLength": 12}))
    for seed in range(10):
        written = grammars.walk(constraint, seed)
        assert written.stopped
        assert re.search(pattern, json.loads(written.text)), (pattern, written.text)


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(text=st.from_regex(r"[a-z\\.*+?()\[\]{}|^$0-9,]{0,12}", fullmatch=True))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_text_as_a_pattern_is_held_or_refused(grammars: Grammars, text: str) -> None:
    try:
        expected = re.compile(text)
    except re.error:
        expected = None
    try:
        matcher = grammars.matcher(Constraint(JsonSchemaFormat({"type": "string", "pattern": text})))
    except ProblemError:
        return
    if expected is not None:
        written = grammars.walk(matcher, seed=1, limit=200)
        assert not written.stopped or expected.search(json.loads(written.text))


@pytest.mark.parametrize(
    ("pattern", "held", "others"),
    [
        (r"^[\w-.]$", "a_-.", "`/,"),
        (r"^[\s-z]$", " -z", "ay"),
        (r"^[+-\d]$", "+-018", ",./"),
        (r"^[+--]$", "+,-", "./0"),
        (r"^[--/]$", "-./", ",0"),
        (r"^[a-c-e]$", "abc-e", "d"),
        (r"^[a\-c-]$", "ac-", "b"),
        (r"^[^\d-x]$", "a`w", "-x5"),
        (r"^[\<=>]|\<$", "<=>", "a;"),
    ],
)
def test_a_dash_beside_a_set_and_an_escaped_bracket_are_characters(
    grammars: Grammars, pattern: str, held: str, others: str
) -> None:
    matcher = grammars.matcher(Constraint(JsonSchemaFormat({"type": "string", "pattern": pattern})))
    for character in held + others:
        tokens = grammars.tokenizer.encode(json.dumps(character))
        assert (accepted_prefix(matcher, tokens) == len(tokens)) == (character in held), character


def test_anchors_at_the_ends_of_a_whole_pattern_are_taken_for_granted() -> None:
    assert anchored_pattern("^ab$", "p") == anchored_pattern("ab", "p") == "(?:ab)"
    assert anchored_pattern(r"a\$", "p") == r"(?:a\$)"
    assert portable_pattern(r"a\$", "p") == r"a\$"
