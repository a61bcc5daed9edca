"""Device errors that MLX reports late: affected requests fail, other models are unaffected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.engines.engine_protocol import Engine
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.actors.pool.residence_rules import RestartIntensity
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, TextDelta
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, generate, until
from greenroom.tests.support.engines.late_errors import LateError
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.engines.text_engines import text_of


class NotedEngines(Engines):
    """Real engines that record the thread of each load.

    Attributes:
        threads: Identifier of the thread of the last load, by model.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads: dict[str, int] = {}

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        self.threads[Path(opened.folder).name] = threading.get_ident()
        return super().load_engine(opened, progress, is_abandoned)


PROMPTS = ("Tell me of the sea. " * 40, "Hello there")


async def ask_all(pool: Ref[PoolMessage], late: int) -> list[str | None]:
    """Return the answers to all prompts, requested concurrently; None for one whose model has crashed."""
    answers: list[str | None] = [None] * len(PROMPTS)

    async def ask(index: int) -> None:
        # A different beginning each time prevents hits in the prefix cache.
        prompt = f"{late} {PROMPTS[index]}"
        text, end = await answer(pool, "qwen3", f"{late}-{index}", prompt=prompt, max_tokens=20)
        if isinstance(end, Failed):
            assert end.problem.code == "model_crashed"
        else:
            answers[index] = text

    async with trio.open_nursery() as nursery:
        for index in range(len(PROMPTS)):
            nursery.start_soon(ask, index)
    return answers


@pytest.mark.deep
@pytest.mark.parametrize("lates", [(1, 20), *soak_only(tuple(range(15)))])
async def test_other_models_stream_on_and_no_answer_ends_wrong(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lates: tuple[int, ...]
) -> None:
    monkeypatch.setattr(RestartIntensity, "seconds_left", lambda *_: 0.0)
    async with open_system(attrs.evolve(settings, prefix_cache_bytes=0)) as system:
        whole, _ = await answer(system.pool, "llama", "alone", max_tokens=800)
        right = {late: await ask_all(system.pool, late) for late in lates}
    settings = attrs.evolve(settings, prefix_cache_dir=str(tmp_path))
    engines = NotedEngines(settings)
    async with open_system(settings, engines=engines) as system:
        await answer(system.pool, "qwen3")
        with generate(system.pool, "llama", "other", max_tokens=800) as other:
            beside: list[InferenceEvent] = await until(other, TextDelta)
            for late in lates:
                with monkeypatch.context() as patch:
                    error = LateError(patch, late, thread=engines.threads["qwen3"])
                    answers = await ask_all(system.pool, late)
                    assert error.thrown
                assert None in answers
                assert all(text in (None, wanted) for text, wanted in zip(answers, right[late], strict=True))
                assert await ask_all(system.pool, late) == right[late]
            beside += [event async for event in other]
        assert text_of(beside) == whole
        assert isinstance(beside[-1], Finished)
