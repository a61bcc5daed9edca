"""Tests of a model in processes of its own: the same answers, and a clear end when one of them is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import LoadSize
from greenroom.engine.loading.read_weights import weight_bytes
from greenroom.engine.ranks.messages import FrameReader, Message, frame
from greenroom.engine.ranks.placement import RankPlace, Stage, local_places, plan_placement, size_here
from greenroom.engine.ranks.rank import join_variables
from greenroom.engine.ranks.ranked_engine import (
    RankedEngine,
    RankGroup,
    load_ranks,
    open_ranked_engine,
    start_ranks,
)
from greenroom.engine.ranks.survey import places_on
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.events import TextDelta
from greenroom.schemas.events.statistics import RankStatus
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.hosts import THIS_HOST
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.engines.ranked_engines import (
    GREEDY,
    PROMPT,
    be_impatient,
    check_answers,
    fork_ranks,
    quantized,
    ranked,
    run,
    step_for_ever,
    submit,
)
from greenroom.tests.support.engines.text_engines import finished, loaded
from greenroom.tests.support.servers.bounded_waits import wait_until

RANK = "from greenroom.engine.ranks import rank_process; rank_process._LINK_SECONDS = 1; rank_process.main()"
IMPATIENT = (sys.executable, "-P", "-c", RANK)
"""Command of a rank that, were it of another machine, would end after one second without a sign of life."""


def test_two_ranks_answer_as_one_process_and_end_clearly_when_one_is_lost(
    tiny_model: Callable[..., Path],
) -> None:
    folder = tiny_model("qwen3")
    account = MemoryAccount()
    places = places_on((THIS_HOST,) * 2, folder, "tiny", detect(folder), Settings(), MemoryAccount(10**9))
    assert [place.start["memory_bytes"] for place in places] == [5 * 10**8] * 2
    places = tuple(attrs.evolve(place, command=IMPATIENT) for place in places)
    with ranked(folder, places, account=account) as engine:
        check_answers(engine, folder)
        figures = engine.snapshot()
        assert 0 < figures.memory.cached <= account.charged - figures.memory.weights
        release_memory(engine, account)
        wait_until(lambda: rests(engine))
        woken = engine.group.children[1].progressed
        engine.release_caches()  # of which there are none
        wait_until(lambda: rests(engine) and engine.group.children[1].progressed > woken)
        refuse_what_cannot_be_sent(engine, folder)
        submit(engine, folder, "lost", overrides={**GREEDY, "max_tokens": 4000})
        lose(engine.group, 1, signal.SIGKILL)
        with pytest.raises(ProblemError, match="Rank 1 was ended by signal 9") as caught:
            run(engine)
        assert caught.value.problem.code == "model_crashed"
    assert account.charged == 0


def rests(engine: RankedEngine) -> bool:
    """Return whether no thread of the ranks computes, or asks for a transfer; True except on Linux."""
    engine.work_idly()
    states = set[str]()
    for child in engine.group.children:
        for task in Path("/proc").glob(f"{child.process.pid}/task/*/stat"):
            with contextlib.suppress(OSError):  # a thread has ended meanwhile
                states.add(task.read_text().rpartition(")")[2].split()[0])
    return states <= {"S"}


def release_memory(engine: RankedEngine, account: MemoryAccount) -> None:
    """Request memory as another model does, and wait until no prefix is cached."""
    calls: list[str] = []
    engine.on_memory_wanted(lambda: calls.append("wanted"))
    assert Share(account).request_eviction(1, 0.0)
    assert calls == ["wanted"]
    engine.release_memory()

    def none_cached() -> bool:
        engine.work_idly()
        return not engine.snapshot().memory.cached

    wait_until(none_cached)
    assert account.charged == engine.snapshot().memory.weights


def refuse_what_cannot_be_sent(engine: RankedEngine, folder: Path) -> None:
    seeded = InferenceRequest("seeded", ModelKey("tiny"), RawInput(PROMPT), {**GREEDY, "seed": 10**20})
    prepared = loaded(folder)[1].prepare_input(seeded)
    with pytest.raises(ProblemError, match="cannot be sent"):
        engine.submit(attrs.evolve(seeded, overrides={"seed": object()}), prepared)
    assert not engine.has_work
    engine.submit(seeded, prepared)
    assert finished(run(engine)["seeded"]).reason == "length"


@pytest.mark.parametrize(
    "sent",
    [
        b"text",
        *map(
            frame, (("events", [], None), ("odd",), ("beat", "x"), ("beat", RankStatus(nbytes=5, layers=0)))
        ),
    ],
)
def test_a_rank_that_sends_no_valid_messages_is_lost(
    sent: bytes, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "sent").write_bytes(sent)
    folder = tiny_model("qwen3")
    load = ModelLoad(folder, detect(folder), Settings())
    silent, odd = RankPlace("a", "", ("sleep", "60")), RankPlace("b", "", ("cat", str(tmp_path / "sent")))
    group = start_ranks(load, "tiny", (silent, odd))
    with pytest.raises(ProblemError, match="Rank 1 on b has sent no valid messages"):
        load_ranks(group, load, Share(load.account))


def test_ranks_on_another_machine_are_charged_to_its_account_until_they_end(
    tiny_model: Callable[..., Path],
) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount()
    load = ModelLoad(folder, detect(folder), Settings(), account=account)
    stage = Stage("studio", 0, 2, LoadSize(600, 50, 50), 1000)
    far = RankPlace("studio", "", ("cat",), stage=stage)
    account.host("studio").limit = 1000
    first = start_ranks(load, "tiny", (far,))
    assert (account.host("studio").charged, account.charged) == (700, 0)
    with pytest.raises(ProblemError, match="rank 0 on studio needs 700 bytes and may have 300"):
        start_ranks(load, "tiny", (far,))
    assert account.host("studio").charged == 700
    first.kill()
    start_ranks(load, "tiny", (far,)).kill()
    assert account.host("studio").charged == 0


@pytest.mark.deep
def test_a_rank_killed_while_it_joins_leaves_no_file(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    load = ModelLoad(folder, detect(folder), Settings())
    joining, absent = local_places(2)
    joining = attrs.evolve(joining, command=("env", f"TMPDIR={tmp_path}", *joining.command))
    group = start_ranks(load, "tiny", (joining, attrs.evolve(absent, command=("sleep", "300"))))
    while group.children[0].status.stage == "importing":
        group.wait(0.01, working=True)
    group.children[0].put("join")
    address, port = joining.address.split(":")

    def is_listening() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((address, int(port)), 1):
            return True
        return False

    wait_until(is_listening)
    group.kill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
def test_a_backend_that_mlx_lacks_is_refused_by_name(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("qwen3")
    load = ModelLoad(folder, detect(folder), Settings())
    start = {"backend": "jaccl", "rdma": [[None]]}
    places = [attrs.evolve(place, start=start) for place in local_places(1)]
    if mx.distributed.is_available("jaccl"):
        pytest.skip("this machine has RDMA")
    with pytest.raises(ProblemError, match="backend 'jaccl' of hosts: MLX has none on this machine"):
        load_ranks(start_ranks(load, "tiny", places), load, Share(load.account))


def test_mlx_gets_the_ranks_as_its_launcher_gives_them() -> None:
    start = {"rank": 1, "hosts": [["10.0.0.1:41000"], ["10.0.0.2:41001"]], "rdma": [[None, "a"], ["b", None]]}
    ring, jaccl = (join_variables({**start, "backend": name}) for name in ("ring", "jaccl"))
    assert json.loads(Path(ring.pop("MLX_HOSTFILE")).read_text()) == start["hosts"]
    assert json.loads(Path(jaccl.pop("MLX_IBV_DEVICES")).read_text()) == start["rdma"]
    assert ring == {"MLX_RANK": "1"}
    assert jaccl == {"MLX_RANK": "1", "MLX_JACCL_COORDINATOR": "10.0.0.1:41000"}


def test_ranks_get_the_texts_of_the_operator_and_not_their_files(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "prompt.txt").write_text("Be kind.")
    folder, settings = tiny_model("qwen3"), Settings(system_prompt=str(tmp_path / "prompt.txt"))
    load = ModelLoad(folder, detect(folder), settings)
    group = start_ranks(load, "tiny", (RankPlace("a", "", ("cat",)),))
    reader, messages = FrameReader(), list[Message]()
    while not messages:
        messages = reader.feed(os.read(group.children[0].output.fileno(), 1 << 20))
    group.kill()
    [(_, start)] = messages
    assert (start["system_prompt"], start["template"]) == ("Be kind.", None)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "sent", "said"),
    [("qwen3", signal.SIGKILL, "Rank 1 was ended by signal 9"), ("quantized", signal.SIGSTOP, "Rank")],
)
def test_ranks_that_share_heads_answer_as_one_process_and_end_when_one_is_lost(
    kind: str,
    sent: signal.Signals,
    said: str,
    tiny_model: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_ranks(monkeypatch)
    folder = quantized(tiny_model("llama"), tmp_path) if kind == "quantized" else tiny_model(kind)
    with ranked(folder, 2, Settings(parallelism="tensor")) as engine:
        check_answers(engine, folder)
        whole, held = weight_bytes(loaded(folder)[0]), [each.nbytes for each in engine.snapshot().ranks]
        assert max(held[1:]) < held[0] < whole
        submit(engine, folder, "lost", overrides={**GREEDY, "max_tokens": 4000})
        if sent is signal.SIGSTOP:
            be_impatient(monkeypatch)
        lose(engine.group, 1, sent)
        with pytest.raises(ProblemError, match=said):
            run(engine)


def lose(group: RankGroup, rank: int, sent: signal.Signals) -> None:
    os.kill(group.children[rank].process.pid, sent)


@pytest.mark.deep
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_lost_while_it_loads_ends_the_group(
    rank: int, sent: signal.Signals, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    load = ModelLoad(folder, detect(folder), Settings())
    fork_ranks(monkeypatch)
    group = start_ranks(load, "tiny", local_places(2))
    while any(child.status.stage in ("importing", "joining") for child in group.children):
        group.wait(0.01, working=True)
    be_impatient(monkeypatch, silent=1.0)
    lose(group, rank, sent)
    with pytest.raises(ProblemError, match="ank") as caught:
        load_ranks(group, load, Share(load.account))
    assert caught.value.problem.code == "model_crashed"
    assert all(child.process.returncode is not None for child in group.children)


@pytest.mark.deep
@pytest.mark.parametrize("phase", ["prefill", "decode", "idle"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_rank_ends_the_group(
    rank: int,
    sent: signal.Signals,
    phase: str,
    tiny_model: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_ranks(monkeypatch)
    folder = tiny_model("qwen3")
    with ranked(folder, 2) as engine:
        if phase != "idle":
            submit(engine, folder, "lost", overrides={**GREEDY, "max_tokens": 4000})
        while phase == "decode" and not any(isinstance(event, TextDelta) for _, event in engine.step()):
            pass
        be_impatient(monkeypatch, silent=1.0)
        lose(engine.group, rank, sent)
        with pytest.raises(ProblemError, match="ank") as caught:
            step_for_ever(engine)
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


@pytest.mark.parametrize(
    ("kind", "ranks", "reason"),
    [
        ("mixtral", 2, "parallelism = 'tensor' does not work with mixtral, which mlx-lm cannot shard"),
        ("qwen3", 3, "num_attention_heads = 4 does not divide by ranks = 3"),
        ("llama", 4, "num_key_value_heads = 2 does not divide by ranks = 4"),
    ],
)
def test_heads_that_ranks_cannot_share_are_refused_by_name(
    kind: str, ranks: int, reason: str, tiny_model: Callable[..., Path]
) -> None:
    folder, tensor = tiny_model(kind), ModelSettings(parallelism="tensor", ranks=ranks)
    settings = Settings(model_settings=(("tiny", tensor),)).applied_to("tiny")
    load = ModelLoad(folder, detect(folder), settings)
    with pytest.raises(ProblemError, match=reason):
        open_ranked_engine(load, "tiny", ranks)
    with pytest.raises(ProblemError, match=reason):
        plan_placement(folder, load.record, settings, [THIS_HOST] * ranks, {"localhost": 10**9}, "tiny")
    with pytest.raises(ProblemError, match=reason):  # as lists and plans tell it
        size_here(folder, load.record, settings, LoadSize(1), 10**9, "tiny")
