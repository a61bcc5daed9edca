"""Layers of a model over several ranks, in proportion to the memory of their hosts.

Rank 0 holds the last layers and the head, the last rank the first layers and the embeddings, as mlx-lm's
pipelines do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path

import attrs

from greenroom.engine.catalog.libraries import text_module
from greenroom.engine.catalog.model_files import read_optional, text_config
from greenroom.engine.loading.load_size import LoadSize, PartSizes, part_sizes
from greenroom.engine.ranks.probe_host import free_ports
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError, load_failed, memory_members
from greenroom.schemas.settings.hosts import THIS_HOST, Host, place_ranks, read_hosts
from greenroom.schemas.settings.settings import Settings


@attrs.frozen
class Stage:
    """The layers of one rank, from `start` to before `end`, and the memory that they need. `limit`: bytes
    that it may have on its host.
    """

    host: str
    start: int
    end: int
    size: LoadSize
    limit: int

    @property
    def layers(self) -> int:
        return self.end - self.start

    @property
    def nbytes(self) -> int:
        return self.size.total

    @property
    def room(self) -> int:
        """Bytes that its host has for its KV cache."""
        return self.limit - self.nbytes + self.size.cache


RANK = "greenroom.engine.ranks.rank_process"
"""Module that runs one rank; its arguments come on standard input."""


@attrs.frozen
class RankPlace:
    """The place of one rank.

    Args:
        address: Address and port that its ring socket listens on; `link`: kind of the link with it.
        stage: Its layers; None to divide them evenly on this machine.
        start: What it is told at its start beyond what all ranks are.
    """

    host: str
    address: str
    command: tuple[str, ...] = (sys.executable, "-P", "-m", RANK)
    link: str = "loopback"
    stage: Stage | None = None
    start: Mapping[str, object] = {}

    @property
    def is_local(self) -> bool:
        return self.host == THIS_HOST.ssh


def local_places(ranks: int) -> tuple[RankPlace, ...]:
    """Return places on this machine, with ports that are free now."""
    ip = THIS_HOST.ips[0]
    return tuple(RankPlace(THIS_HOST.ssh, f"{ip}:{port}") for port in free_ports(ip, ranks))


def plan_placement(
    folder: Path,
    record: CapabilityRecord,
    settings: Settings,
    hosts: Sequence[Host],
    rooms: Mapping[str, int],
    name: str,
) -> tuple[Stage, ...]:
    """Return the stages by rank that fill the hosts' memory most evenly.

    Args:
        hosts: Host of each rank; one that appears twice shares its memory.
        rooms: Bytes that ranks may take on each host, by its name.
        name: Name of the model, for errors.

    Raises:
        ProblemError: 507 with all numbers if the parts do not fit; 503 if the model cannot be split.
    """
    try:
        parts = part_sizes(folder, record, settings)
    except (OSError, ValueError) as error:
        raise ProblemError(load_failed(name, f"{error}.")) from error
    check_divisible(folder, settings, len(hosts), name)
    count, shared = len(parts.layers), settings.parallelism == "tensor"
    if count < len(hosts):
        raise ProblemError(load_failed(name, f"it has {count} layers, too few for ranks = {len(hosts)}."))
    limits = [max(1, rooms[host.ssh] // hosts.count(host)) for host in hosts]
    stages = []
    for rank, (start, end) in enumerate([(0, count)] * len(hosts) if shared else _split(parts, limits)):
        size = _stage_size(parts, rank, start, end, len(hosts) if shared else 1)
        stages.append(Stage(hosts[rank].ssh, start, end, size, limits[rank]))
    if any(stage.nbytes > stage.limit for stage in stages):
        raise does_not_fit(name, describe(stages), sum(stage.nbytes for stage in stages), sum(limits))
    return tuple(stages)


def describe(stages: Sequence[Stage]) -> str:
    shared = "its heads of " if len(stages) > 1 and stages[0].start == 0 else ""
    return "; ".join(
        f"rank {rank} on {stage.host} needs {stage.nbytes:,} bytes for {shared}layers {stage.start} to "
        f"{stage.end - 1} and may have {stage.limit:,}"
        for rank, stage in enumerate(stages)
    )


def does_not_fit(name: str, told: str, required: int, available: int) -> ProblemError:
    detail = f"The model '{name}' does not fit its hosts: {told}. Add a host, or set a higher memory_bytes."
    members = memory_members(required, available)
    return ProblemError(Problem(507, "insufficient_memory", detail, members=members))


def size_here(
    folder: Path, record: CapabilityRecord, settings: Settings, whole: LoadSize, limit: int, name: str
) -> LoadSize:
    """Return the memory that a model needs on this machine, where some of its ranks may be.

    Args:
        whole: Memory of the whole model. A host that does not say how much it has counts as large enough.
        limit: Bytes that models may have on this machine.

    Raises:
        ProblemError: As from `plan_placement`.
        ValueError: The settings name wrong hosts, or too few.
    """
    ranks = settings.of_model(name).ranks or 1
    if ranks == 1 or not settings.hosts:
        check_divisible(folder, settings, ranks, name)
        return whole
    hosts = place_ranks(ranks, read_hosts(settings.hosts))
    rooms = {host.ssh: host.memory_bytes or (limit if host.is_here else whole.total) for host in hosts}
    stages = plan_placement(folder, record, settings, hosts, rooms, name)
    return sum((stage.size for stage in stages if stage.host == THIS_HOST.ssh), LoadSize(0))


def _stage_size(parts: PartSizes, rank: int, start: int, end: int, shares: int = 1) -> LoadSize:
    """Return the memory of one of some equal shares of layers, and of the undivided ends beside them."""
    layers = parts.layers[start:end]
    weights, cached = (sum(map(attrgetter(name), layers)) for name in ("weights", "cache"))
    ends = (parts.head if rank == 0 else 0) + (parts.embeddings if start == 0 else 0)
    return LoadSize(weights // shares + ends, parts.working, cached // (shares if parts.divides_cache else 1))


_HEADS = ("num_attention_heads", "num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads")
_SHARDS = re.compile(r"def shard\(|^class Model\((?!nn\.Module)", re.MULTILINE)
"""Pattern of mlx-lm's architectures that can, or inherit it."""


