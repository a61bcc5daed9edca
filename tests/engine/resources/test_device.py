"""Late device errors: no embedding or rerank request ends with different numbers."""

from __future__ import annotations

import gc
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter, open_engine
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.encoding import encoder_engine
from greenroom.engine.encoding.encoder_engine import EncoderEngine
from greenroom.engine.encoding.row_queue import Job
from greenroom.engine.kv_cache.quantization import quantize_kv
from greenroom.engine.loading import batching, batching_table
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.loading.batching_table import CheckResults
from greenroom.engine.loading.invariance_check import InvarianceCheck
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.resources.device_errors import is_device_error
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Score, Vector
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.architectures import make
from greenroom.tests.support.engines.embedders import collect, open_embedder
from greenroom.tests.support.engines.late_errors import LateError
from greenroom.tests.support.engines.rerankers import Reranker, score
from greenroom.tests.support.engines.schedules import deep_only, soak_only
from greenroom.tests.support.engines.text_engines import loaded
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.texts.random_texts import random_texts

Ended = dict[str, list[InferenceEvent]]
LATE = [20, *deep_only(1), *soak_only(0, 2, 3, 5, 9)]


def run(engine: EncoderEngine) -> tuple[Ended, Mapping[str, Job]]:
    """Answer all; return the events of ended requests, and the requests that can continue elsewhere."""
    events: Ended = {}
    left: Mapping[str, Job] = {}
    try:
        while engine.has_work:
            collect(engine.step(), events)
    except RuntimeError:
        left = engine.unbegun()
    engine.close()
    ended = {name: each for name, each in events.items() if isinstance(each[-1], Finished | Failed)}
    return ended, left


def numbers(events: list[InferenceEvent]) -> np.ndarray[Any, Any]:
    """Return the vectors or scores of a request, in its order."""
    assert isinstance(events[-1], Finished), events[-1]
    values = {each.index: np.frombuffer(each.values, "<f4") for each in events if isinstance(each, Vector)}
    values |= {each.index: np.array([each.value]) for each in events if isinstance(each, Score)}
    return np.stack([values[index] for index in sorted(values)])


def check(
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[], EncoderEngine],
    opened: Callable[[], EncoderEngine],
    late: int,
) -> None:
    """Make one pass after another fail, and compare ended requests with their results without failures."""
    right, _ = run(begin())
    for spoiled in range(1, 4):
        engine = begin()
        with monkeypatch.context() as patch:
            error = LateError(patch, late, spoiled)
            ended, left = run(engine)
            assert error.thrown
        assert len(ended) < len(right)
        for name, events in ended.items():
            np.testing.assert_allclose(numbers(events), numbers(right[name]), atol=1e-5)
        following = opened()
        for job in left.values():
            following.resume(job)
        for name, events in run(following)[0].items():
            np.testing.assert_allclose(numbers(events), numbers(right[name]), atol=1e-5)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.deep
