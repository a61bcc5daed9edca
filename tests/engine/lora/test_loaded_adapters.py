"""Tests that rows with adapters answer as mlx-lm's own layers do alone, and rows without as the base."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.loading.load_model import load_model, load_text_lazily
from greenroom.engine.lora.layers import (
    _MOST_PLANS,
    AdaptedLayer,
    AdaptedLinear,
    LoadedAdapter,
    LowRank,
    RowAdapter,
    _step,
    adapted_rows,
    forget_plans,
)
from greenroom.engine.lora.loaded_adapters import MAX_ADAPTERS, _stack
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.host_tier import HostTier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.requests import AppliedAdapter, Constraint, RegexFormat
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.logprobs import scores_of
from greenroom.tests.support.engines.text_engines import Driver, finished, loaded
from greenroom.tests.support.models.tiny_adapters import (
    as_peft,
    make_adapter,
    quantize,
    train_adapter,
    unfused,
)

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 130))
EXPERTS = ("mlp.switch_mlp.gate_proj", "mlp.switch_mlp.up_proj", "mlp.switch_mlp.down_proj")
EVERYWHERE = ("model.embed_tokens", "lm_head", "self_attn.q_proj", "mlp.down_proj")


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    yield
    reference.cache_clear()


@pytest.fixture(scope="module")
def base(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers no other test shares."""
    return own(tiny_model("qwen3"), tmp_path_factory.mktemp("adapted") / "base")


@pytest.fixture(scope="module")
def one(base: Path) -> Path:
    return make_adapter(base, base.parent / "one", 8, EVERYWHERE, seed=1)


@pytest.fixture(scope="module")
def two(base: Path) -> Path:
    return make_adapter(base, base.parent / "two", 16, EVERYWHERE, seed=2)


@cache
def reference(base: Path, adapter: Path | None, fused: bool = False) -> Any:
    """Return a model with mlx-lm's own layers of an adapter."""
    model = load_text_lazily(base, Settings())
    if adapter is not None:
        model = unfused(model, adapter)
        if fused:
            _fuse(model)
    return model


def alone(
    base: Path, adapter: Path | None, prompt: tuple[int, ...], count: int, fused: bool = False
) -> list[int]:
    """Return the greedy answer of mlx-lm with its own layers of an adapter, and nothing beside it."""
    from mlx_lm import stream_generate
    from mlx_lm.models.cache import make_prompt_cache

    model = reference(base, adapter, fused)
    wrapped = loaded(base)[1].tokenizer.wrapped
    made = make_prompt_cache(model)
    answers = stream_generate(model, wrapped, list(prompt), max_tokens=count, prompt_cache=made)
    return [answer.token for answer in answers]


def _fuse(model: Any) -> None:
    from mlx.utils import tree_unflatten

    layers = [(name, each.fuse()) for name, each in model.named_modules() if hasattr(each, "fuse")]
    model.update_modules(tree_unflatten(layers))


def own(base: Path, folder: Path) -> Path:
    """Return a copy of a model, so that no other test shares its layers."""
    return shutil.copytree(base, folder)


def driver_of(base: Path, **options: Any) -> Driver:
    return Driver(base, model=load_model(base, Settings()), **options)


def applied(folder: Path, scale: float = 1.0) -> AppliedAdapter:
    return AppliedAdapter(folder.name, str(folder), scale)


def answers_of(driver: Driver) -> list[list[int]]:
    driver.run()
    return driver.tokens


def check_mixed(base: Path, adapters: Sequence[Path | None], rows: int = 16, count: int = 8) -> None:
    """Check mixed rows against each row alone."""
    driver = driver_of(base)
    chosen = [adapters[index % len(adapters)] for index in range(rows)]
    prompts = [PROMPT[: 8 + index] for index in range(rows)]
    for prompt, adapter in zip(prompts, chosen, strict=True):
        driver.submit(prompt, count, applied=None if adapter is None else applied(adapter))
    tokens = answers_of(driver)
    for index, (prompt, adapter) in enumerate(zip(prompts, chosen, strict=True)):
        assert tokens[index] == alone(base, adapter, prompt, count), (index, adapter)
    assert any(tokens[index] != alone(base, None, prompts[index], count) for index in range(rows))


