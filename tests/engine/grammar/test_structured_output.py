"""Constrained sequences in the real engine loop: their output, and their cost to other sequences."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.matcher import Matcher
from greenroom.schemas.events.events import Failed, Finished, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.requests import Constraint, JsonSchemaFormat, RegexFormat
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.engines.text_engines import Driver, loaded
from greenroom.tests.support.grammars.grammar_walks import accepted_prefix, validate
from greenroom.tests.support.grammars.json_schemas import LONG_ARRAY, PERSON_WITH_TAGS, bounded_schemas
from greenroom.tests.support.models.large_vocabulary import large_tokenizer

TinyModel = Callable[..., Path]
PROMPT = list(range(40, 60))
WARM = GenerationParameters(temperature=1.0)


@cache
def compiler(folder: Path) -> GrammarCompiler:
    adapter = loaded(folder)[1]
    return GrammarCompiler(GrammarTokenizer(adapter.tokenizer.wrapped, adapter.stop_token_ids), CALL_SYNTAXES)


def matcher(folder: Path, constraint: Constraint) -> Matcher:
    compiled = compiler(folder).compile(constraint)
    assert compiled is not None
    return compiled


def submit(driver: Driver, held: Matcher | None, count: int, parameters: Any = WARM) -> str:
    return driver.submit(PROMPT, count, parameters, stop_token_ids=frozenset({2}), matcher=held)


def text(driver: Driver, request_id: str) -> str:
    return "".join(event.text for event in driver.events[request_id] if isinstance(event, TextDelta))


def end(driver: Driver, request_id: str) -> Any:
    return driver.events[request_id][-1]


def write(folder: Path, schemas: Sequence[Any]) -> tuple[int, int]:
    """Generate under all schemas that compile, in one batch; return the counts of ended and cut answers."""
    driver, ended, cut = Driver(folder), 0, 0
    ids = {}
    for index, schema in enumerate(schemas):
        try:
            held = matcher(folder, Constraint(JsonSchemaFormat(schema)))
        except ProblemError:  # random schemas may contradict themselves
            continue
        warm = GenerationParameters(temperature=1.0, seed=index)
        ids[submit(driver, held, 30 if index % 8 == 7 else 3_000, warm)] = schema
    driver.run()
    for request_id, schema in ids.items():
        finished = end(driver, request_id)
        assert isinstance(finished, Finished), finished
        if finished.reason == "stop":
            validate(schema, text(driver, request_id))
            ended += 1
        else:
            assert finished.reason == "length"
            tokens = driver.tokens[int(request_id)]
            assert len(tokens) == 30
            assert accepted_prefix(matcher(folder, Constraint(JsonSchemaFormat(schema))), tokens) == 30
            cut += 1
    return ended, cut


@pytest.mark.deep
def test_a_schema_that_only_endless_values_satisfy_ends_at_max_tokens(tiny_model: TinyModel) -> None:
    folder, schema = tiny_model("qwen3"), {"type": "array", "minItems": 1, "items": {"$ref": "#"}}
    driver = Driver(folder)
    request_id = submit(driver, matcher(folder, Constraint(JsonSchemaFormat(schema))), 200)
    driver.run()
    assert end(driver, request_id).reason == "length"
    assert text(driver, request_id).split()[0][0] == "["


@pytest.mark.deep
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas=st.lists(bounded_schemas(), min_size=16, max_size=16))
def test_bounded_schemas_end_and_validate(tiny_model: TinyModel, schemas: list[Any]) -> None:
    write(tiny_model("qwen3"), schemas)


@pytest.mark.soak
def test_a_thousand_schemas_end_and_validate(tiny_model: TinyModel) -> None:
    totals = [0, 0]

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(schemas=st.lists(bounded_schemas(), min_size=16, max_size=16))
    def soak(schemas: list[Any]) -> None:
        ended, cut = write(tiny_model("qwen3"), schemas)
        totals[0] += ended
        totals[1] += cut

    soak()
    print(f"{totals[0]} answers ended, {totals[1]} were cut")
    assert totals[0] >= 1_000
    assert totals[1] > 0


@pytest.mark.parametrize(
    "parameters",
    [
        {"min_tokens": 300},
        {"ignore_eos": True},
        {"repetition_penalty": 1.8, "presence_penalty": 2.0, "frequency_penalty": -2.0},
        {"logit_bias": ((2, 100.0), (95, -100.0), (5, 100.0))},
        {"xtc_probability": 1.0, "xtc_threshold": 0.05},
        {"top_k": 1, "min_p": 0.9, "temperature": 0.1},
        {"top_p": 0.01},
        {"logit_bias": ((0, 100.0),)},
        {"seed": 7},
        {"seed": 7, "n": 3},
    ],
    ids=lambda parameters: ",".join(parameters),
)
def test_no_setting_loosens_a_grammar(tiny_model: TinyModel, parameters: dict[str, Any]) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    settings = GenerationParameters(**{"temperature": 1.0, **parameters})
    ids = [
        submit(driver, matcher(folder, Constraint(JsonSchemaFormat(PERSON_WITH_TAGS))), 600, settings)
        for _ in range(3)
    ]
    free = submit(driver, None, 40, settings)
    driver.run()
    for request_id in ids:
        for choice in range(settings.n):
            events = driver.events[request_id]
            [finished] = [e for e in events if isinstance(e, Finished) and e.index == choice]
            assert finished.reason == "stop", events[-1]
            validate(
                PERSON_WITH_TAGS,
                "".join(e.text for e in events if isinstance(e, TextDelta) and e.index == choice),
            )
    assert isinstance(end(driver, free), Finished)


def test_a_sequence_whose_grammar_cannot_go_on_fails_alone(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    broken = matcher(folder, Constraint(RegexFormat("[a-z]{50}")))
    alone, driver = Driver(folder), Driver(folder)
    free = submit(alone, None, 30, GenerationParameters(temperature=0.0))
    alone.run()
    ids = [submit(driver, None, 30, GenerationParameters(temperature=0.0)), submit(driver, broken, 50)]
    for _ in range(8):
        driver.step()
    # The grammar does not allow this token: the matcher is in error from here on.
    with pytest.raises(ProblemError):
        broken.accept_token(driver.output_processor.adapter.tokenizer.vocab["9"])
    driver.run()
    failed = end(driver, ids[1])
    assert isinstance(failed, Failed)
    assert isinstance(failed.problem, Problem)
    assert failed.problem.code == "grammar_too_complex"
    assert end(driver, ids[0]).reason == "length"
    assert driver.tokens[0] == alone.tokens[0]
    assert text(driver, ids[0]) == text(alone, free)
    assert driver.engine.statistics().requests == 0


def step_ratio(bare: Driver, held: Driver, steps: int) -> float:
    """Return the ratio of step times, second to first, by medians of alternating steps."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        for driver, seconds in zip((bare, held), spent, strict=True):
            began = time.perf_counter()
            driver.step()
            seconds.append(time.perf_counter() - began)
    return statistics.median(spent[1]) / statistics.median(spent[0])