def test_no_request_ends_with_other_vectors(
    tiny_encoder: TinyEncoder, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    folder: Path = tiny_encoder("bert")

    def begin() -> EncoderEngine:
        embedder = open_embedder(folder)
        for name, count in (("first", 40), ("second", 2), ("third", 60)):
            embedder.submit(random_texts(count, seed=count), name, client=name)
        return embedder.engine

    check(monkeypatch, begin, lambda: open_embedder(folder).engine, late)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.deep
def test_no_request_ends_with_other_scores(
    tiny_encoder: TinyEncoder, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """The shared prefix of a request's pairs is computed separately."""
    folder: Path = tiny_encoder("qwen3-rerank")

    def begin() -> EncoderEngine:
        model = Reranker(folder)
        for name, query in (
            ("first", " ".join(random_texts(3, longest=30, seed=5))),
            ("second", "who walks"),
        ):
            asked = score(query, tuple(random_texts(60, longest=12, seed=1)))
            request = InferenceRequest(name, asked.key, asked.input, client=name)
            model.engine.submit(request, model.adapter.prepare_input(request))
        return model.engine

    check(monkeypatch, begin, lambda: Reranker(folder).engine, late)


NEVER = 10**6
"""Number of launches beyond those of any load: only a wait for all work could find such an error."""


def open_on(account: MemoryAccount, folder: Path) -> Any:
    model = ModelFolder(folder.name, folder, detect(folder, name=folder.name))
    adapter = open_adapter(model, Settings(), "")
    return open_engine(model, Settings(), lambda fraction: None, lambda: False, account, adapter)


def count_launches(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> int:
    """Return the number of launches that a call makes."""
    count = 0

    def counted(launch: Callable[..., None]) -> Callable[..., None]:
        def launching(*arrays: Any) -> None:
            nonlocal count
            count += 1
            launch(*arrays)

        return launching

    with monkeypatch.context() as patch:
        for name in ("async_eval", "eval"):
            patch.setattr(mx, name, counted(getattr(mx, name)))
        call()
    return count


@pytest.fixture(params=["text", "embeddings", "speech", *deep_only("vision", "rerank", "transcription")])
def folder(
    request: pytest.FixtureRequest,
    tiny_model: TinyModel,
    tiny_vision_model: TinyVisionModel,
    tiny_encoder: TinyEncoder,
    tiny_pocket: Path,
    tiny_whisper: Path,
) -> Path:
    """Return the folder of a model of each kind."""
    match request.param:
        case "text":
            return tiny_model("qwen3")
        case "vision":
            return tiny_vision_model("qwen2_5_vl")
        case "embeddings":
            return tiny_encoder("bert")
        case "rerank":
            return tiny_encoder("qwen3-rerank")
        case "speech":
            return tiny_pocket
        case _:
            return tiny_whisper


def test_no_engine_comes_of_a_load_in_which_the_device_has_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MIN_SECONDS", 0.0)  # more time, more launches
    monkeypatch.setattr(batching, "SHARE_OF_LOAD", 0.0)
    monkeypatch.setattr(encoder_engine, "_LONGEST", math.inf)  # likewise, a slow moment leaves passes out
    account = MemoryAccount()
    launches = count_launches(monkeypatch, lambda: open_on(account, folder).close())
    for spoiled in {1, 2, launches // 2, launches - 1, launches} - {0}:
        with monkeypatch.context() as patch:
            error = LateError(patch, NEVER, spoiled)
            with pytest.raises(Exception, match="METAL") as raised:
                open_on(account, folder)
            assert error.thrown
        assert is_device_error(raised.value)
        del raised
        gc.collect()
        assert account.statistics().weights == 0
    open_on(account, folder).close()


class Memory:
    """Stored results of batch-invariance checks, in this process and in the user's cache folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._process: dict[str, CheckResults] = {}
        self._folder = folder
        monkeypatch.setattr(batching_table, "_of_this_process", self._process)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))

    @property
    def is_empty(self) -> bool:
        return not self._process and not any(self._folder.rglob("batching.json"))

    def clear(self) -> None:
        self._process.clear()
        shutil.rmtree(self._folder)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Memory:
    """Start without results for any model, and without a time limit of the check."""
    monkeypatch.setattr(batching, "MIN_SECONDS", 600.0)
    monkeypatch.setattr(batching, "table", dict)
    return Memory(monkeypatch, tmp_path / "cache")


@pytest.mark.parametrize("late", [0, *deep_only(NEVER), *soak_only(1, 2, 3)])
@pytest.mark.deep
def test_nothing_is_remembered_of_a_proof_in_which_the_device_has_failed(
    tiny_model: TinyModel,
    monkeypatch: pytest.MonkeyPatch,
    memory: Memory,
    late: int,
) -> None:
    folder = tiny_model("mamba")
    launches = count_launches(monkeypatch, lambda: load_model(folder, Settings()))
    assert not memory.is_empty
    memory.clear()
    for spoiled in range(1, launches + 1):
        with monkeypatch.context() as patch:
            error = LateError(patch, late, spoiled)
            with pytest.raises(ProblemError, match="METAL"):
                load_model(folder, Settings())
            assert error.thrown
        assert memory.is_empty


def test_nor_of_one_in_a_pause_which_the_engine_does_not_survive(
    monkeypatch: pytest.MonkeyPatch, memory: Memory
) -> None:
    model = make("llama")
    proof = BackgroundCheck(model, InvarianceCheck(model), "key")
    LateError(monkeypatch, NEVER)
    with pytest.raises(RuntimeError, match="METAL"):
        proof.advance()
    assert memory.is_empty


def test_caches_are_not_left_unquantized_for_an_error_of_the_device(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = loaded(tiny_model("qwen3"))
    LateError(monkeypatch, 1)
    with pytest.raises(RuntimeError, match="METAL"):
        quantize_kv(model, 4)