@pytest.mark.deep
@pytest.mark.parametrize("bits", [None, 4])
def test_mixed_rows_of_trained_adapters_answer_as_alone(
    tiny_model: TinyModel, tmp_path: Path, bits: int | None
) -> None:
    base = own(tiny_model("qwen3"), tmp_path / "base")
    base = base if bits is None else quantize(base, tmp_path / "quantized")
    one = train_adapter(base, tmp_path / "one", [100, 200, 300, 400], rank=8)
    two = train_adapter(base, tmp_path / "two", [500, 600, 700], rank=16)
    check_mixed(base, (None, one, two))
    learned = alone(base, one, (7, 8, 9, 100, 200), 8)
    assert set(learned) <= {100, 200, 300, 400}
    if bits is None:
        assert learned == alone(base, one, (7, 8, 9, 100, 200), 8, fused=True)


@pytest.mark.parametrize(
    ("kind", "bits", "keys"),
    [
        pytest.param("qwen3", 4, EVERYWHERE, marks=pytest.mark.deep),
        ("glm4_moe", None, (*EXPERTS, "self_attn.v_proj")),
        pytest.param("glm4_moe", 4, (*EXPERTS, "self_attn.v_proj"), marks=pytest.mark.deep),
        pytest.param("gemma3", None, ("model.embed_tokens", "mlp.up_proj"), marks=pytest.mark.deep),
        # Its attention is mended for batches.
        ("gemma2", None, ("self_attn.q_proj", "mlp.up_proj")),
        pytest.param("baichuan_m1", None, ("self_attn.W_pack", "self_attn.o_proj"), marks=pytest.mark.deep),
        # Their recurrent blocks compute the rows of a step in pieces.
        ("jamba", None, ("mamba.in_proj", "mamba.x_proj", "mamba.out_proj")),
        pytest.param("mamba", None, ("mixer.in_proj", "mixer.dt_proj"), marks=pytest.mark.deep),
        pytest.param("nemotron_h", 4, ("mixer.q_proj", "mixer.in_proj"), marks=pytest.mark.deep),
        pytest.param(
            "olmo_hybrid", None, ("linear_attn.q_proj", "linear_attn.o_proj"), marks=pytest.mark.deep
        ),
        pytest.param("bailing_moe_linear", None, ("attention.query_key_value",), marks=pytest.mark.deep),
        pytest.param("rwkv7", None, ("attn.r_proj", "ffn.value"), marks=pytest.mark.deep),
        # It has lists of layers, which no adapter may change.
        pytest.param("gemma3n", None, ("self_attn.q_proj", "mlp.up_proj"), marks=pytest.mark.deep),
    ],
)
def test_mixed_rows_answer_as_alone(
    tiny_model: TinyModel, tmp_path: Path, kind: str, bits: int | None, keys: tuple[str, ...]
) -> None:
    base = own(tiny_model(kind), tmp_path / "base")
    base = base if bits is None else quantize(base, tmp_path / "quantized")
    one = make_adapter(base, tmp_path / "one", 8, keys, seed=1)
    two = make_adapter(base, tmp_path / "two", 16, keys, seed=2)
    three = make_adapter(base, tmp_path / "three", 8, keys[-1:], seed=3, layers=2)
    check_mixed(base, (None, one, two, three), rows=5, count=4)


def test_rows_of_several_adapters_answer_as_alone(base: Path, one: Path, two: Path, tmp_path: Path) -> None:
    three = make_adapter(base, tmp_path / "three", 8, EVERYWHERE[:3], seed=3, layers=2)
    check_mixed(base, (None, one, two, three), rows=6, count=5)


@pytest.mark.parametrize("kind", ["qwen3", pytest.param("glm4_moe", marks=pytest.mark.deep)])
@pytest.mark.parametrize("rslora", [False, True])
def test_the_layout_of_peft_gives_the_same_answer(
    base: Path, tiny_model: TinyModel, tmp_path: Path, kind: str, rslora: bool
) -> None:
    base = base if kind == "qwen3" else own(tiny_model(kind), tmp_path / "base")
    keys = ("self_attn.q_proj", *(EXPERTS if "moe" in kind else ("mlp.down_proj",)))
    adapter = make_adapter(base, tmp_path / "one", 8, keys)
    peft = as_peft(adapter, tmp_path / "peft", "base", rslora=rslora)
    driver = driver_of(base)
    driver.submit(PROMPT, 6, applied=applied(peft))
    assert answers_of(driver) == [alone(base, adapter, PROMPT, 6)]


