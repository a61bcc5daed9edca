"""Survey of hosts: the place of each rank of a model, and what their owner should know of them and of their
links.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.model_files import read_optional, text_config
from greenroom.engine.ranks import probe_host
from greenroom.engine.ranks.agreement import LIBRARIES, Agreement, agreement_of, check_agreement
from greenroom.engine.ranks.placement import RANK, RankPlace, describe, plan_placement
from greenroom.engine.ranks.probe_host import HostReport
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError, load_failed
from greenroom.schemas.settings.hosts import MAX_HOSTS, Host, place_ranks, read_hosts
from greenroom.schemas.settings.settings import Settings

log = get_logger()
T = TypeVar("T")
A = TypeVar("A")
_Figure = Annotated[float, msgspec.Meta(gt=0)]

SSH = shlex.split(
    "ssh -T -a -x -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=1 -o ServerAliveCountMax=4 "
    "-o ControlMaster=no -o ControlPath=none -o ClearAllForwardings=yes"
)
"""ssh without questions, which ends some 5 s after its link is cut, and lends no connection, key or port of
this machine. Without a terminal, standard input is a clean pipe, whose end tells the far process that this
one is gone."""

_PROBE = "greenroom.engine.ranks.probe_host"
_ANSWER_SECONDS = 30.0
_ALONE, _PROMPT = 20.0, 1_000  # Tokens per second, and tokens of the prompt, in the example


def command_on(host: Host, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a host's Python with arguments, such as `-m` and a module."""
    # ssh would not pass on variables of this process.
    command = [*(("env", *host.envs) if host.envs else ()), host.python or sys.executable, *arguments]
    return command if host.is_here else [*SSH, "--", host.ssh, f"exec {shlex.join(command)}"]


def ask(host: Host, question: Mapping[str, Any], kind: type[T]) -> T:
    """Return the answer of `probe_host` on a host.

    Raises:
        ValueError: One sentence that names the host: ssh fails, it does not answer, or has no Greenroom.
    """
    command = command_on(host, ["-P", "-m", _PROBE, json.dumps(question)])
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"host {host.ssh} did not answer in time") from None
    except OSError as error:
        raise ValueError(f"host {host.ssh}: {error.filename}: {error.strerror}") from error
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300] or "it said nothing"
    why = f"its probe ended with status {done.returncode} ({said})" if done.returncode else None
    if done.returncode == 255 and not host.is_here:
        why = f"ssh fails ({said}): `ssh {host.ssh} true` must work without a question"
    elif done.returncode in (126, 127) or (done.returncode and "No module named" in said):
        where = f"{host.python or sys.executable} has no Greenroom there"
        why = f"{where} ({said}): install it, or name another Python by `python`"
    if why is not None:
        raise ValueError(f"host {host.ssh}: {why}")
    try:
        return msgspec.json.decode((done.stdout.splitlines() or [b""])[-1], type=kind)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"host {host.ssh} does not answer as this version does: {error}") from None


def _at_once(function: Callable[[A], T], arguments: Sequence[A]) -> list[T]:
    with ThreadPoolExecutor(len(arguments)) as pool:
        return [*pool.map(function, arguments)]


def weight_files(folder: Path | None) -> list[str]:
    return [] if folder is None else sorted(file.name for file in folder.glob("model*.safetensors"))


def ask_reports(hosts: Sequence[Host], folder: Path | None, model: str) -> dict[str, HostReport]:
    """Return the reports of hosts by name. All are asked at once."""
    known = [*dict.fromkeys(hosts)]
    asked: dict[str, Any] = {"folder": _portable(folder), "model": model, "files": weight_files(folder)}

    def report(host: Host) -> HostReport:
        if host.is_here and host.python is None:
            return probe_host.report(**asked, ip=host.ips[0])
        try:
            return ask(host, {"ask": "report", **asked, "ip": host.ips[0]}, HostReport)
        except ValueError as error:
            return HostReport(str(error))

    return dict(zip((host.ssh for host in known), _at_once(report, known), strict=True))


def _portable(folder: Path | None) -> str:
    """Return a folder's path as another machine may have it: from `~` on, if it is below the home folder."""
    home, path = os.path.expanduser("~"), str(folder or "")
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path


Finding = tuple[str, str, bool]
"""A host or link, a sentence about it, and True for a fault."""