def eight_sequences(folder: Path, held: Matcher | None) -> Driver:
    """Return a batch of eight greedy sequences that decode, the last of them under that grammar."""
    driver = Driver(folder)
    greedy = GenerationParameters(temperature=0.0)
    for row in range(8):
        submit(driver, held if row == 7 else None, 4_000, greedy)
    while not all(len(tokens) > 2 for tokens in driver.tokens):
        driver.step()
    return driver


@pytest.mark.soak
@pytest.mark.parametrize(("vocabulary", "steps"), [(2_048, 200), (152_000, 40)])
def test_one_constrained_sequence_costs_little_of_a_step_of_eight(
    tiny_model: TinyModel, vocabulary: int, steps: int
) -> None:
    large = vocabulary > 2_048
    folder = tiny_model("qwen3", vocab_size=vocabulary) if large else tiny_model("qwen3")
    known = compiler(folder)
    if large:
        known = GrammarCompiler(GrammarTokenizer(large_tokenizer(), [2]), CALL_SYNTAXES)
    ratios = []
    for _ in range(7):
        bare, held = eight_sequences(folder, None), eight_sequences(folder, known.compile(LONG_ARRAY))
        ratios.append(step_ratio(bare, held, steps))
        assert held.engine.statistics().requests == 8
    print(f"vocabulary {vocabulary}: {[round(ratio, 3) for ratio in sorted(ratios)]}")
    assert statistics.median(ratios) <= 1.15, ratios