def test_base_rows_are_computed_bit_for_bit_as_without_adapters(base: Path, one: Path) -> None:
    tokens = mx.array([list(PROMPT), list(PROMPT)[::-1], list(PROMPT)])
    plain = load_model(base, Settings())(tokens)
    driver = driver_of(base)
    driver.submit(PROMPT, 1, applied=applied(one))
    answers_of(driver)
    model, row = driver.model, _rows_of(driver)
    assert any(isinstance(each, AdaptedLayer) for _, each in model.named_modules())
    assert mx.array_equal(model(tokens), plain)
    with adapted_rows([_Row(None), _Row(row), _Row(None)]):
        mixed = model(tokens)
    assert mx.array_equal(mixed[0], plain[0])
    assert mx.array_equal(mixed[2], plain[2])
    assert mx.abs(mixed[1] - plain[1]).max() > 0.1
    with adapted_rows([_Row(row)]):
        mine = model(tokens[1:2])
    for fused in (False, True):
        theirs = reference(base, one, fused)(tokens[1:2])
        assert mx.abs(mine - theirs).max() < 1e-4


@pytest.mark.parametrize("order", ["aaa", "ab.", "..b", "cbacbacb", "aaaaabc.", "abcaa..aaa"])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("stacked", [True, False])
def test_rows_in_any_order_get_the_products_of_their_own(order: str, length: int, stacked: bool) -> None:
    mx.random.seed(3)
    layer, x = nn.Linear(12, 20), mx.random.normal((len(order), length, 12))
    lows = [LowRank(mx.random.normal((12, 4)), mx.random.normal((4, 20)), 2.0 + n) for n in range(3)]
    if stacked:
        _stack(lows)
    factors = [1.0, 0.5, 1.0]
    adapters = [
        RowAdapter(LoadedAdapter(each, {"layer": low}), factor)
        for each, low, factor in zip("abc", lows, factors, strict=True)
    ]
    rows = [None if each == "." else "abc".index(each) for each in order]
    with adapted_rows([_Row(None if each is None else adapters[each]) for each in rows]):
        found = AdaptedLinear(layer, "layer")(x)
    plain = layer(x)
    for row, each in enumerate(rows):
        if each is None:
            assert mx.array_equal(found[row], plain[row])
            continue
        low = lows[each]
        wanted = plain[row] + low.scale * factors[each] * (x[row] @ low.a @ low.b)
        assert mx.allclose(found[row], wanted, atol=1e-4), (row, each)


class _Row:
    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter


def test_the_plan_of_running_rows_outlives_those_of_passing_ones() -> None:
    adapter = LoadedAdapter("a", {})
    running, plans = [_Row(None), _Row(RowAdapter(adapter))], set()
    for number in range(3 * _MOST_PLANS):
        with adapted_rows(running):
            plans.add(_step.plan)
        with adapted_rows([_Row(RowAdapter(adapter, 2.0 + number))]):
            assert len(_step.known) <= _MOST_PLANS
    forget_plans()
    assert len(plans) == 1


def _rows_of(driver: Driver) -> Any:
    (adapter,) = driver.engine.adapters._loaded.values()
    return RowAdapter(adapter)


def test_prefixes_are_shared_only_under_the_same_adapter_and_scale(base: Path, one: Path, two: Path) -> None:
    prompt = tuple(range(100, 180))
    driver = driver_of(base, prefix_cache=PrefixCache(1 << 28))
    for asked in (None, applied(one), applied(two), applied(one, 0.5), None, applied(one)):
        driver.submit(prompt, 4, applied=asked)
        driver.run()
    cached = [finished(driver.events[str(index)]).usage.cached for index in range(6)]
    assert cached[:4] == [0, 0, 0, 0]
    assert min(cached[4:]) > 60
    assert driver.tokens[4] == driver.tokens[0] == alone(base, None, prompt, 4)
    assert driver.tokens[5] == driver.tokens[1] == alone(base, one, prompt, 4)
    assert driver.tokens[2] == alone(base, two, prompt, 4)
    assert driver.tokens[3] not in driver.tokens[:3]


