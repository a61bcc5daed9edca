"""A sequence with slow masks skips steps: its neighbors continue, and all answers stay the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.engine.grammar import masks
from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.matcher import Matcher
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.requests import Constraint, JsonSchemaFormat, LarkFormat, RegexFormat
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.engines.text_engines import (
    GREEDY,
    Driver,
    check_cached,
    expected,
    loaded,
    text_of,
)
from greenroom.tests.support.grammars.json_schemas import PERSON_WITH_TAGS
from greenroom.tests.support.servers.bounded_waits import PATIENCE

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
OTHER = tuple(range(500, 520))
WORDS = RegexFormat("[a-z ]{1,400}")
AMBIGUOUS = LarkFormat("start: a\na: a a | b\nb: /[a-z ]/ | /[a-m]/\n")


def held(folder: Path, requested: Any = WORDS, *, slow: bool = True) -> Matcher:
    """Return a matcher of an unshared constraint whose masks have been slow so far."""
    adapter = loaded(folder)[1]
    compiler = GrammarCompiler(
        GrammarTokenizer(adapter.tokenizer.wrapped, adapter.stop_token_ids), CALL_SYNTAXES
    )
    matcher = compiler.compile(Constraint(requested))
    assert matcher is not None
    if slow:
        matcher.mask_latency.record(100_000.0)
    return matcher


def submit(driver: Driver, matcher: Matcher | None, count: int, parameters: Any = GREEDY) -> str:
    prompt = PROMPT if matcher is None else OTHER
    return driver.submit(prompt, count, parameters, stop_token_ids=frozenset({2}), matcher=matcher)


def alone(folder: Path, requested: Any, count: int, parameters: Any = GREEDY) -> Driver:
    """Return an engine that has answered the request alone, with all masks computed between its steps."""
    driver = Driver(folder)
    submit(driver, held(folder, requested, slow=False), count, parameters)
    driver.run()
    return driver


@attrs.frozen
class Gate:
    """Blocks the threads on which slow masks are computed."""

    opened: threading.Event = attrs.field(factory=threading.Event)

    def close(self) -> None:
        threads = masks.grammar_threads()
        for _ in range(masks.THREADS):
            threads.submit(lambda: self.opened.wait(PATIENCE))

    def open(self) -> None:
        self.opened.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def test_neighbors_go_on_while_a_slow_mask_is_computed(tiny_model: TinyModel, gate: Gate) -> None:
    folder, driver = tiny_model("qwen3"), Driver(tiny_model("qwen3"))
    gate.close()
    submit(driver, held(folder), 30)
    for _ in range(3):
        submit(driver, None, 60)
    while not all(len(tokens) == 60 for tokens in driver.tokens[1:]):
        driver.step()
    assert driver.tokens[0] == []
    gate.open()
    driver.run()
    assert driver.tokens[0] == alone(folder, WORDS, 30).tokens[0]
    assert driver.tokens[1:] == [expected(folder, PROMPT, 60)] * 3


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["qwen3", *soak_only("gemma3", "lfm2")])
def test_a_sequence_that_turns_out_slow_leaves_its_neighbors_and_returns(
    tiny_model: TinyModel, kind: str
) -> None:
    folder, driver = tiny_model(kind), Driver(tiny_model(kind))
    matcher = held(folder, slow=False)
    submit(driver, None, 240)
    submit(driver, matcher, 120)
    submit(driver, None, 240)
    batches, was_slow = list[int](), False
    while driver.engine.has_work:
        driver.step()
        statistics = driver.engine.statistics()
        if statistics.decoding == 3 and len(statistics.batches) not in batches[-1:]:
            batches.append(len(statistics.batches))
        if len(driver.tokens[1]) == 20 and not was_slow:
            matcher.mask_latency.record(60.0)
            was_slow = matcher.mask_latency.is_slow
        if len(driver.tokens[1]) > 40:  # as after many fast masks
            for _ in range(200):
                matcher.mask_latency.record(0.0)
    assert batches == [1, 2, 1]
    assert driver.tokens[1] == alone(folder, WORDS, 120).tokens[0]
    assert driver.tokens[0] == driver.tokens[2] == expected(folder, PROMPT, 240)


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 7},
        {"seed": 7, "n": 3},
        {"seed": 3, "repetition_penalty": 1.3, "logprobs": True, "top_logprobs": 2},
        {"temperature": 0.0},
    ],
    ids=lambda fields: ",".join(fields),
)
def test_an_answer_is_the_same_with_slow_masks(tiny_model: TinyModel, fields: dict[str, Any]) -> None:
    folder = tiny_model("qwen3")
    parameters = GenerationParameters(**{"temperature": 1.0, **fields})
    lone, driver = alone(folder, JsonSchemaFormat(PERSON_WITH_TAGS), 300, parameters), Driver(folder)
    submit(driver, None, 40)
    request_id = submit(driver, held(folder, JsonSchemaFormat(PERSON_WITH_TAGS)), 300, parameters)
    submit(driver, held(folder, JsonSchemaFormat(PERSON_WITH_TAGS)), 5, parameters)
    driver.run()
    assert driver.tokens[1 : 1 + parameters.n] == lone.tokens
    assert text_of(driver.events[request_id]) == text_of(lone.events["0"])
    ends = [[event for event in events if isinstance(event, Finished)] for events in driver.events.values()]
    assert {event.reason for event in ends[1]} == {"stop"}
    assert {event.reason for event in ends[2]} == {"length"}


@pytest.mark.deep
def test_answers_under_one_slow_grammar_do_not_wait_for_each_others_lexer(tiny_model: TinyModel) -> None:
    folder, driver = tiny_model("qwen3"), Driver(tiny_model("qwen3"))
    first = held(folder)
    submit(driver, None, 80)
    submit(driver, first, 40)
    while len(driver.tokens[1]) < 10:
        driver.step()
    for _ in range(3):
        submit(driver, Matcher(first.constraint), 40)
    driver.run()
    lone = alone(folder, WORDS, 40).tokens[0]
    assert driver.tokens == [expected(folder, PROMPT, 80), *[lone] * 4]


def test_a_cancelled_sequence_leaves_while_its_mask_is_computed(tiny_model: TinyModel, gate: Gate) -> None:
    folder, driver = tiny_model("qwen3"), Driver(tiny_model("qwen3"))
    matcher = held(folder)
    free, slow = submit(driver, None, 40), submit(driver, matcher, 40)
    while len(driver.tokens[1]) < 5:
        driver.step()
    gate.close()
    while len(driver.tokens[0]) < 30:
        driver.step()
    driver.engine.cancel(slow)
    driver.run()
    assert driver.events[slow][-1].reason == "cancelled"  # type: ignore[union-attr]
    assert driver.tokens[0] == expected(folder, PROMPT, 40)
    assert driver.events[free][-1].reason == "length"  # type: ignore[union-attr]
    assert not driver.engine.has_work


def test_what_is_cached_of_an_answer_with_slow_masks_is_what_its_row_held(
    tiny_model: TinyModel, gate: Gate
) -> None:
    """While its mask is computed, a row holds a token that is not read; after another's turn it lacks one."""
    folder = tiny_model("qwen3")
    driver = Driver(folder, prefix_cache=PrefixCache(1 << 26))
    short, long = (held(folder, RegexFormat(f"[a-z ]{{{length}}}")) for length in (8, 40))
    prompts = PROMPT, PROMPT[::-1]
    for prompt, matcher in zip(prompts, (short, long), strict=True):
        driver.submit(prompt, 60, matcher=matcher)
    driver.run()
    for prompt, tokens in zip(prompts, driver.tokens, strict=True):
        check_cached(folder, driver.engine.prefix_cache, (*prompt, *tokens))
    ids = [driver.submit((*OTHER, *PROMPT), 90, matcher=Matcher(long.constraint)) for _ in range(2)]
    while len(driver.tokens[3]) < 3:
        assert driver.engine.has_work
        driver.step()
    gate.close()
    for _ in range(3):
        driver.step()
    driver.engine.cancel(ids[0])
    gate.open()
    driver.run()
    check_cached(folder, driver.engine.prefix_cache, (*OTHER, *PROMPT, *driver.tokens[3]))