def examine(host: Host, report: HostReport, folder: Path | None, here: Agreement) -> Iterator[Finding]:
    """Yield what a host has and lacks for a rank. `here`: what it must have as rank 0 has it."""
    if report.fault:
        yield host.ssh, report.fault, True
        return
    how, ip = "this machine" if host.is_here else "reached by ssh", host.ips[0]
    libraries = ", ".join(f"{name} {report.agreement.get(name)}" for name in LIBRARIES)
    yield host.ssh, f"{how}; {libraries}", False
    if len(report.ports) == MAX_HOSTS:
        yield host.ssh, f"{ip} is {report.interface} ({report.link})", False
    else:
        yield host.ssh, f"host {host.ssh}: no interface there has the address {ip}", True
    if ip.startswith("169.254."):
        text = f"{ip} is link-local and may change at every start: give the interface a fixed address"
        yield host.ssh, text, False
    if folder is not None and report.folder is None:
        where = f"neither at {_portable(folder)} nor in its hub's cache"
        yield host.ssh, f"host {host.ssh} has no files of the model, {where}", True
        return
    if folder is not None:
        yield host.ssh, f"has the files of the model, in {report.folder}", False
    try:
        check_agreement(here, {name: report.agreement.get(name, "missing") for name in here}, host.ssh)
    except ValueError as error:
        yield host.ssh, str(error), True


def rooms_of(
    hosts: Sequence[Host], reports: Mapping[str, HostReport], account: MemoryAccount
) -> dict[str, int]:
    """Return the bytes that ranks may take on each host, elsewhere beside those of other models."""
    rooms: dict[str, int] = {}
    for host in hosts:
        report, its = reports[host.ssh], account.host(host.ssh)
        limit = host.memory_bytes or (account.limit or report.memory_bytes if host.is_here else None)
        its.limit = limit or min(report.memory_bytes, report.free_bytes + its.charged)
        rooms[host.ssh] = its.limit - its.charged
    return rooms


def places_on(
    hosts: Sequence[Host],
    folder: Path,
    name: str,
    record: CapabilityRecord,
    settings: Settings,
    account: MemoryAccount,
) -> tuple[RankPlace, ...]:
    """Return the places of a model's ranks, one on each of `hosts`, after these have shown what they have.

    Raises:
        ProblemError: A host cannot be reached, lacks or differs in something, or has too little memory.
    """
    reports = ask_reports(hosts, folder, name)
    libraries = agreement_of(folder, ())
    for host in hosts:
        for _, text, is_fault in examine(host, reports[host.ssh], folder, libraries):
            if is_fault:
                raise ProblemError(load_failed(name, f"{text}."))
    stages = plan_placement(folder, record, settings, hosts, rooms_of(hosts, reports, account), name)
    addresses = [f"{host.ips[0]}:{reports[host.ssh].ports.pop()}" for host in hosts]
    if any(reports[host.ssh].link != "loopback" for host in hosts):
        log.warning(
            "ranks listen without authentication",
            model=name,
            addresses=", ".join(addresses),
            effect="whoever reaches these addresses can read and change what the model computes",
        )
    split = tuple(stage.layers for stage in stages)
    plan = {"model": name, "split": split, "ring": [[address] for address in addresses]}
    agreement = agreement_of(folder, weight_files(folder), plan)  # which each rank compares with its own
    return tuple(
        RankPlace(
            host.ssh,
            address,
            tuple(command_on(host, ["-P", "-m", RANK])),
            reports[host.ssh].link,
            stage,
            {
                "host": host.ssh,
                "backend": "jaccl" if host.rdma else "ring",
                "rdma": [each.rdma[: len(hosts)] for each in hosts],
                "folder": reports[host.ssh].folder,
                "memory_bytes": stage.limit,
                "split": split,
                "agreement": agreement,
                "files": weight_files(folder),
            },
        )
        for host, stage, address in zip(hosts, stages, addresses, strict=True)
    )


def check_hosts(named: Sequence[str], model: str | None, settings: Settings) -> Iterator[Finding]:
    """Yield the findings of all hosts, their links and a model's split. `named`: hosts as in the setting; if
    empty, those of the settings for the model.

    Raises:
        ProblemError: There is no such model.
        ValueError: There are no hosts, a host is wrong, or they are fewer than the model's ranks.
    """
    name, folder, ranks = "", None, 1
    if model is not None:
        entry = Catalog.of(settings).find(model)
        if isinstance(entry, Problem):
            raise ProblemError(entry)
        if (folder := entry.folder) is None:
            raise ProblemError(load_failed(model, "its files are not here."))
        name = entry.hub_id or entry.id  # by which the hosts' hub caches may have it
        settings, ranks = settings.applied_to(entry.id), settings.of_model(entry.id).ranks or 1
    if not (hosts := read_hosts(named or settings.hosts)):
        raise ValueError("name hosts: a file HOSTS.json, SSH=ADDRESS, or the setting `hosts`")
    hosts = place_ranks(ranks if ranks > 1 else len(hosts), hosts)
    reports = ask_reports(hosts, folder, name)
    here = agreement_of(folder or Path("/nonexistent"), weight_files(folder))
    any_fault = False
    for host in dict.fromkeys(hosts):
        for finding in examine(host, reports[host.ssh], folder, here):
            any_fault |= finding[2]
            yield finding
    if any_fault:
        return
    rooms = rooms_of(hosts, reports, MemoryAccount(settings.memory_bytes))
    for ssh, room in rooms.items():
        yield ssh, f"ranks may have {room / 1e9:.1f} GB there", False
    yield from _check_links(hosts, reports, folder, settings.parallelism == "tensor")
    if folder is not None:
        try:
            record = detect(folder, settings.trust_remote_code, name)
            yield "split", describe(plan_placement(folder, record, settings, hosts, rooms, name)), False
        except ProblemError as error:
            yield "split", error.problem.detail, True