def why_indivisible(folder: Path, settings: Settings, ranks: int) -> str | None:
    """Return why ranks cannot divide the heads of a model, as the end of a sentence; None if they can, or if
    the settings do not ask for that. Widths are checked by each rank, before it reads weights.
    """
    if settings.parallelism != "tensor" or ranks == 1:
        return None
    config = read_optional(folder / "config.json")
    config |= text_config(config)
    code = text_module(architecture := str(config.get("model_type")))
    if code is None or not _SHARDS.search(code.read_text(encoding="utf-8")):
        return f"parallelism = 'tensor' does not work with {architecture}, which mlx-lm cannot shard"
    for name in _HEADS:
        if isinstance(heads := config.get(name), int) and heads % ranks:
            return f"parallelism = 'tensor': {name} = {heads} does not divide by ranks = {ranks}"
    return None


def check_divisible(folder: Path, settings: Settings, ranks: int, name: str) -> None:
    if (why := why_indivisible(folder, settings, ranks)) is not None:
        raise ProblemError(load_failed(name, why))


def _split(parts: PartSizes, limits: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the layers of each rank that keep the fullest rank least full, in proportion to its limit."""

    @cache
    def best(rank: int, end: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Divide the layers before `end` among the ranks from `rank` on, which take them from the last."""
        left = len(limits) - rank - 1
        options = []
        for start in range(left, end) if left else (0,):
            fullness, others = best(rank + 1, start) if left else (0.0, ())
            share = _stage_size(parts, rank, start, end).total / limits[rank]
            options.append((max(fullness, share), ((start, end), *others)))
        return min(options)

    return best(0, len(parts.layers))[1]
