"""Tests of a model in processes of its own: the same answers, and a clear end when one of them is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.ranks import ranked_engine
from greenroom.engine.ranks.placement import local_places
from greenroom.engine.ranks.ranked_engine import (
    RankGroup,
    load_ranks,
    open_ranked_engine,
    start_ranks,
)
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.events import TextDelta
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.engines.ranked_engines import (
    GREEDY,
    ranked,
    requests,
    run,
    step_for_ever,
    submit,
)
from greenroom.tests.support.engines.text_engines import opened


def test_two_ranks_answer_as_one_process_and_end_clearly_when_one_is_lost(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("SILENT_SECONDS", "_READ_SECONDS", "_JOIN_SECONDS"):  # however slow this machine is now
        monkeypatch.setattr(ranked_engine, limit, 120.0)
    folder = tiny_model("qwen3")
    account = MemoryAccount()
    with ranked(folder, 2, account=account) as engine:
        assert requests(engine, folder) == requests(opened(folder, Settings()), folder)
        figures = engine.snapshot()
        assert 0 < figures.memory.cached <= account.charged - figures.memory.weights
        submit(engine, folder, "lost", overrides={**GREEDY, "max_tokens": 4000})
        lose(engine.group, 1, signal.SIGKILL)
        with pytest.raises(ProblemError, match="Rank 1 was ended by signal 9") as caught:
            run(engine)
        assert caught.value.problem.code == "model_crashed"
    assert account.charged == 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["qwen3", "mixtral", "qwen3_next"])
def test_three_ranks_answer_as_one_process(kind: str, tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model(kind, num_hidden_layers=4)
    with ranked(folder, 3) as engine:
        assert requests(engine, folder) == requests(opened(folder, Settings()), folder)


def lose(group: RankGroup, rank: int, sent: signal.Signals) -> float:
    """Send a signal to a rank, and return the time."""
    os.kill(group.children[rank].process.pid, sent)
    return time.monotonic()


@pytest.mark.deep
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_lost_while_it_loads_ends_the_group_within_five_seconds(
    rank: int, sent: signal.Signals, tiny_model: Callable[..., Path]
) -> None:
    folder = tiny_model("qwen3")
    load = ModelLoad(folder, detect(folder), Settings())
    group = start_ranks(load, "tiny", local_places(2))
    while any(child.stage == "importing" for child in group.children):
        group.wait(0.01, working=True)
    lost_at = lose(group, rank, sent)
    with pytest.raises(ProblemError, match="ank") as caught:
        load_ranks(group, load, Share(load.account))
    assert time.monotonic() - lost_at < 5
    assert caught.value.problem.code == "model_crashed"
    assert all(child.process.returncode is not None for child in group.children)


@pytest.mark.deep
@pytest.mark.parametrize("phase", ["prefill", "decode", "idle"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_rank_ends_the_group_within_five_seconds(
    rank: int, sent: signal.Signals, phase: str, tiny_model: Callable[..., Path]
) -> None:
    folder = tiny_model("qwen3")
    with ranked(folder, 2) as engine:
        if phase != "idle":
            submit(engine, folder, "lost", overrides={**GREEDY, "max_tokens": 4000})
        while phase == "decode" and not any(isinstance(event, TextDelta) for _, event in engine.step()):
            pass
        lost_at = lose(engine.group, rank, sent)
        with pytest.raises(ProblemError, match="ank") as caught:
            step_for_ever(engine)
        assert time.monotonic() - lost_at < 5
        assert caught.value.problem.code == "model_crashed"
        assert all(child.process.returncode is not None for child in engine.group.children)


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"kv_bits": 8}, "kv_bits"),
        ({"speculation": "lookup"}, "speculation"),
        ({"draft_model": "other"}, "draft_model"),
        ({"adapter": "sql"}, "adapter"),
    ],
)
def test_a_setting_that_does_not_work_with_ranks_is_refused_by_name(
    table: dict[str, Any], name: str, tiny_model: Callable[..., Path]
) -> None:
    folder = tiny_model("qwen3")
    settings = Settings(model_settings=(("tiny", ModelSettings(**table)),)).applied_to("tiny")
    load = ModelLoad(folder, detect(folder), settings)
    with pytest.raises(ProblemError, match=f"the setting {name} does not work"):
        open_ranked_engine(load, "tiny", 2)
    vision = attrs.evolve(load, record=attrs.evolve(load.record, model_type="vision"))
    with pytest.raises(ProblemError, match="text models alone"):
        open_ranked_engine(vision, "tiny", 2)