def _check_links(
    hosts: Sequence[Host], reports: Mapping[str, HostReport], folder: Path | None, shares_layers: bool
) -> Iterator[Finding]:
    """Yield what the links of the ring can do, each measured once."""
    links: dict[frozenset[str], tuple[Host, Host]] = {}
    for ends in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
        links.setdefault(frozenset(host.ssh for host in ends), ends)
    figures: list[tuple[float, float]] = []
    for first, second in links.values() if len(hosts) > 1 else ():
        subject, (one, other) = f"{first.ssh} → {second.ssh}", (reports[first.ssh], reports[second.ssh])
        # Two ports of one machine, unless it is both.
        addresses = f"{first.ips[0]}:{one.ports[0]}", f"{second.ips[0]}:{other.ports[-1]}"
        try:
            latency, bandwidth = measure_link((first, second), addresses)
        except ValueError as error:
            yield subject, str(error), True
            continue
        figures.append((latency, bandwidth))
        yield subject, f"{latency * 1000:.2f} ms one way, {bandwidth / 1e9:.2f} GB/s", False
        yield subject, possible_transport(one, other), False
    if figures:
        latencies, bandwidths = zip(*figures, strict=True)
        config = {} if folder is None else read_optional(folder / "config.json")
        config |= text_config(config)
        width, layers = int(config.get("hidden_size") or 4_096), int(config.get("num_hidden_layers") or 32)
        sums = 2 * layers if shares_layers else 0
        yield "expect", expectation(len(hosts), max(latencies), min(bandwidths), 2 * width, sums), False
    if any(reports[host.ssh].link != "loopback" for host in hosts):
        text = "the ring has no authentication and no encryption: keep it on a cable or network of your own"
        yield "safety", text, False


def measure_link(ends: Sequence[Host], addresses: Sequence[str]) -> tuple[float, float]:
    """Return the latency and bandwidth between two hosts. Raises ValueError: they do not connect."""

    def measure(rank: int) -> tuple[float, float]:
        question = {"ask": "measure", "rank": rank, "addresses": addresses}
        return ask(ends[rank], question, tuple[_Figure, _Figure])

    try:
        return _at_once(measure, (0, 1))[0]
    except ValueError as error:
        raise ValueError(f"no link from {addresses[0]} to {addresses[1]}: {error}") from None


def possible_transport(*ends: HostReport) -> str:
    """Return a sentence on the fastest transport that the hardware of both ends can ever have."""
    kinds = {end.link for end in ends}
    elsewhere = "" if "thunderbolt" in kinds else "; these addresses are not those of the Thunderbolt bridge"
    if kinds == {"loopback"}:
        return "one machine: the ring over its loopback, which needs no cable"
    match min(end.thunderbolt for end in ends):
        case 5:
            how = 'by "backend": "jaccl" and "rdma" in the file of hosts'
            if not all(end.has_jaccl for end in ends):
                how = "once both have macOS 26.2 or later"
            return f"Thunderbolt 5 on both: RDMA (MLX's JACCL) {how}, else the ring over TCP{elsewhere}"
        case 4:
            return f"Thunderbolt 4: the ring over TCP; never JACCL, which needs Thunderbolt 5{elsewhere}"
    if "wireless" in kinds:
        return "wireless: its delays are long and uneven; connect a cable, of Thunderbolt or 10 Gb/s Ethernet"
    return "Ethernet: the ring over TCP; never JACCL, which needs Macs with Thunderbolt 5"


def expectation(ranks: int, latency: float, bandwidth: float, hop_bytes: int, sums: int = 0) -> str:
    """Return a sentence on tokens per second. A token crosses each of `ranks - 1` links as activations, and
    each once more as the plan of its step. With tensor parallelism, parts of it cross each twice for every
    one of its `sums` over all ranks.
    """
    hops, alone = 2 * sums * (ranks - 1) or ranks - 1, _ALONE * (ranks if sums else 1)
    sent = hop_bytes / (ranks if sums else 1) / bandwidth
    token, prompt = hops * ((1 if sums else 2) * latency + sent), hops * _PROMPT * sent
    told = "ranks add memory, not speed: they compute one after another"
    if sums:
        told = f"each token waits for {sums} sums over all ranks, whatever computing in parallel gains"
    return (
        f"the links add at least {token * 1000:.2f} ms to a token of {hop_bytes:,} bytes and "
        f"{prompt * 1000:.1f} ms to a prompt of {_PROMPT:,} tokens, so {_ALONE:g} tokens/s of one machine "
        f"become at most {1 / (1 / alone + token):.1f}; {told}"
    )
