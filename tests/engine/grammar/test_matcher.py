"""test_matcher."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.engine.grammar.compiler import ConstraintCache, GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.masks import TokenMask, allow_only
from greenroom.engine.grammar.matcher import Matcher, apply_masks, compute_masks
from greenroom.engine.grammar.matcher_state import Phase
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import (
    CallConstraint,
    ChoiceFormat,
    Constraint,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningConstraint,
    RegexFormat,
)
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.grammars.grammar_walks import END, Grammars, validate
from greenroom.tests.support.models.large_vocabulary import large_tokenizer
from greenroom.tests.support.servers.bounded_waits import wait_until


@pytest.mark.parametrize("rows", [[1], [0, 3], [0, 1, 2, 3], [0, 2, 3]])
@pytest.mark.parametrize("width", [64, 70, 100])
def test_masks_touch_only_their_rows(rows: list[int], width: int) -> None:
    import mlx.core as mx

    chance = random.Random(width)
    wanted = {row: sorted(chance.sample(range(70), 20)) for row in rows}
    logits = mx.random.normal((4, width))
    before: Any = mx.array(logits).tolist()
    after = apply_masks(logits, {row: allow_only(tokens, 3) for row, tokens in wanted.items()}).tolist()
    for row in range(4):
        for token in range(width):
            kept = row not in wanted or token in wanted[row]
            assert after[row][token] == (before[row][token] if kept else float("-inf"))


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WANTED = Constraint(JsonSchemaFormat(SCHEMA))
OPENED = ReasoningConstraint("<think>", "</think>", opened=True)
CLOSED = ReasoningConstraint("<think>", "</think>")


def allowed(matcher: Matcher) -> list[int]:
    mask = matcher.mask()
    assert mask is not None
    return [int(token) for token in mask.tokens()]


def phase_of(matcher: Matcher) -> Phase:
    return matcher.phase


def feed(grammars: Grammars, matcher: Matcher, text: str) -> None:
    for token in grammars.tokenizer.encode(text):
        mask = matcher.mask()
        assert mask is None or mask.allows(token), text
        matcher.accept_token(token)


def test_clones_go_on_by_themselves(grammars: Grammars) -> None:
    matcher = grammars.matcher(WANTED)
    feed(grammars, matcher, '{"name": "')
    clones = [matcher.clone() for _ in range(4)]
    for seed, clone in enumerate(clones):
        written = grammars.walk(clone, seed)
        validate(SCHEMA, '{"name": "' + written.text)
    feed(grammars, matcher, 'Ada", "age": 3}')
    assert matcher.is_terminated


def test_a_grammar_that_allows_no_more_ends_without_another_step(grammars: Grammars) -> None:
    matcher = grammars.matcher(WANTED)
    feed(grammars, matcher, '{"name": "", "age": 1')
    assert not matcher.is_accepting
    assert grammars.token(END) not in allowed(matcher)
    feed(grammars, matcher, "}")
    assert matcher.is_terminated
    assert matcher.is_accepting
    assert allowed(matcher) == [grammars.token(END)]


def test_the_end_is_allowed_where_the_text_is_whole_and_not_before(grammars: Grammars) -> None:
    matcher = grammars.matcher(Constraint(RegexFormat("ab+")))
    feed(grammars, matcher, "a")
    assert grammars.token(END) not in allowed(matcher)
    feed(grammars, matcher, "b")
    assert grammars.token(END) in allowed(matcher)
    assert matcher.is_accepting
    assert not matcher.is_terminated
    matcher.accept_token(grammars.token(END))
    assert matcher.is_terminated


def test_an_end_that_is_sampled_again_as_something_else_takes_no_token_back(grammars: Grammars) -> None:
    matcher = grammars.matcher(Constraint(RegexFormat("[0-7]{2,4}")))
    feed(grammars, matcher, "12")
    matcher.mask_latency.record(1_000.0)
    end = grammars.token(END)
    wait_until(lambda: matcher.prepare() and matcher.prepare(end))
    feed(grammars, matcher, "34")
    assert matcher.is_terminated or allowed(matcher) == [end]


def test_a_token_that_is_not_allowed_is_an_error_and_never_text(grammars: Grammars) -> None:
    matcher = grammars.matcher(WANTED)
    with pytest.raises(ProblemError):
        matcher.accept_token(grammars.tokenizer.encode("x")[0])


def test_rows_are_masked_together_as_each_would_be_alone(grammars: Grammars) -> None:
    constraints = (
        WANTED,
        Constraint(RegexFormat("[a-f]+")),
        Constraint(JsonObjectFormat(), reasoning=OPENED),
        Constraint(reasoning=ReasoningConstraint("<think>", "</think>", opened=True, budget=50)),
    )
    matchers = {row: grammars.matcher(constraint) for row, constraint in enumerate(constraints)}
    masks = compute_masks(matchers)
    assert masks.keys() == {0, 1, 2}, "a thought without an answer to come may say anything"
    for row, mask in masks.items():
        assert isinstance(mask, TokenMask)
        assert [int(token) for token in mask.tokens()] == allowed(matchers[row])


def test_a_matcher_made_on_one_thread_goes_on_in_another(grammars: Grammars) -> None:
    matcher = grammars.matcher(WANTED)
    texts: list[str] = []
    worker = threading.Thread(target=lambda: texts.append(grammars.walk(matcher, seed=2).text))
    worker.start()
    for seed in range(20):
        grammars.walk(WANTED, seed)
    worker.join()
    validate(SCHEMA, texts[0])


def test_a_sequence_whose_grammar_grows_beyond_its_limits_says_so(grammars: Grammars) -> None:
    schema = {"type": "string", "pattern": "^.*a.{60}b.*a.{60}c$"}
    chance = random.Random(1)
    matcher = grammars.matcher(Constraint(JsonSchemaFormat(schema)))
    bystander = grammars.matcher(WANTED)
    for _ in range(3_000):
        masks = compute_masks({0: matcher, 1: bystander})
        assert isinstance(masks[1], TokenMask)
        mask = masks[0]
        if isinstance(mask, Problem):
            assert mask.code == "grammar_too_complex"
            assert "a.{60}" not in mask.detail
            return
        matcher.accept_token(int(chance.choice(mask.tokens())))
    pytest.fail("the limit was never reached")


@pytest.mark.parametrize("reasoning", [OPENED, CLOSED])
def test_a_thought_is_free_and_the_answer_after_it_is_held(
    grammars: Grammars, reasoning: ReasoningConstraint
) -> None:
    matcher = grammars.matcher(Constraint(JsonSchemaFormat(SCHEMA), reasoning=reasoning))
    if not reasoning.opened:
        feed(grammars, matcher, "<think>")
    assert phase_of(matcher) is Phase.REASONING
    mask = matcher.mask()
    assert mask is not None
    assert not mask.allows(grammars.token(END)), "an answer has to follow"
    assert len(mask.tokens()) == grammars.tokenizer.size - 1
    feed(grammars, matcher, 'so {"name": </thin')
    feed(grammars, matcher, "k>")
    assert phase_of(matcher) is Phase.ANSWER
    feed(grammars, matcher, "\n\n")
    validate(SCHEMA, grammars.walk(matcher, seed=1).text)


@pytest.mark.parametrize("reasoning", [OPENED, CLOSED, None])
def test_an_id_that_only_pads_the_vocabulary_is_read_as_nothing(
    grammars: Grammars, reasoning: ReasoningConstraint | None
) -> None:
    tool = Tool("look", parameters=SCHEMA, strict=True)
    calls = CallConstraint((tool,), ToolChoice("auto"), "hermes_json")
    matcher = grammars.matcher(Constraint(calls=calls, reasoning=reasoning))
    pads = grammars.tokenizer.size, 32 * grammars.tokenizer.mask_words + 40
    thought = (
        () if reasoning is None else ("So</thi", "nk>") if reasoning.opened else ("<thi", "nk>So</thi", "nk>")
    )
    for text in (*thought, "Look: <tool_", "call>"):
        feed(grammars, matcher, text)
        if phase_of(matcher) is not Phase.CALL:
            for pad in pads:
                matcher.accept_token(pad)
    assert phase_of(matcher) is Phase.CALL
    assert not set(pads) & set(allowed(matcher))


def test_a_thought_may_be_left_out(grammars: Grammars) -> None:
    constraint = Constraint(JsonSchemaFormat(SCHEMA), reasoning=CLOSED)
    matcher = grammars.matcher(constraint)
    assert phase_of(matcher) is Phase.OPENING
    feed(grammars, matcher, '{"name": "<thi')
    feed(grammars, matcher, 'nk>", "age": 1}')
    assert matcher.is_terminated
    assert not grammars.matcher(constraint).is_accepting


@pytest.mark.parametrize("budget", [0, 1, 5, 40])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("opened", [True, False])
def test_a_budget_ends_a_thought_cleanly(grammars: Grammars, budget: int, held: bool, opened: bool) -> None:
    reasoning = ReasoningConstraint("<think>", "</think>", opened, budget)
    wanted = JsonSchemaFormat(SCHEMA) if held else None
    for seed in range(10):
        matcher = grammars.matcher(Constraint(wanted, reasoning=reasoning))
        if not opened and not (held and budget == 0):
            feed(grammars, matcher, "<think>")
        written = grammars.walk(matcher, seed, limit=800, eager={END: 0.0})
        inside, _, answer = written.text.partition("</think>")
        if held and budget == 0 and not opened:
            validate(SCHEMA, written.text)
            continue
        # The reasoning, then its forced end; up to three more tokens finish a character.
        spent = len(grammars.tokenizer.encode(inside.removesuffix("\n")))
        assert spent <= 4 * (budget + 3), (inside, budget)
        if held:
            assert written.stopped
            validate(SCHEMA, answer)


def test_a_budget_counts_tokens(grammars: Grammars) -> None:
    reasoning = ReasoningConstraint("<think>", "</think>", opened=True, budget=3)
    matcher = grammars.matcher(Constraint(reasoning=reasoning))
    for token in grammars.tokenizer.encode("one two three")[:3]:
        assert phase_of(matcher) is Phase.REASONING
        matcher.accept_token(token)
    assert phase_of(matcher) is Phase.CLOSING
    closing: list[int] = []
    while phase_of(matcher) is Phase.CLOSING:
        closing += allowed(matcher)
        matcher.accept_token(closing[-1])
    assert grammars.text(closing) == "\n</think>\n\n"
    assert phase_of(matcher) is Phase.FREE
    assert matcher.mask() is None


def test_a_budget_lets_a_character_be_finished(grammars: Grammars) -> None:
    reasoning = ReasoningConstraint("<think>", "</think>", opened=True, budget=1)
    matcher = grammars.matcher(Constraint(reasoning=reasoning))
    single = {text: token for token, text in enumerate(grammars.tokenizer.token_bytes) if len(text) == 1}
    for byte in "€".encode()[:2]:
        matcher.accept_token(single[bytes([byte])])
        assert phase_of(matcher) is Phase.REASONING
    matcher.accept_token(single["€".encode()[2:]])
    assert phase_of(matcher) is Phase.CLOSING


def test_the_same_constraint_is_compiled_once(grammars: Grammars) -> None:
    compiler = GrammarCompiler(grammars.tokenizer, CALL_SYNTAXES, ConstraintCache(most=2))
    compiled = []
    for pattern in ("a", "b", "a", "c", "a", "b"):
        matcher = compiler.compile(Constraint(RegexFormat(pattern)))
        assert matcher is not None
        compiled.append(matcher.constraint)
    assert compiled[0] is compiled[2] is compiled[4]
    assert compiled[1] is not compiled[5], "the least recently used makes room"


def test_the_order_of_properties_makes_another_constraint(grammars: Grammars) -> None:
    first = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    second = {"type": "object", "properties": dict(reversed(list(first["properties"].items())))}  # type: ignore[attr-defined]
    for schema, key in ((first, "a"), (second, "b")):
        required = {**schema, "required": ["a", "b"], "additionalProperties": False}
        written = grammars.walk(Constraint(JsonSchemaFormat(required)))
        assert next(iter(json.loads(written.text))) == key


def test_nothing_to_hold_is_no_matcher(grammars: Grammars) -> None:
    assert grammars.compiler.compile(Constraint()) is None
    assert grammars.compiler.compile(Constraint(reasoning=OPENED)) is None


def test_a_model_s_own_tokenizer_serves(tmp_path: Path) -> None:
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer
    from greenroom.tests.support.models.tiny_models import make_tokenizer

    make_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "eos_token_id": 2}))
    chat = load_tokenizer(tmp_path)
    known = GrammarTokenizer(chat.wrapped, chat.eos_token_ids)
    assert known.stop_token_ids == (2,)
    matcher = GrammarCompiler(known, CALL_SYNTAXES).compile(Constraint(ChoiceFormat(("yes", "no"))))
    assert matcher is not None
    assert {known.token_bytes[token][:1] for token in allowed(matcher)} == {b"y", b"n"}


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    with pytest.raises(ProblemError) as refused:
        GrammarTokenizer(object(), [1])
    assert refused.value.problem.code == "unsupported_tokenizer"


@pytest.fixture(scope="module")
def large() -> Grammars:
    """Return a vocabulary of 152,000 tokens."""
    tokenizer = large_tokenizer()
    known = GrammarTokenizer(tokenizer, [tokenizer.token_to_id(END)])
    return Grammars(known, GrammarCompiler(known, CALL_SYNTAXES), "")


def test_a_large_vocabulary_is_held_as_a_small_one(large: Grammars) -> None:
    assert large.tokenizer.size == 152_000
    for seed in range(5):
        written = large.walk(WANTED, seed)
        assert written.stopped
        validate(SCHEMA, written.text)
    reasoning = ReasoningConstraint("<think>", "</think>", opened=True, budget=20)
    written = large.walk(Constraint(JsonSchemaFormat(SCHEMA), reasoning=reasoning))
    validate(SCHEMA, written.text.partition("</think>")[2])
