"""Tests of draft models: correctness, refusal of unsuitable models, and the usage figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.drafters import DraftModel
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequence import Sequence
from greenroom.engine.text.speculation import Speculation, load_speculation
from greenroom.schemas.events.events import Finished, Usage
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, expected, loaded
from greenroom.tests.support.models.tiny_kinds import DEEPER, VOCABULARY
from greenroom.tests.support.servers.http_servers import fetch, serving

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
SAMPLED = GenerationParameters(temperature=0.9, top_p=0.9, seed=7)
SMALL = {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 128}


class Clocked:
    """A model whose passes take a fraction of a tick of a simulated clock; the target's take a whole tick."""

    def __init__(self, model: Any, share: float) -> None:
        self._model = model
        self._share = share
        self._now = 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._now += self._share
        return self._model(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def now(self) -> float:
        self._now += 1
        return self._now / 1000


def drafting(folder: Path, share: float = 0.05) -> Speculation:
    """Return speculative decoding with that model, on a simulated clock."""
    model = Clocked(loaded(folder)[0], share)
    return Speculation(DraftModel(model, VOCABULARY, share), clock=model.now)


def answer(
    folder: Path, parameters: GenerationParameters, speculation: Speculation | None = None, count: int = 70
) -> tuple[list[int], Usage]:
    driver = Driver(folder, speculation=speculation)
    request = driver.submit(PROMPT, count, parameters)
    driver.run()
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    return driver.tokens[0], last.usage


@pytest.mark.parametrize("parameters", [SAMPLED, pytest.param(GREEDY, marks=pytest.mark.soak)])
def test_a_model_that_drafts_for_itself_is_right(
    tiny_model: TinyModel, parameters: GenerationParameters
) -> None:
    folder = tiny_model("qwen3")
    tokens, usage = answer(folder, parameters, drafting(folder))
    assert tokens == answer(folder, parameters)[0]
    assert usage.accepted >= 45
    # Rows may end within a draft, and a pass over several tokens may tell a near tie the other way.
    assert usage.accepted >= 0.95 * usage.drafted


@pytest.mark.parametrize("parameters", [GREEDY, pytest.param(SAMPLED, marks=pytest.mark.soak)])
def test_a_model_that_is_mostly_wrong_changes_nothing_and_is_given_up(
    tiny_model: TinyModel, parameters: GenerationParameters
) -> None:
    folder, other = tiny_model("qwen3"), tiny_model("llama", **SMALL, vocab_size=VOCABULARY + 64)
    tokens, usage = answer(folder, parameters, drafting(other))
    assert tokens == answer(folder, parameters)[0]
    assert 0 < usage.drafted < 60
    assert usage.accepted < usage.drafted / 2


def test_what_was_drafted_wrong_leaves_no_trace(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    text = cast(Any, None)  # nothing of it is decoded
    sequence = Sequence("0", PROMPT, 20, frozenset(), SamplingParameters(), text)
    model, _ = loaded(folder)
    mistaken, fresh = (DraftModel(model, VOCABULARY, 0.1) for _ in range(2))
    mistaken.begin(sequence)
    guessed: Any = mistaken.draft(4).tolist()
    answer = [guessed[0], guessed[1] + 1]
    mistaken.add(answer)
    fresh.begin(sequence)
    fresh.add(answer)
    assert mistaken.draft(4).tolist() == fresh.draft(4).tolist()


def test_sequences_come_and_go_around_a_draft_model(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, speculation=drafting(folder))
    driver.submit(PROMPT, 90)
    for _ in range(12):
        driver.step()
    driver.submit(PROMPT[5:], 20)
    driver.run()
    driver.submit(PROMPT[9:], 40)
    driver.run()
    asked = ((PROMPT, 90), (PROMPT[5:], 20), (PROMPT[9:], 40))
    assert driver.tokens == [expected(folder, prompt, count) for prompt, count in asked]
    usages = [events[-1].usage for events in driver.events.values() if isinstance(events[-1], Finished)]
    assert min(usages[0].accepted, usages[2].accepted) > 15


@pytest.mark.deep
def test_a_long_text_is_read_only_if_that_is_likely_to_pay(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    for share, reads in ((0.02, True), (1.0, False)):
        speculation = drafting(folder, share)
        driver = Driver(folder, speculation=speculation)
        request = driver.submit(tuple(range(100, 400)), 60)
        driver.run()
        last = driver.events[request][-1]
        assert isinstance(last, Finished)
        assert (last.usage.accepted > 20) == reads
        assert driver.tokens[0] == expected(folder, tuple(range(100, 400)), 60)


@pytest.mark.parametrize(("rows_that_fit", "drafts"), [(1.9, False), (4, True)])
def test_a_draft_models_cache_is_in_the_account(
    tiny_model: TinyModel, rows_that_fit: float, drafts: bool
) -> None:
    """The model drafts for itself, so its draft cache is as large as the sequence's."""
    folder = tiny_model("qwen3")
    row_bytes = CacheSizeModel.of(loaded(folder)[0]).nbytes(1, 128)
    account = MemoryAccount(kv_limit=int(rows_that_fit * row_bytes))
    driver = Driver(folder, speculation=drafting(folder), account=account)
    request = driver.submit(PROMPT, 70)
    most = 0
    while driver.engine.has_work:
        driver.step()
        most = max(most, driver.engine.statistics().memory.running)
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    assert (last.usage.drafted > 0) == drafts
    assert most == (2 if drafts else 1) * row_bytes
    assert driver.tokens[0] == expected(folder, PROMPT, 70)


@pytest.mark.deep
def test_drafting_stops_for_another_sequence(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3", **DEEPER)
    row_bytes = CacheSizeModel.of(loaded(folder)[0]).nbytes(1, 128)
    account = MemoryAccount(kv_limit=int(2.6 * row_bytes))
    driver = Driver(folder, speculation=drafting(folder), account=account)
    driver.submit(PROMPT, 150)
    while driver.engine.statistics().memory.running < 2 * row_bytes:
        driver.step()
    driver.submit(PROMPT[5:], 5)
    while not any(isinstance(event, Finished) for event in driver.events["1"]):
        driver.step()
    assert not any(isinstance(event, Finished) for event in driver.events["0"])
    driver.run()
    assert driver.tokens == [expected(folder, PROMPT, 150), expected(folder, PROMPT[5:], 5)]


def load(folder: Path, draft: str, **settings: Any) -> Speculation | None:
    model, adapter = loaded(folder)
    return load_speculation(model, adapter.tokenizer, Settings(draft_model=draft, **settings))


def test_a_draft_model_of_another_vocabulary_is_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    assert load(folder, str(tiny_model("llama"))) is not None
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_model("llama").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, two = sorted(vocabulary, key=vocabulary.__getitem__)[20:22]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ProblemError, match="another vocabulary") as refused:
        load(folder, str(other))
    assert (refused.value.problem.status, refused.value.problem.code) == (503, "load_failed")


def test_a_draft_model_that_is_not_here_is_no_404(tiny_model: TinyModel) -> None:
    with pytest.raises(ProblemError, match="run `greenroom pull org/unknown`") as refused:
        load(tiny_model("qwen3"), "org/unknown")
    assert (refused.value.problem.status, refused.value.problem.code) == (503, "load_failed")


@pytest.mark.deep
async def test_usage_over_http_says_what_was_drafted(tiny_model: TinyModel) -> None:
    large = tiny_model("qwen3", **DEEPER, hidden_size=128)  # so that drafts of the other pay
    folder, draft = str(large), str(tiny_model("llama", **SMALL))
    body = {"model": large.name, "prompt": list(PROMPT), "max_tokens": 64, "temperature": 0}
    answers = {}
    served_as = Settings(models=(folder,), port=0)
    ways = {
        "off": attrs.evolve(served_as, speculation="off", draft_model=draft),
        "draft": attrs.evolve(served_as, draft_model=draft),
    }
    for name, settings in ways.items():
        async with serving(settings) as served:
            answer = await fetch(served.server, "POST", "/v1/completions", body)
            answers[name] = answer.json()
    assert answers["off"]["choices"] == answers["draft"]["choices"]
    usage = answers["draft"]["usage"]
    assert usage["completion_tokens"] == answers["off"]["usage"]["completion_tokens"] == 64
    details = usage["completion_tokens_details"]
    without = answers["off"]["usage"]["completion_tokens_details"]
    assert without["accepted_prediction_tokens"] == without["rejected_prediction_tokens"] == 0
    assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] > 0


def test_models_that_cannot_take_tokens_back_neither_draft_nor_are_drafted_for(tiny_model: TinyModel) -> None:
    assert load(tiny_model("gemma3"), str(tiny_model("qwen3"))) is None
    with pytest.raises(ProblemError, match="cannot be trimmed"):
        load(tiny_model("qwen3"), str(tiny_model("gemma3")))
    assert load(tiny_model("qwen3"), "nobody/has-this", speculation="off") is None