@pytest.mark.deep
def test_a_sequence_that_sits_out_is_preempted_and_resumes(tiny_model: TinyModel, gate: Gate) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, account=MemoryAccount(kv_limit=3 << 19))
    driver.engine.admission.preemption.max_reserved_tokens = 1
    submit(driver, None, 300)
    submit(driver, held(folder), 300)
    while len(driver.tokens[1]) < 5:
        driver.step()
    gate.close()
    while driver.engine.statistics().admission.preempted == 0:
        assert driver.engine.has_work
        driver.step()
        assert len(driver.tokens[0]) < 300
    gate.open()
    driver.run()
    assert driver.tokens[1] == alone(folder, WORDS, 300).tokens[0]
    assert driver.tokens[0] == expected(folder, PROMPT, 300)


def test_speculation_and_a_slow_grammar(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, speculation=Speculation(PromptLookup()))
    submit(driver, held(folder), 120)
    submit(driver, None, 40)
    driver.run()
    assert driver.tokens[0] == alone(folder, WORDS, 120).tokens[0]
    assert driver.tokens[1] == expected(folder, PROMPT, 40)


@pytest.mark.deep
def test_an_ambiguous_grammar_fails_by_its_limits_and_alone(tiny_model: TinyModel) -> None:
    folder, driver = tiny_model("qwen3"), Driver(tiny_model("qwen3"))
    ids = [submit(driver, None, 200), submit(driver, held(folder, AMBIGUOUS), 2_000)]
    driver.run()
    failed = driver.events[ids[1]][-1]
    assert isinstance(failed, Failed)
    assert failed.problem.code == "grammar_too_complex"
    assert failed.problem.status == 400
    assert driver.tokens[0] == expected(folder, PROMPT, 200)


def test_a_grammar_that_hangs_fails_its_own_sequences(tiny_model: TinyModel, gate: Gate) -> None:
    folder, driver = tiny_model("qwen3"), Driver(tiny_model("qwen3"))
    hung, other = held(folder), held(folder)
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        gate.opened.wait(PATIENCE)

    job = hung.mask_latency.start(hang)
    assert job is not None
    assert begun.wait(PATIENCE)
    assert job.started_at is not None
    job.started_at -= 2 * masks.MAX_JOB_SECONDS
    ids = [submit(driver, hung, 40), submit(driver, other, 40), submit(driver, None, 40)]
    driver.run()
    failed = driver.events[ids[0]][-1]
    assert isinstance(failed, Failed)
    assert failed.problem.code == "grammar_too_complex"
    assert driver.tokens[1] == alone(folder, WORDS, 40).tokens[0]
    assert driver.tokens[2] == expected(folder, PROMPT, 40)