@pytest.mark.parametrize("tier", ["disk", "host"])
def test_prefixes_of_adapters_outlast_their_model(
    base: Path, one: Path, two: Path, tmp_path: Path, tier: str
) -> None:
    prompt, account = tuple(range(100, 180)), MemoryAccount()
    cached = []
    for asked in ((applied(one), None), (applied(one), applied(two), applied(one, 0.5), None)):
        stored = DiskTier(tmp_path, "ab" * 16, 1 << 30) if tier == "disk" else None
        below = stored or HostTier(account.held, "model", "same", 1 << 30)
        driver = driver_of(base, prefix_cache=PrefixCache(1 << 28, below), account=account)
        for each in asked:
            driver.submit(prompt, 4, applied=each)
            driver.run()
        cached.append([finished(driver.events[str(index)]).usage.cached for index in range(len(asked))])
        tokens = driver.tokens
        driver.engine.close()
    assert cached[0] == [0, 0]
    assert min(cached[1][0], cached[1][3]) > 60
    assert cached[1][1:3] == [0, 0]
    assert tokens[:2] == [alone(base, each, prompt, 4) for each in (one, two)]
    assert tokens[3] == alone(base, None, prompt, 4)


def test_choices_seeds_and_speculation_stay_those_of_the_adapter(base: Path, one: Path) -> None:
    prompt = (*PROMPT, *PROMPT)
    driver = driver_of(base, speculation=Speculation(PromptLookup()))
    driver.submit(prompt, 8, applied=applied(one))
    assert answers_of(driver) == [alone(base, one, prompt, 8)]
    sampled = GenerationParameters(temperature=1.0, seed=5, n=4)
    results = []
    for beside in (None, one):
        driver.restart()
        driver.submit(PROMPT, 6, sampled, applied=applied(one))
        driver.submit(PROMPT[:9], 6, applied=None if beside is None else applied(beside))
        results.append(answers_of(driver)[:4])
    assert results[0] == results[1]
    assert len({tuple(each) for each in results[0]}) > 1


def test_log_probabilities_and_grammars_are_those_of_the_adapters_rows(base: Path, one: Path) -> None:
    text = loaded(base)[1]
    compiler = GrammarCompiler(GrammarTokenizer(text.tokenizer.wrapped, text.stop_token_ids))
    constraint = Constraint(RegexFormat("[a-z]{2,9}( [0-9]{2,7}){1,4}"))
    scored = GenerationParameters(temperature=0.0, logprobs=True)
    mine, theirs = driver_of(base), Driver(base, model=reference(base, one))
    for driver, asked in ((mine, applied(one)), (theirs, None)):
        driver.submit(PROMPT, 6, scored, applied=asked)
        driver.submit(PROMPT, 6, scored, applied=asked, matcher=compiler.compile(constraint))
    mine.submit(PROMPT, 6, matcher=compiler.compile(constraint))
    assert answers_of(mine)[:2] == answers_of(theirs)
    assert mine.tokens[1] not in (mine.tokens[0], mine.tokens[2])
    for index in ("0", "1"):
        scores = [[each.logprob for each in scores_of(driver.events[index])] for driver in (mine, theirs)]
        assert len(scores[0]) == 6
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_eight_streams_keep_their_tokens_while_adapters_come_and_go(
    base: Path, one: Path, two: Path, tmp_path: Path
) -> None:
    place, driver = shutil.copytree(one, tmp_path / "place"), driver_of(base)
    chosen = (None, one, two, None, one, two, None, one)
    for index, adapter in enumerate(chosen):
        driver.submit(PROMPT[: 8 + index], 10, applied=None if adapter is None else applied(adapter))
    config = place / "adapter_config.json"
    for scale in (2.0, 3.0, 5.0):
        written = json.loads(config.read_text())
        written["lora_parameters"]["scale"] = scale
        config.write_text(json.dumps(written))
        driver.submit(PROMPT[:4], 1, applied=applied(place))
        driver.step()
        driver.step()
        assert driver.engine.adapters.names()[-1][0] == "place"
    driver.engine.adapters.unload(str(place))
    assert {name for name, _ in driver.engine.adapters.names()} == {"one", "two"}
    driver.run()
    for index, adapter in enumerate(chosen):
        assert driver.tokens[index] == alone(base, adapter, PROMPT[: 8 + index], 10)


def test_preempted_rows_resume_with_their_adapter(base: Path, one: Path) -> None:
    driver = driver_of(base, max_rows=2)
    driver.submit(PROMPT, 12, applied=applied(one), client="greedy")
    driver.submit(PROMPT, 12, client="greedy")
    for _ in range(6):
        driver.step()
    driver.submit(PROMPT[:9], 4, applied=applied(one), client="other")
    tokens = answers_of(driver)
    assert driver.engine.statistics().admission.preempted > 0
    wanted = [alone(base, one, PROMPT, 12), alone(base, None, PROMPT, 12), alone(base, one, PROMPT[:9], 4)]
    assert tokens == wanted


