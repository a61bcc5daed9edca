"""Tests that samples follow the distribution of each row's parameters, whatever the other rows request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text import sampling_strategies
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.sampler import Sampler
from greenroom.engine.text.sampling_parameters import SamplingParameters, fold_seed
from greenroom.engine.text.sampling_strategies import (
    attempts,
    exponential,
    log_sum_exp,
    noise_count,
    sample_from_blocks,
    split_into_blocks,
    top_k_candidates,
)
from greenroom.schemas.events.events import InferenceEvent, PromptText, Token, TokenLogprob
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import EchoedPrompt
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.tests.support.engines.logprobs import plain_logprobs
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, finished, loaded, text_of
from greenroom.tests.support.models.tiny_kinds import VOCABULARY

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
LONG = tuple(300 + (7 * i) % 1500 for i in range(300))
SCORED = GenerationParameters(temperature=0.0, logprobs=True, top_logprobs=3)


def chunks_of(tokens: int) -> EchoedPrompt:
    """Return an echo with which at most `tokens` tokens are scored together."""
    return EchoedPrompt(" ", 0, scored=True, vocabulary=64 * MEGABYTE // 4 // tokens)


ECHO = EchoedPrompt(" ", 0, scored=True, vocabulary=VOCABULARY)


def prompt_of(
    events: Sequence[InferenceEvent], index: int = 0
) -> tuple[str, list[Token | None], list[TokenLogprob]]:
    pieces = [event for event in events if isinstance(event, PromptText) and event.index == index]
    scores = [score for piece in pieces for score in piece.logprobs]
    return "".join(piece.text for piece in pieces), [piece.first for piece in pieces], scores


def check(folder: Path, prompt: Sequence[int], events: Sequence[InferenceEvent], index: int = 0) -> None:
    name = loaded(folder)[1].token
    text, firsts, scores = prompt_of(events, index)
    assert firsts == [name(prompt[0]), *[None] * (len(firsts) - 1)]
    assert [score.token for score in scores] == [name(token) for token in prompt[1:]]
    assert text == b"".join(name(token).bytes for token in prompt).decode("utf-8", "replace")
    expected = plain_logprobs(folder, prompt[:1], prompt[1:])
    for row, token, score in zip(expected, prompt[1:], scores, strict=True):
        assert abs(score.logprob - row[token]) < 1e-3
        best = np.argsort(-row)[:3]
        assert [value for _, value in score.top] == pytest.approx(row[best].tolist(), abs=1e-3)


@pytest.mark.parametrize("kind", ["qwen3", *deep_only("lfm2")])
def test_a_prompt_is_scored_as_in_one_pass_beside_others(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder)
    alone = Driver(folder)
    for prompt in (PROMPT, LONG):
        alone.submit(prompt, 8)
    alone.run()
    driver.submit(LONG, 8, SCORED, echo=ECHO)
    driver.submit(PROMPT, 8, GREEDY)
    for _ in range(3):
        driver.step()
    driver.submit(PROMPT, 8, SCORED, echo=ECHO)
    driver.submit(LONG, 8, SCORED, echo=chunks_of(20))
    driver.run()
    for request, prompt in enumerate([LONG, PROMPT, PROMPT, LONG]):
        if request != 1:
            check(folder, prompt, driver.events[str(request)])
        # The answer is what it is without the echo.
        assert driver.tokens[request] == alone.tokens[prompt is LONG]
    assert not any(isinstance(event, PromptText) for event in driver.events["1"])


def test_all_of_a_prompt_comes_before_its_answer(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), max_rows=2)
    driver.submit(LONG, 5, GenerationParameters(n=3, seed=1, logprobs=True), echo=chunks_of(50))
    driver.run()
    events = [event for event in driver.events["0"] if hasattr(event, "index")]
    for index in range(3):
        kinds = [isinstance(event, PromptText) for event in events if event.index == index]
        assert kinds == sorted(kinds, reverse=True)
        assert kinds.count(True) >= len(LONG) // 50
        assert len(prompt_of(driver.events["0"], index)[2]) == len(LONG) - 1


def test_what_is_cached_of_a_prompt_is_scored_too_and_costs_no_one_else_anything(
    tiny_model: TinyModel,
) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, prefix_cache=PrefixCache(64 * MEGABYTE))
    for echo in (None, ECHO, None):
        request = driver.submit(LONG, 3, SCORED if echo else GREEDY, echo=echo)
        driver.run()
        cached = finished(driver.events[request]).usage.cached
        assert (cached > 0) == (request == "2")
    check(folder, LONG, driver.events["1"])
    assert driver.tokens[0] == driver.tokens[1] == driver.tokens[2]


@pytest.mark.deep
def test_a_prompt_that_is_computed_again_is_told_once(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    account = MemoryAccount(kv_limit=3 * MEGABYTE // 2)
    driver = Driver(folder, account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 1
    prompts = [tuple(300 + (i * 11 + j) % 1500 for j in range(230)) for i in range(4)]
    for prompt in prompts:
        driver.submit(prompt, 40, SCORED, echo=chunks_of(60))
    driver.run()
    assert driver.engine.statistics().admission.preempted
    for request, prompt in enumerate(prompts):
        check(folder, prompt, driver.events[str(request)])
        assert finished(driver.events[str(request)]).usage.generated == 40


@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1], PROMPT[:2]])
@pytest.mark.parametrize("n", [1, 2])
def test_only_the_prompt_may_be_wanted(tiny_model: TinyModel, prompt: tuple[int, ...], n: int) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.submit(prompt, 0, GenerationParameters(n=n, logprobs=True, top_logprobs=3), echo=ECHO)
    driver.submit(prompt, 0, GenerationParameters(n=n))
    driver.run()
    for request in ("0", "1"):
        events = driver.events[request]
        ends: list[Any] = [event for event in events if hasattr(event, "reason")]
        assert [(end.reason, end.usage.prompt, end.usage.generated) for end in ends] == [
            ("length", len(prompt), 0)
        ] * n
        assert text_of(events) == ""
    for index in range(n):
        check(folder, prompt, driver.events["0"], index)


def test_characters_that_tokens_share_are_whole_and_what_the_server_added_is_hidden(
    tiny_model: TinyModel,
) -> None:
    folder = tiny_model("qwen3")
    tokenizer = loaded(folder)[1].tokenizer
    text = "a \u6d77 \U0001f30a b"
    tokens = [ident for piece in tokenizer.encode_prompt(text) for ident in piece]
    driver = Driver(folder)
    driver.submit(tokens, 1, SCORED, echo=EchoedPrompt(text, 0, scored=True, vocabulary=64 * MEGABYTE))
    driver.submit([PROMPT[0], *tokens], 1, SCORED, echo=EchoedPrompt(text, 1, scored=True, vocabulary=2048))
    driver.run()
    shown, _, _ = prompt_of(driver.events["0"])
    assert shown == text
    shown, firsts, _ = prompt_of(driver.events["1"])
    assert shown == text
    assert firsts[0] == Token(loaded(folder)[1].token(PROMPT[0]).text, b"")


Counts = np.ndarray[Any, np.dtype[Any]]
ROWS = 4000
"""Number of samples of one distribution, as rows of one large batch with different seeds."""


def sample_counts(logits: Sequence[float], **settings: float) -> Counts:
    """Return the number of samples of each token."""
    rows = [SamplingParameters(**settings, seed=fold_seed(row)) for row in range(ROWS)]  # type: ignore[arg-type]
    tokens = Sampler(rows, [7] * ROWS)(mx.broadcast_to(mx.array(list(logits)), (ROWS, len(logits))))
    return np.bincount(np.array(tokens), minlength=len(logits))


def reference(
    logits: Sequence[float],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
) -> Counts:
    """Return the distribution that the parameters define."""
    scaled = np.array(logits, dtype=np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    order = np.argsort(-weights, kind="stable")
    if top_k:
        weights[order[top_k:]] = 0
    weights /= weights.sum()
    before = np.cumsum(weights[order]) - weights[order]
    outside = order[(before >= top_p) | (weights[order] < min_p * weights.max())]
    weights[outside] = 0
    whole: Counts = weights / weights.sum()
    likely = whole[whole >= xtc_threshold]
    cut = np.where(whole > likely.min(), 0, whole) if len(likely) else whole
    mixed: Counts = xtc_probability * cut / cut.sum() + (1 - xtc_probability) * whole
    return mixed


def fits(counts: Counts, probabilities: Counts) -> bool:
    """Return whether counts pass Pearson's chi-square test at 1 in 10,000 (by Wilson and Hilferty).

    Samples of tokens with zero probability fail the test.
    """
    if counts[probabilities == 0].sum():
        return False
    expected = probabilities * counts.sum()
    common = expected >= 5
    rest = expected[~common].sum()
    statistic = ((counts[common] - expected[common]) ** 2 / expected[common]).sum()
    freedom = int(common.sum()) - 1
    if rest > 0:
        statistic += (counts[~common].sum() - rest) ** 2 / max(rest, 1)
        freedom += 1
    if freedom == 0:
        return True
    spread = 2 / (9 * freedom)
    return bool(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread) < 3.72)


PEAKED = [math.log(40 - i) * 3 for i in range(40)]
SHUFFLED = list(np.random.default_rng(1).permutation(PEAKED))
SETTINGS: list[dict[str, float]] = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_k": 39},
    {"temperature": 1.0, "top_k": 1000},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.7, "top_p": 0.05},
    {"temperature": 1.3, "top_p": 0.6, "min_p": 0.1},
    {"temperature": 1.0, "min_p": 0.2},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.8, "min_p": 0.1},
    {"temperature": 1.5, "top_p": 0.95, "min_p": 0.3},
    {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.02},
    {"temperature": 0.7, "xtc_probability": 0.3, "xtc_threshold": 0.1, "top_p": 0.8},
    {"temperature": 1.2, "xtc_probability": 0.8, "xtc_threshold": 0.03, "top_k": 20, "min_p": 0.2},
    {"temperature": 1.2, "xtc_probability": 0.8, "xtc_threshold": 0.05, "min_p": 0.4},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tokens_follow_the_settings(settings: dict[str, float]) -> None:
    assert fits(sample_counts(SHUFFLED, **settings), reference(SHUFFLED, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [SETTINGS[4], *SETTINGS[7:]], ids=str)
def test_the_test_sees_a_setting_that_is_ignored(settings: dict[str, float]) -> None:
    ignored = sample_counts(SHUFFLED, temperature=settings["temperature"])
    assert not fits(ignored, reference(SHUFFLED, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("top_p", [0.5, 0.9])
@pytest.mark.parametrize("steepness", [0.0001, 0.01])
def test_a_large_vocabulary_is_not_sorted_and_yet_exact(
    top_p: float, steepness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a nearly flat distribution, whose nucleus exceeds the candidates, and a steeper one."""
    monkeypatch.setattr(sampling_strategies, "NUCLEUS_WIDTH", 16)
    logits = [-steepness * ((i * 37) % 100) ** 2 for i in range(100)]
    assert fits(sample_counts(logits, temperature=1.0, top_p=top_p), reference(logits, top_p=top_p))


