"""Engines over ranks, and requests of all kinds to them and to an engine in one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_model import load_text_lazily
from greenroom.engine.ranks import ranked_engine
from greenroom.engine.ranks.placement import RANK, RankPlace
from greenroom.engine.ranks.ranked_engine import RankedEngine, load_ranks, open_ranked_engine, start_ranks
from greenroom.engine.resources.memory_account import Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.events import InferenceEvent, TextDelta
from greenroom.schemas.messages.requests import InferenceRequest, JsonSchemaFormat, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import finished, loaded, opened
from greenroom.tests.support.servers.forked_commands import ForkedProcess

PROMPT = tuple(range(20, 90))
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12}
DEFAULTS = Settings()
PATIENT = {"SILENT_SECONDS": 300.0, "_READ_SECONDS": 300.0, "_JOIN_SECONDS": 300.0, "_IMPORT_SECONDS": 300.0}
"""Limits that no loaded machine reaches."""
IN_NAMESPACE = ("ip", "netns", "exec")
"""Beginning of a command in a network namespace, which is named next."""
_LIMITS = {name: getattr(ranked_engine, name) for name in PATIENT}


def be_impatient(patch: pytest.MonkeyPatch, silent: float = _LIMITS["SILENT_SECONDS"]) -> None:
    """Wait for ranks no longer than users do, from now on, and so many seconds for one that is silent."""
    for name, seconds in {**_LIMITS, "SILENT_SECONDS": silent}.items():
        patch.setattr(ranked_engine, name, seconds)


def quantized(folder: Path, home: Path) -> Path:
    """Write a model's weights with four bits each."""
    from mlx_lm.utils import load_config, quantize_model, save_config

    model, config = quantize_model(load_text_lazily(folder, Settings()), load_config(folder), 32, 4)
    mx.save_safetensors(str(home / "model.safetensors"), dict(tree_flatten(model.parameters())))
    save_config(config, home / "config.json")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(folder / name, home)
    return home


class _Processes:
    """Start ranks in the place of `subprocess`: as ever, but for those of a plain command."""

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], **options: Any) -> Any:
        plain = RankPlace("", "").command
        inside = command[3:4] if tuple(command[:3]) == IN_NAMESPACE else ()
        if sys.platform == "linux" and tuple(command) == (*(IN_NAMESPACE if inside else ()), *inside, *plain):
            return ForkedProcess(inside, os.environ, writes=True, program=RANK)
        return subprocess.Popen(command, **options)


def fork_ranks(patch: pytest.MonkeyPatch) -> None:
    """Fork ranks from a process that has imported what they need, which takes most of their time."""
    patch.setattr(ranked_engine, "subprocess", _Processes)


@contextmanager
def ranked(
    folder: Path, ranks: int | Sequence[RankPlace], settings: Settings = DEFAULTS, **load: Any
) -> Iterator[RankedEngine]:
    """Open an engine over ranks, or over the ranks at given places, until the end of the block."""
    loads = ModelLoad(folder, detect(folder), settings, **load)
    if isinstance(ranks, int):
        engine = open_ranked_engine(loads, "tiny", ranks)
    else:
        group, share = start_ranks(loads, "tiny", ranks), Share(loads.account)
        load_ranks(group, loads, share)
        engine = RankedEngine(group, share)
    try:
        yield engine
    finally:
        engine.close()
        assert all(child.process.returncode is not None for child in engine.group.children)


def submit(engine: Any, folder: Path, name: str, **fields: Any) -> None:
    overrides = fields.pop("overrides", GREEDY)
    request = InferenceRequest(name, ModelKey("tiny"), RawInput(PROMPT), overrides, **fields)
    engine.submit(request, loaded(folder)[1].prepare_input(request))


def run(engine: Any) -> dict[str, list[InferenceEvent]]:
    found: dict[str, list[InferenceEvent]] = {}
    while engine.has_work:
        for name, event in engine.step():
            found.setdefault(name, []).append(event)
    return found


def check_answers(engine: Any, folder: Path) -> None:
    """Check that an engine answers as one in this process, which may multiply by another library."""
    (found, scores), (wanted, others) = (
        _answers(each, folder) for each in (engine, opened(folder, Settings()))
    )
    assert found == wanted
    assert scores == pytest.approx(others, abs=1e-4)


def _answers(engine: Any, folder: Path) -> tuple[list[Any], list[float]]:
    """Answer eight requests of all kinds; return their tokens and JSON, and log-probabilities."""
    schema = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"]}
    written = JsonSchemaFormat(schema)
    for index in range(5):
        seeded = {"temperature": 1.0, "seed": index, "max_tokens": 8}
        submit(engine, folder, f"s{index}", overrides=seeded if index % 2 else GREEDY)
    submit(engine, folder, "json", response_format=written, overrides={**GREEDY, "max_tokens": 40})
    submit(engine, folder, "scored", overrides={**GREEDY, "logprobs": True, "top_logprobs": 2})
    submit(engine, folder, "cancelled", overrides={**GREEDY, "max_tokens": 4000})
    engine.cancel("cancelled")
    found = run(engine)
    ends = {name: finished(events) for name, events in found.items()}
    assert ends["cancelled"].reason == "cancelled"
    scored = [score for each in found["scored"] if isinstance(each, TextDelta) for score in each.logprobs]
    likeliest = [top for each in scored for top in each.top]
    texts = "".join(each.text for each in found["json"] if isinstance(each, TextDelta))
    submit(engine, folder, "again")
    again = finished(run(engine)["again"])
    assert again.usage.cached
    tokens = [ends[name].tokens for name in sorted(ends) if name != "cancelled"]
    said = [tokens, [each.token for each in scored], [token for token, _ in likeliest], texts]
    scores = [*(each.logprob for each in scored), *(value for _, value in likeliest)]
    return [*said, again.tokens, again.usage.cached], scores


def step_for_ever(engine: RankedEngine) -> None:
    while True:
        engine.step() if engine.has_work else engine.work_idly()
