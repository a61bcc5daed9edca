"""Layers over ranks by memory, and the agreement of all hosts before they load."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import load_size, part_sizes
from greenroom.engine.ranks.agreement import agreement_of, check_agreement
from greenroom.engine.ranks.placement import plan_placement
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.hosts import Host
from greenroom.schemas.settings.settings import Settings

SETTINGS = Settings(dtype="float32")
A, B = Host("a", ("127.0.0.1",)), Host("b", ("127.0.0.2",))


@pytest.mark.parametrize("kind", ["qwen3", "llama", "mixtral", "gemma2"])
def test_the_parts_are_the_whole(tiny_model: Callable[..., Path], kind: str) -> None:
    folder = tiny_model(kind)
    record = detect(folder)
    parts, whole = part_sizes(folder, record, SETTINGS), load_size(folder, record, SETTINGS)
    weights = sum(layer.weights for layer in parts.layers)
    tied = parts.head > parts.embeddings and kind == "gemma2"
    assert weights + parts.head + (0 if tied else parts.embeddings) == whole.weights
    assert sum(layer.cache for layer in parts.layers) == pytest.approx(whole.cache, abs=len(parts.layers))


@pytest.mark.parametrize("rooms", [(1, 1), (3, 1), (1, 3), (1, 1, 2), (5, 1, 1)])
def test_layers_follow_memory(tiny_model: Callable[..., Path], rooms: tuple[int, ...]) -> None:
    folder = tiny_model("qwen3", num_hidden_layers=8)
    hosts = [Host(name, ("127.0.0.1",)) for name in "abc"[: len(rooms)]]
    limits = [room * 10**9 for room in rooms]
    named = {host.ssh: limit for host, limit in zip(hosts, limits, strict=True)}
    placed = plan_placement(folder, detect(folder), SETTINGS, hosts, named, "x")
    ends = [stage.end for stage in placed]
    assert ends[0] == 8
    assert [stage.start for stage in placed] == [*ends[1:], 0]

    parts = part_sizes(folder, detect(folder), SETTINGS)

    def fullness(split: tuple[int, ...]) -> float:
        layer = parts.layers[0].total
        used = [parts.working + count * layer for count in split]
        used[0] += parts.head
        used[-1] += parts.embeddings
        return max(nbytes / limit for nbytes, limit in zip(used, limits, strict=True))

    every = (each for each in itertools.product(range(1, 9), repeat=len(rooms)) if sum(each) == 8)
    assert fullness(tuple(stage.layers for stage in placed)) == pytest.approx(min(map(fullness, every)))


def test_a_host_of_two_ranks_shares_its_memory(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("qwen3", num_hidden_layers=8)
    shared, apart = (
        plan_placement(folder, detect(folder), SETTINGS, hosts, {"a": 2 * 10**9, "b": 10**9, "c": 10**9}, "x")
        for hosts in ([A, A, B], [B, Host("c", ("127.0.0.3",)), B])
    )
    assert {stage.limit for stage in shared} == {10**9}
    assert apart[1].layers > apart[0].layers


def test_ranks_that_share_heads_have_a_share_of_each_layer(tiny_model: Callable[..., Path]) -> None:
    folder, settings = tiny_model("qwen3"), attrs.evolve(SETTINGS, parallelism="tensor")
    parts, rooms = part_sizes(folder, detect(folder), SETTINGS), {"a": 10**9, "b": 2 * 10**9}
    first, second = plan_placement(folder, detect(folder), settings, [A, B], rooms, "x")
    assert (first.layers, second.layers) == (2, 2)
    assert second.size.weights == parts.embeddings + sum(layer.weights for layer in parts.layers) // 2
    assert first.size.weights - second.size.weights == parts.head
    assert second.size.cache == sum(layer.cache for layer in parts.layers) // 2
    with pytest.raises(ProblemError, match="bytes for its heads of layers 0 to 1 and may have 10"):
        plan_placement(folder, detect(folder), settings, [A, B], {"a": 10, "b": 10}, "x")


@pytest.mark.parametrize(("architecture", "shares"), [("deepseek_v3", 1), ("deepseek_v2", 2)])
def test_a_latent_is_cached_whole_by_each_rank_that_shares_heads(
    tiny_model: Callable[..., Path], tmp_path: Path, architecture: str, shares: int
) -> None:
    """mlx-lm's DeepSeek V2 computes keys and values of each head from the latent before it caches them."""
    settings = attrs.evolve(SETTINGS, parallelism="tensor")
    folder = Path(shutil.copytree(tiny_model("deepseek"), tmp_path / architecture))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": architecture}))
    record = detect(folder)
    whole = sum(layer.cache for layer in part_sizes(folder, record, SETTINGS).layers)
    for stage in plan_placement(folder, record, settings, [A, B], {"a": 10**9, "b": 10**9}, "x"):
        assert stage.size.cache == whole // shares


def test_too_little_memory_is_told_with_numbers(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("qwen3", num_hidden_layers=8)
    record = detect(folder)
    with pytest.raises(ProblemError) as refused:
        plan_placement(folder, record, SETTINGS, [A, B], {"a": 50_000, "b": 60_000}, "x")
    problem = refused.value.problem
    assert (problem.status, problem.code) == (507, "insufficient_memory")
    assert "rank 0 on a needs" in problem.detail
    assert "may have 60,000" in problem.detail
    assert ("available_bytes", 110_000) in problem.members
    with pytest.raises(ProblemError, match="it has 8 layers, too few for ranks = 9"):
        plan_placement(folder, record, SETTINGS, [A] * 9, {"a": 10**9}, "x")


def test_hosts_agree_on_plan_libraries_and_files(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    plan: dict[str, object] = {"model": "x", "split": [1, 1]}
    first = agreement_of(folder, ["model.safetensors"], plan)
    check_agreement(first, agreement_of(folder, ["model.safetensors"], dict(reversed(plan.items()))), "b")

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    weights = copy / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1  # the header and the size stay
    weights.write_bytes(changed)
    (copy / "config.json").unlink()
    own = {**agreement_of(copy, ["model.safetensors"], {**plan, "split": [2, 0]}), "mlx": "0.1"}
    with pytest.raises(ValueError, match="host b differs from rank 0: ") as refused:
        check_agreement(first, own, "b")
    told = str(refused.value)
    assert "mlx is 0.1 there and 0." in told
    assert "config.json is missing there" in told
    assert "model.safetensors is" in told
    assert "plan is" in told