def test_the_least_recently_used_adapters_leave_and_their_bytes_with_them(base: Path, tmp_path: Path) -> None:
    keys = ("self_attn.q_proj",)
    first = make_adapter(base, tmp_path / "a0", 2, keys, layers=1)
    folders = [first]
    for index in range(1, MAX_ADAPTERS + 2):
        copy = shutil.copytree(first, tmp_path / f"a{index}")
        config = copy / "adapter_config.json"
        config.write_text(config.read_text().replace('"scale": 4.0', f'"scale": 4.{index}'))
        folders.append(copy)
    driver = driver_of(base)
    for folder in folders:
        driver.submit(PROMPT[:8], 1, applied=applied(folder))
        driver.run()
    adapters = driver.engine.adapters
    each = adapters.names()[0][1]
    assert [name for name, _ in adapters.names()] == [folder.name for folder in folders[2:]]
    assert adapters.nbytes == MAX_ADAPTERS * each == driver.engine.statistics().memory.weights
    driver.restart()
    for folder in (*folders[2:], folders[0]):
        driver.submit(PROMPT[:8], 1, applied=applied(folder))
    driver.run()
    (failed,) = driver.events[str(MAX_ADAPTERS)]
    assert isinstance(failed, Failed)
    assert (failed.problem.status, failed.problem.code) == (503, "adapters_in_use")
    assert [name for name, _ in adapters.names()] == [folder.name for folder in folders[2:]]
    for folder in folders:
        adapters.unload(str(folder))
    assert (adapters.nbytes, driver.engine.statistics().memory.weights) == (0, 0)


def test_running_rows_finish_on_the_adapter_that_was_replaced(
    base: Path, one: Path, two: Path, tmp_path: Path
) -> None:
    place = shutil.copytree(one, tmp_path / "place")
    driver = driver_of(base)
    driver.submit(PROMPT, 20, applied=applied(place))
    for _ in range(6):
        driver.step()
    for name in ("adapters.safetensors", "adapter_config.json"):
        shutil.copy(two / name, place / name)
    driver.submit(PROMPT, 10, applied=applied(place))
    for _ in range(4):
        driver.step()
    driver.engine.adapters.unload(str(place))
    driver.run()
    assert driver.tokens == [alone(base, one, PROMPT, 20), alone(base, two, PROMPT, 10)]
    gc.collect()
    driver.engine.adapters.sweep()
    assert driver.engine.adapters.nbytes == 0


@pytest.mark.deep
def test_two_hundred_cycles_leave_nothing_behind(base: Path, one: Path, two: Path) -> None:
    driver = driver_of(base)
    driver.submit(PROMPT, 450, applied=applied(two), stop_token_ids=frozenset())
    held = []
    for _ in range(200):
        driver.submit(PROMPT[:4], 1, applied=applied(one))
        driver.step()
        driver.step()
        driver.engine.adapters.unload(str(one))
        driver.engine.adapters.sweep()
        held.append((mx.get_active_memory(), driver.engine.statistics().memory.weights))
    driver.run()
    driver.engine.adapters.sweep()
    assert driver.tokens[0][:20] == alone(base, two, PROMPT, 20)
    assert held[-1][0] - held[20][0] < 4_000_000
    assert max(weights for _, weights in held) < 4 * driver.engine.adapters.nbytes


def test_an_adapter_that_the_model_cannot_take_fails_its_own_request_alone(
    base: Path, tiny_model: TinyModel, tmp_path: Path
) -> None:
    other = own(tiny_model("llama", intermediate_size=384, head_dim=16), tmp_path / "other")
    strange = make_adapter(other, tmp_path / "strange", 8)
    driver = driver_of(base)
    driver.submit(PROMPT, 5)
    driver.submit(PROMPT, 5, applied=applied(strange))
    driver.run()
    (failed,) = driver.events["1"]
    assert isinstance(failed, Failed)
    assert failed.problem.code == "load_failed"
    assert "is trained for 384 inputs and 64 outputs" in failed.problem.detail
    assert driver.tokens[0] == alone(base, None, PROMPT, 5)
    assert driver.engine.adapters.names() == ()
