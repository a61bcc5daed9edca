"""Grammars inside JSON strings: the escaped grammar accepts the escaped forms of the same texts."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.engine.grammar.c_interface import GrammarMatcher
from greenroom.engine.grammar.grammar_summary import unused_name
from greenroom.engine.grammar.grammar_tokenizer import single_bytes
from greenroom.engine.grammar.json_grammars import text_grammar
from greenroom.engine.grammar.limits import parser_limits
from greenroom.engine.grammar.patterns import steps_to_parse


def accepts(lark: str, text: str) -> bool:
    """Return whether a grammar derives a text, byte by byte."""
    grammar = json.dumps({"grammars": [{"lark_grammar": lark}]})
    matcher = GrammarMatcher.compile(single_bytes(), grammar, parser_limits())
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and bool(matcher.is_accepting())


def accepts_escaped(lark: str, text: str) -> bool:
    grammar = text_grammar(lark)
    assert grammar.escaped, grammar.obstacle
    return accepts(grammar.escaped, json.dumps(text, ensure_ascii=False)[1:-1])


@pytest.mark.parametrize(
    ("lark", "texts", "others"),
    [
        (r'start: /.+/ "\n" /.*/', ['a"\n', "\\\n\t"], ["a", '\n"', "a\nb\nc"]),
        (r"start: /[^\"]{2,3}/", ["a\n", "é\\/", "<>&"], ['a"', "a", "abcd"]),
        (r'start: A "\"" A' "\nA: /[a-z]/+", ['ab"c'], ['a""c', 'a\\"c']),
        ('start: "Read"i " " "a".."c"', ["rEAD b", "read c"], ["read d", "red a"]),
        (r"start: /(?i:k\n)/ /[[a-z]--[xyz]]/", ["K\na", "k\nw"], ["k\nx", "k\\na"]),
        ('start: "\\u001b[" /[0-9]+/', ["\x1b[12"], ["\x1b", "[12"]),
        (r"start: /\x22|\u{e9}|\p{Lu}/", ['"', "é", "Ω"], ["e", "\\"]),
        ('start: "x" ("," "x")*\n%import common.WS\n%ignore WS', ["x, x\n,\tx"], ["x x", "x,"]),
        (r'start: "x"+' "\n%ignore /[ \\n]+/", ["x \n x"], ["x\tx"]),
        ("start: A B\n%import common (LF, INT)\nA: INT LF\nB: LF", ["12\n\n"], ["\n\n", "12\n"]),
        ("start: /a*?(?:b|)c{2}/", ["aabcc", "cc"], ["abc"]),
        (
            'start: terminal A terminal-0-\nA: /\\n/\nterminal: "x"\nterminal-0-: "y"',
            ["x\ny"],
            ["x\n", "y"],
        ),
    ],
)
def test_what_a_grammar_derives_is_derived_escaped(lark: str, texts: list[str], others: list[str]) -> None:
    assert [text for text in texts if not accepts_escaped(lark, text)] == []
    assert [text for text in others if accepts_escaped(lark, text)] == []


@pytest.mark.parametrize(
    ("lark", "obstacle"),
    [
        ("start: /^a/", "'^'"),
        (r"start: /a\b/", r"'\b'"),
        ("start: /(?x:a b)/", "the flags 'x'"),
        ("start: /[a/", "never closed"),
        ("start: /[a&&b]/", "the class"),
        ('start[stop="\\n"]: /.*/', "'[' behind 'start'"),
        ('start: "ab".."z"', "the range"),
        ("start: @other", "@other"),
        ("start: A\nA: /a/ & ~/b/", "'&' or '~'"),
        ("start: /a/\n%ignore /#[^\\n]*/", "ignored"),
        ("start: /a/\n%import common.NOTHING", "NOTHING"),
    ],
)
def test_what_is_no_text_is_an_obstacle(lark: str, obstacle: str) -> None:
    grammar = text_grammar(lark)
    assert not grammar.escaped
    assert obstacle in grammar.obstacle


def test_hostile_names_are_read_in_time_that_grows_with_them() -> None:
    began = time.thread_time()
    assert text_grammar("start: terminal" + "x" * 100_000).escaped
    assert unused_name("PROBE", "PROBE-0-PROBE-2-" + "PROBEX" * 30_000) == "PROBE-1-"
    assert steps_to_parse("/" + "i" * 100_000 + "!") == 0
    assert time.thread_time() - began < 10  # of about 0.1


def test_it_is_known_which_characters_a_text_may_hold() -> None:
    assert text_grammar('start: "ab" /[x-z]/').characters == frozenset("abxyz")
    grammar = text_grammar("start: /[^a]/")
    assert grammar.characters is not None
    assert "<" in grammar.characters
    assert "a" not in grammar.characters


ATOMS = st.sampled_from(["a", "b", '"', r"\\", r"\n", "é", ".", '[^"]', r'[a"\n]', r"[^\n]", r"\s", "[a-b]"])
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{1,2}"])
ROWS = st.lists(st.tuples(ATOMS, REPEATS).map("".join), min_size=1, max_size=3).map("".join)
EXPRESSIONS = st.recursive(
    ROWS, lambda inner: st.tuples(inner, inner).map(lambda two: "({}|{})".format(*two))
)


@settings(max_examples=30)
@given(expression=EXPRESSIONS, text=st.text(alphabet='ab"\\\n\té', max_size=4))
def test_an_expression_matches_the_same_texts_escaped(expression: str, text: str) -> None:
    matches = re.fullmatch(expression, text) is not None
    assert accepts_escaped(f"start: /{expression}/", text) == matches