@pytest.mark.parametrize("top_p", [0.001, 0.05, 0.1, 0.3])
def test_nothing_outside_a_small_share_of_a_flat_distribution_is_sampled(
    top_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nucleus exceeds the candidates, yet is so small that all attempts may be rejected."""
    monkeypatch.setattr(sampling_strategies, "NUCLEUS_WIDTH", 1)
    logits = [-0.0001 * ((i * 37) % 200) for i in range(200)]
    nucleus = reference(logits, top_p=top_p) > 0
    counts = sample_counts(logits, temperature=1.0, top_p=top_p)
    assert counts[~nucleus].sum() == 0
    assert (counts[nucleus] > 0).all()


def test_greedy_rows_among_others_get_the_likeliest() -> None:
    rows = [
        SamplingParameters(temperature=0.0),
        SamplingParameters(temperature=2.0),
        SamplingParameters(temperature=0.0),
    ]
    logits = mx.random.normal((3, 50), key=mx.random.key(3))
    for _ in range(20):
        tokens = np.array(Sampler(rows, [0, 0, 0])(logits))
        assert tokens[[0, 2]].tolist() == np.array(mx.argmax(logits, axis=-1))[[0, 2]].tolist()


@pytest.mark.parametrize("top_k", [-1, 0, 5])
def test_a_nucleus_of_nothing_is_the_likeliest_token(top_k: int) -> None:
    logits = mx.random.normal((1, 50), key=mx.random.key(3))
    for seed in range(10):
        asked = GenerationParameters(temperature=2.0, top_p=0.0, top_k=top_k, seed=seed)
        assert Sampler([SamplingParameters.of(asked)], [0])(logits).item() == mx.argmax(logits).item()


def test_neighbors_and_places_do_not_change_what_a_seed_samples() -> None:
    logits = mx.random.normal((6, 5000), key=mx.random.key(5))
    settings = [
        SamplingParameters(1.0, seed=1),
        SamplingParameters(0.8, top_k=20, seed=2),
        SamplingParameters(1.2, top_p=0.9, seed=3),
        SamplingParameters(0.0),
        SamplingParameters(0.9, top_k=40, top_p=0.5, min_p=0.02, seed=4),
        SamplingParameters(1.0, min_p=0.05, seed=5),
    ]
    together = Sampler(settings, [3] * 6)
    first, second = np.array(together(logits)), np.array(together(logits))
    for row, setting in enumerate(settings):
        alone = Sampler([setting], [3])
        assert [alone(logits[row : row + 1]).item() for _ in range(2)] == [first[row], second[row]]
        late = Sampler([SamplingParameters(), setting], [0, 4])
        assert late(logits[[0, row]])[1].item() == second[row]


def test_positions_sample_anew() -> None:
    sampler = Sampler([SamplingParameters(temperature=1.0, seed=9)], [0])
    flat = mx.zeros((1, 1000))
    assert len({sampler(flat).item() for _ in range(50)}) > 40


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
@pytest.mark.parametrize(("vocabulary", "count"), [(50, 50), (1000, 3), (1003, 60), (4999, 1)])
def test_the_likeliest_are_found(vocabulary: int, count: int, dtype: mx.Dtype) -> None:
    logits = mx.random.normal((5, vocabulary), key=mx.random.key(0)).astype(dtype)
    indices, values = top_k_candidates(logits, count)
    best = -mx.sort(-logits, axis=-1)[:, :count]
    assert mx.array_equal(values, best)
    assert mx.array_equal(mx.take_along_axis(logits, indices, axis=-1), best)


def test_infinite_logits_are_never_sampled() -> None:
    masked = [-math.inf] * 20 + [0.0, 0.5] + [-math.inf] * 20
    for settings in SETTINGS:
        counts = sample_counts(masked, **settings)
        assert counts[:20].sum() + counts[22:].sum() == 0


@pytest.mark.parametrize("top_k", [64, 65, 200, pytest.param(1025, marks=pytest.mark.deep)])
def test_any_top_k_has_candidates_enough(top_k: int) -> None:
    logits = list(np.random.default_rng(3).normal(size=2000))
    settings = {"temperature": 1.3, "top_k": top_k, "top_p": 0.9, "min_p": 0.02}
    assert fits(sample_counts(logits, **settings), reference(logits, **settings))  # type: ignore[arg-type]


def test_xtc_of_a_nucleus_that_is_larger_than_what_is_looked_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling_strategies, "NUCLEUS_WIDTH", 16)
    logits = [2.5, 2.0, 1.5] + [0.0] * 97
    settings = {"top_p": 0.9, "xtc_probability": 0.5, "xtc_threshold": 0.03}
    whole = reference(logits, top_p=1.0)
    nucleus = np.concatenate([whole[:3], np.full(97, (0.9 - whole[:3].sum()) / 97)]) / 0.9
    cut = np.concatenate([[0, 0], nucleus[2:]])
    expected = 0.5 * nucleus + 0.5 * cut / cut.sum()
    counts = sample_counts(logits, temperature=1.0, **settings)
    together = np.array([*counts[:3], counts[3:].sum()])
    assert fits(together, np.array([*expected[:3], expected[3:].sum()]))


@pytest.mark.parametrize("vocabulary", [7, 256, 1009])
def test_sampling_from_blocks_follows_the_weights(vocabulary: int) -> None:
    weights = np.random.default_rng(vocabulary).exponential(size=vocabulary)
    noise = -mx.log(mx.random.uniform(shape=(20_000, noise_count(vocabulary)), key=mx.random.key(1)))
    rows = mx.broadcast_to(mx.array(weights, dtype=mx.float32), (20_000, vocabulary))
    blocks = split_into_blocks(rows)
    sampled, _ = sample_from_blocks(blocks, mx.sum(blocks, axis=-1), noise)
    counts = np.bincount(np.array(sampled)[:, 0], minlength=vocabulary)
    assert fits(counts, weights / weights.sum())


def test_exponentials_are_as_exact_as_they_have_to_be() -> None:
    x = mx.linspace(-10, 0, 10_001)
    assert float(mx.max(mx.abs(exponential(x) / mx.exp(x) - 1))) < 3e-4
    assert exponential(mx.array([-math.inf, -500.0, 0.0])).tolist() == [0, 0, 1]
    logits = mx.random.normal((4, 20_000), key=mx.random.key(2)) * mx.array([[0.0], [1.0], [5.0], [30.0]])
    exact = mx.logsumexp(logits, axis=-1, keepdims=True)
    assert float(mx.max(mx.abs(log_sum_exp(logits) - exact))) < 1e-4


def test_a_nucleus_is_attempted_as_often_as_attempts_may_fail() -> None:
    assert [attempts(top_p) for top_p in (1.0, 0.99, 0.95, 0.9, 0.8, 0.5, 0.1)] == [2, 2, 3, 4, 4, 6, 6]
