"""Vision models support all that text models do, with images too, in mixed batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.events import Failed, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedImage
from greenroom.schemas.messages.requests import Constraint, RegexFormat
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import GREEDY, finished, text_of
from greenroom.tests.support.engines.vision_engines import (
    Parts,
    VisionDriver,
    expected,
    library,
    loaded,
    picture,
    prepared,
)
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

ONE: Parts = ["def read(self, ", picture(1), " size=-1): return"]
TWO: Parts = ["Look ", picture(2), " and then ", picture(3), " what is it, and why?"]
OTHER: Parts = ["Look ", picture(4), " and then ", picture(3), " what is it, and why?"]
TEXT: Parts = ["Just text for a change, and nothing else to be seen"]

SETTINGS = (
    GREEDY,
    GenerationParameters(temperature=0.9, seed=5, presence_penalty=0.7, repetition_penalty=1.2),
    GenerationParameters(temperature=1.0, seed=6, top_p=0.9),
    GenerationParameters(temperature=0.0, logprobs=True, top_logprobs=2),
    GenerationParameters(temperature=0.8, seed=7, n=2),
)
# One kind with grid positions, one with DeepStack features, one with sliding windows.
KINDS = ("qwen2_vl", *deep_only("qwen3_vl", "gemma3"))


@pytest.mark.parametrize("kv_bits", [None, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
def test_sampled_answers_are_those_of_solo_runs(
    tiny_vision_model: TinyVisionModel, kind: str, kv_bits: int | None
) -> None:
    folder = tiny_vision_model(kind)
    prompts = [ONE, TWO, TEXT, OTHER, ONE]
    together = VisionDriver(folder, kv_bits)
    for prompt, parameters in zip(prompts, SETTINGS, strict=True):
        together.submit(prompt, 20, parameters)
    together.run()
    alone = VisionDriver(folder, kv_bits)
    for prompt, parameters in zip(prompts, SETTINGS, strict=True):
        alone.submit(prompt, 20, parameters)
        alone.run()
    assert together.tokens == alone.tokens
    assert len({tuple(tokens) for tokens in together.tokens}) == len(together.tokens) == 6


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_a_preempted_answer_about_images_goes_on_as_it_was(
    tiny_vision_model: TinyVisionModel, kind: str
) -> None:
    folder = tiny_vision_model(kind)
    one, two, text, other = (_long(folder, parts) for parts in (ONE, TWO, TEXT, OTHER))
    megabytes = 1.8 if kind == "gemma3" else 3.5  # Half of its layers use a sliding window.
    account = MemoryAccount(kv_limit=int(megabytes * (1 << 20)))
    driver = VisionDriver(folder, account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 1
    for prompt in (one, two, text, other, text, one):
        driver.submit(prompt, 60)
    driver.run()
    assert driver.engine.statistics().admission.preempted > 0
    assert account.kv_limit is not None
    assert account.statistics().peak <= account.kv_limit
    wanted = [expected(folder, prompt, 60) for prompt in (one, two, text, other)]
    assert driver.tokens == [*wanted, wanted[2], wanted[0]]


def test_an_image_that_fits_into_no_memory_is_refused_as_one(tiny_vision_model: TinyVisionModel) -> None:
    account = MemoryAccount(kv_limit=4 << 20)
    driver = VisionDriver(tiny_vision_model("qwen2_vl"), account=account)
    refused = driver.submit(["Look ", picture(1, 600), " what is it?"], 5)
    text = driver.submit(TEXT, 5)
    driver.run()
    (failed,) = driver.events[refused]
    assert isinstance(failed, Failed)
    assert failed.problem.status == 400
    assert "fewer or smaller images" in failed.problem.detail
    assert finished(driver.events[text]).reason == "length"
    assert account.statistics().running == 0


@pytest.mark.soak
def test_a_preempted_answer_about_an_image_goes_on_under_its_grammar(
    tiny_vision_model: TinyVisionModel,
) -> None:
    folder = tiny_vision_model("qwen2_vl")
    _, adapter = loaded(folder)
    known = GrammarCompiler(GrammarTokenizer(adapter.tokenizer.wrapped, adapter.stop_token_ids))
    prompts = [_long(folder, parts) for parts in (ONE, TWO, TEXT, OTHER, TEXT, ONE)]

    def submit(driver: VisionDriver, prompt: Parts) -> None:
        matcher = known.compile(Constraint(RegexFormat("([a-z]{2,9} ){200}")))
        driver.submit(prompt, 60, stop_token_ids=frozenset(adapter.stop_token_ids), matcher=matcher)

    together = VisionDriver(folder, account=MemoryAccount(kv_limit=int(3.5 * (1 << 20))))
    together.engine.admission.preemption.max_reserved_tokens = 1
    alone = VisionDriver(folder)
    for prompt in prompts:
        submit(together, prompt)
        submit(alone, prompt)
        alone.run()
    together.run()
    assert together.engine.statistics().admission.preempted > 0
    assert together.tokens == alone.tokens
    assert {len(tokens) for tokens in together.tokens} == {60}
    assert len({tuple(tokens) for tokens in together.tokens}) == 4


def test_a_stop_string_ends_an_answer_about_an_image(tiny_vision_model: TinyVisionModel) -> None:
    driver = VisionDriver(tiny_vision_model("qwen2_vl"))
    whole = driver.submit(ONE, 20)
    driver.run()
    text = text_of(driver.events[whole])
    stopped = driver.submit(ONE, 20, stop=(text[8:12],))
    driver.run()
    assert text_of(driver.events[stopped]) == text[: text.index(text[8:12])]
    assert finished(driver.events[stopped]).reason == "stop"


@pytest.mark.parametrize("kind", KINDS)
def test_a_grammar_holds_an_answer_about_an_image(tiny_vision_model: TinyVisionModel, kind: str) -> None:
    folder = tiny_vision_model(kind)
    _, adapter = loaded(folder)
    known = GrammarTokenizer(adapter.tokenizer.wrapped, adapter.stop_token_ids)
    driver = VisionDriver(folder)
    matcher = GrammarCompiler(known).compile(Constraint(RegexFormat("[a-f]{3}-[0-9]{2}")))
    held = driver.submit(ONE, 30, stop_token_ids=frozenset(adapter.stop_token_ids), matcher=matcher)
    beside = driver.submit(TWO, 30)
    driver.run()
    text = text_of(driver.events[held])
    assert len(text) == 6
    assert set(text[:3]) <= set("abcdef")
    assert driver.tokens[int(beside)] == expected(folder, TWO, 30)


def test_drafted_tokens_keep_the_positions_of_images(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    driver = VisionDriver(folder, options={"speculation": Speculation(PromptLookup())})
    repeated: Parts = ["one two three one two three ", picture(1), " one two three one two"]
    driver.submit(repeated, 60)
    driver.run()
    assert driver.tokens == [expected(folder, repeated, 60)]


def test_log_probabilities_come_with_answers_about_images(tiny_vision_model: TinyVisionModel) -> None:
    driver = VisionDriver(tiny_vision_model("qwen3_vl"))
    asked = driver.submit(ONE, 10, SETTINGS[3])
    driver.run()
    scores = [s for e in driver.events[asked] if isinstance(e, TextDelta) for s in e.logprobs]
    assert len(scores) == 10
    assert all(score.logprob <= 0 for score in scores)


@pytest.mark.parametrize("kind", [*deep_only("qwen2_vl"), "gemma3"])
@pytest.mark.deep
def test_a_conversation_about_an_image_goes_on_after_a_restart(
    tiny_vision_model: TinyVisionModel, tmp_path: Path, kind: str
) -> None:
    folder = tiny_vision_model(kind)
    filler = "and so on, as it was told before " * 20

    def ask(parts: Parts) -> tuple[list[int], int]:
        tier = DiskTier(tmp_path, "0123456789abcdef" * 2, 1 << 30)
        driver = VisionDriver(folder, options={"prefix_cache": PrefixCache(1 << 28, tier)})
        asked = driver.submit(parts, 20)
        driver.run()
        driver.engine.close()
        return driver.tokens[0], finished(driver.events[asked]).usage.cached

    first: Parts = [filler, picture(1, 300), " what is it? " + filler]
    ask(first)
    answer, cached = ask([*first, "And why?"])
    _, of_another = ask([filler, picture(2, 300), *first[2:], "And why?"])
    assert answer == expected(folder, [*first, "And why?"], 20)
    assert cached > of_another


def test_an_image_is_computed_once_for_all_that_ask_about_it(
    tiny_vision_model: TinyVisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from greenroom.engine.vision.chunked_encoder import ChunkedEncoder

    made = []
    begin = ChunkedEncoder.__init__

    def counting(self: Any, *arguments: Any) -> None:
        made.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(ChunkedEncoder, "__init__", counting)
    folder = tiny_vision_model("qwen2_vl")
    account = MemoryAccount(kv_limit=64 << 20)
    driver = VisionDriver(folder, account=account)
    prompts: list[Parts] = [[f"{index} ", picture(1), " what is it?"] for index in range(4)]
    for prompt in prompts:
        driver.submit(prompt, 10)
    driver.run()
    driver.submit(ONE, 10)
    driver.run()
    assert len(made) == 1
    assert driver.tokens[:4] == [expected(folder, prompt, 10) for prompt in prompts]
    kept = driver.encoder.nbytes
    assert account.statistics().cached == kept > 0
    driver.engine.close()
    assert account.statistics().cached == 0


def test_what_is_kept_of_images_gives_way_to_another_model(tiny_vision_model: TinyVisionModel) -> None:
    account = MemoryAccount(kv_limit=64 << 20)
    driver = VisionDriver(tiny_vision_model("qwen2_vl"), account=account)
    driver.submit(ONE, 2)
    driver.run()
    assert driver.encoder.nbytes > 0
    Share(account).request_eviction(1 << 20, 0.0)
    driver.engine.release_memory()
    assert driver.encoder.nbytes == account.statistics().cached == 0


def test_a_cancelled_image_leaves_nothing_behind(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    account = MemoryAccount(kv_limit=64 << 20)
    slow = PrefillPolicy(idle_ms=0.0)
    driver = VisionDriver(folder, account=account, options={"prefill_policy": slow})
    asked = driver.submit(["Look ", picture(1, 600), " what is it?"], 5)
    for _ in range(3):
        driver.step()
    driver.engine.cancel(asked)
    beside = driver.submit(ONE, 10)
    driver.run()
    assert finished(driver.events[asked]).reason == "cancelled"
    assert driver.tokens[int(beside)] == expected(folder, ONE, 10)
    assert account.statistics().running == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_cannot_be_computed_fails_alone(
    tiny_vision_model: TinyVisionModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_vision_model(kind)
    driver = VisionDriver(folder)
    beside = driver.submit(TWO, 30)
    driver.step()
    broken = _with_broken_images(monkeypatch)
    bad = driver.submit(OTHER, 5)
    broken.undo()
    driver.run()
    last = driver.events[bad][-1]
    assert isinstance(last, Failed)
    assert driver.tokens[int(beside)] == expected(folder, TWO, 30)
    assert driver.engine.statistics().requests == 0


def _long(folder: Path, parts: Parts) -> Parts:
    """Return a prompt whose answer exceeds 256 tokens, the growth step of caches."""
    _, processor = library(folder)
    length, filler = len(prepared(folder, parts)[0]), ""
    while length + len(processor.tokenizer.encode(filler, add_special_tokens=False)) < 232:
        filler += "and so on, "
    return [filler, *parts]


def _with_broken_images(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Make the images of the next prompts lose half of their pixels."""
    from greenroom.tests.support.engines import vision_engines

    whole = vision_engines.prepared

    def broken(folder: Path, parts: Parts) -> tuple[tuple[int, ...], tuple[PreparedImage, ...]]:
        tokens, images = whole(folder, parts)
        halved = []
        for image in images:
            pixels = image.inputs["pixel_values"]
            inputs = {**image.inputs, "pixel_values": np.array(pixels[..., : pixels.shape[-1] // 2])}
            halved.append(attrs.evolve(image, inputs=inputs, digest=b"broken" + image.digest))
        return tokens, tuple(halved)

    patch = pytest.MonkeyPatch()
    patch.setattr(vision_engines, "prepared", broken)
    return patch
