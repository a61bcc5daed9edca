"""Tests of ranks in network namespaces of their own, and of the link between them that drops all packets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.ranks.placement import RankPlace
from greenroom.engine.ranks.ranked_engine import RankedEngine, load_ranks, start_ranks
from greenroom.engine.resources.memory_account import Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.events import TextDelta
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.ranked_engines import (
    GREEDY,
    IN_NAMESPACE,
    be_impatient,
    check_answers,
    fork_ranks,
    quantized,
    step_for_ever,
    submit,
)

BRIDGE = f"grbr{os.getpid() % 60_000}"
NET = f"10.{128 + os.getpid() // 256 % 100}.{os.getpid() % 256}"


@pytest.fixture(autouse=True)
def _forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_ranks(monkeypatch)


@contextmanager
def namespaces(count: int) -> Iterator[tuple[RankPlace, ...]]:
    """Make network namespaces with a bridge between them, and yield a rank's place in each."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and Debian's iproute2")
    names = [f"{BRIDGE}n{index}" for index in range(count)]
    try:
        run(f"ip link add {BRIDGE} type bridge", f"ip link set {BRIDGE} up")
        for index, name in enumerate(names):
            run(
                f"ip netns add {name}",
                f"ip link add {BRIDGE}{index} type veth peer name inside netns {name}",
                f"ip link set {BRIDGE}{index} master {BRIDGE} up",
                f"ip -n {name} addr add {NET}.{index + 1}/24 dev inside",
                f"ip -n {name} link set inside up",
                f"ip -n {name} link set lo up",
            )
        command = RankPlace("", "").command
        yield tuple(
            RankPlace("localhost", f"{NET}.{index + 1}:41000", (*IN_NAMESPACE, name, *command))
            for index, name in enumerate(names)
        )
    finally:
        links = [f"ip link del {BRIDGE}{index}" for index in range(count)]  # a namespace's own go later
        for line in (*links, *(f"ip netns del {name}" for name in names), f"ip link del {BRIDGE}"):
            subprocess.run(line.split(), capture_output=True, check=False)


def run(*lines: str) -> None:
    for line in lines:
        if subprocess.run(line.split(), capture_output=True, check=False).returncode:
            pytest.skip(f"this machine makes no network namespaces: {line}")


def cut(rank: int) -> None:
    """Drop all packets of a rank from now on."""
    run(f"ip link set {BRIDGE}{rank} down")


@contextmanager
def linked(folder: Path, ranks: int, **load: Any) -> Iterator[RankedEngine]:
    with namespaces(ranks) as places:
        loads = attrs.evolve(ModelLoad(folder, detect(folder), Settings()), **load)
        group, share = start_ranks(loads, "tiny", places), Share(loads.account)
        engine = RankedEngine(group, share)
        try:
            load_ranks(group, loads, share)
            yield engine
        finally:
            engine.close()
            assert all(child.process.returncode is not None for child in group.children)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "ranks"), [("qwen3", 2), ("mixtral", 3), ("qwen3_next", 3), ("quantized", 3)]
)
def test_ranks_on_hosts_of_their_own_answer_as_one_process(
    kind: str, ranks: int, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_model("llama" if kind == "quantized" else kind, num_hidden_layers=4)
    folder = quantized(folder, tmp_path) if kind == "quantized" else folder
    with linked(folder, ranks) as engine:
        check_answers(engine, folder)


def load_and_step(engine: RankedEngine, load: ModelLoad) -> None:
    """Load a model and use it for ever: weights are read without the link, but the first pass needs it."""
    load_ranks(engine.group, load, Share(load.account))
    submit(engine, load.folder, "lost")
    step_for_ever(engine)


@pytest.mark.deep
@pytest.mark.parametrize("rank", [0, 1])
def test_a_link_cut_while_ranks_load_ends_the_group(
    rank: int, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    with namespaces(2) as places:
        load = ModelLoad(folder, detect(folder), Settings())
        group = start_ranks(load, "tiny", places)
        engine = RankedEngine(group, Share(load.account))
        try:
            while any(child.status.stage in ("importing", "joining") for child in group.children):
                group.wait(0.01, working=True)
            be_impatient(monkeypatch)
            cut(rank)
            with pytest.raises(ProblemError, match=r"no progress for [34] s; the link") as caught:
                load_and_step(engine, load)
            assert caught.value.problem.code == "model_crashed"
        finally:
            engine.close()
        assert all(child.process.returncode is not None for child in group.children)


@pytest.mark.deep
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_cut_link_ends_the_group(
    rank: int, phase: str, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    with linked(folder, 2) as engine:
        submit(engine, folder, "lost", overrides={**GREEDY, "max_tokens": 4000})
        while phase == "decode" and not any(isinstance(event, TextDelta) for _, event in engine.step()):
            pass
        be_impatient(monkeypatch)
        cut(rank)
        with pytest.raises(ProblemError, match="no progress for 3 s; the link") as caught:
            step_for_ever(engine)
        assert caught.value.problem.code == "model_crashed"
