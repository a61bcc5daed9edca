"""Survey of the hosts of a model before its ranks start, and the place of each rank."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from greenroom.engine.ranks import probe_host
from greenroom.engine.ranks.agreement import agreement_of, check_agreement
from greenroom.engine.ranks.host_commands import answer_of, asking, command_on, portable_path
from greenroom.engine.ranks.placement import RANK, RankPlace, plan_placement
from greenroom.engine.ranks.probe_host import HostReport
from greenroom.engine.resources.device_memory import default_memory
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings.hosts import Host
from greenroom.schemas.settings.settings import Settings

log = get_logger()

_ANSWER_SECONDS = 30.0  # Time for the answers of all hosts together


def weight_files(folder: Path | None) -> list[str]:
    return [] if folder is None else sorted(file.name for file in folder.glob("model*.safetensors"))


def ask_reports(hosts: Sequence[Host], folder: Path | None, model: str) -> dict[str, HostReport | str]:
    """Return the reports of hosts by name, or sentences why they cannot tell. All are asked at once."""
    counts = Counter(host.ssh for host in hosts)
    started: dict[Host, subprocess.Popen[bytes]] = {}
    reports: dict[str, HostReport | str] = {}
    deadline = time.monotonic() + _ANSWER_SECONDS
    where, files = portable_path(folder) if folder else "", weight_files(folder)
    with ExitStack() as stack:
        for host in sorted(
            dict.fromkeys(hosts), key=lambda host: host.is_here
        ):  # the others work while this one does
            asked = {"folder": where, "model": model, "files": files, "ips": host.ips}
            question = {"ask": "report", **asked, "ports": counts[host.ssh]}
            try:
                if host.is_here and host.python is None:
                    reports[host.ssh] = probe_host.answer(question)
                else:
                    started[host] = stack.enter_context(asking(host, question))
            except ValueError as error:
                reports[host.ssh] = str(error)
        for host, process in started.items():
            try:
                left = max(0.1, deadline - time.monotonic())
                reports[host.ssh] = answer_of(host, process, left, HostReport)
            except ValueError as error:
                reports[host.ssh] = str(error)
    return reports


def rooms_of(
    hosts: Sequence[Host], reports: Mapping[str, HostReport], account: MemoryAccount
) -> dict[str, int]:
    """Return the bytes that ranks may take on each host, elsewhere beside those of other models."""
    rooms: dict[str, int] = {}
    for host in {*hosts}:
        report, far = reports[host.ssh], account.host(host.ssh)
        most, taken = host.memory_bytes or report.memory_bytes, far.charged
        if host.is_here:
            most, taken = host.memory_bytes or account.limit or default_memory(), 0
        elif host.memory_bytes is None and report.available_bytes is not None:
            most = min(most, report.available_bytes + taken)
        far.limit = most
        rooms[host.ssh] = most - taken
    return rooms


def places_on(
    hosts: Sequence[Host],
    folder: Path,
    name: str,
    record: CapabilityRecord,
    settings: Settings,
    account: MemoryAccount,
) -> tuple[RankPlace, ...]:
    """Return the places of a model's ranks, after all hosts have shown what they have.

    Args:
        hosts: Host of each rank.
        account: Account of this machine, with those of its hosts.

    Raises:
        ProblemError: A host cannot be reached, lacks or differs in something, or has too little memory.
    """
    names = weight_files(folder)
    reports: dict[str, HostReport] = {}
    for asked, told in ask_reports(hosts, folder, name).items():
        if isinstance(told, str):
            raise ProblemError(load_failed(name, f"{told}."))
        reports[asked] = told
    stages = plan_placement(folder, record, settings, hosts, rooms_of(hosts, reports, account), name)
    split = tuple(stage.layers for stage in stages)
    try:
        links = [_listen(host, reports[host.ssh], folder) for host in hosts]
        plan = {"model": name, "split": split, "ring": [[address] for address, _ in links]}
        first = agreement_of(folder, names, plan)
        for stage, host in zip(stages, hosts, strict=True):
            unread = {"plan", *names} - {*stage.files}
            theirs = reports[host.ssh].agreement
            found = {key: theirs.get(key, "missing") for key in first if key not in unread}
            check_agreement(first, found, host.ssh)
    except ValueError as error:
        raise ProblemError(load_failed(name, f"{error}.")) from error
    if far := [address for address, link in links if link != "loopback"]:
        log.warning(
            "ranks listen without authentication",
            model=name,
            addresses=", ".join(far),
            effect="whoever reaches these addresses can read and change what the model computes",
        )
    return tuple(
        RankPlace(
            host.ssh,
            address,
            tuple(command_on(host, ["-P", "-m", RANK])),
            link,
            stage,
            {
                "host": host.ssh,
                "backend": "jaccl" if host.rdma else "ring",
                "rdma": [each.rdma[: len(hosts)] for each in hosts],
                "folder": str(folder) if host.is_here else str(reports[host.ssh].folder),
                "memory_bytes": stage.limit,
                "split": split,
                "agreement": first,
                "files": ("config.json", *stage.files),
            },
        )
        for host, stage, (address, link) in zip(hosts, stages, links, strict=True)
    )


def _listen(host: Host, report: HostReport, folder: Path) -> tuple[str, str]:
    """Return the address with a port of its own at which a rank will listen, and the kind of its link."""
    ip = host.ips[0]
    if (link := report.links.get(ip)) is None or not link.ports:
        raise ValueError(f"host {host.ssh} cannot listen at {ip}: no interface there has this address")
    if report.folder is None and not host.is_here:
        where = portable_path(folder)
        raise ValueError(f"host {host.ssh} has no files of it, neither at {where} nor in its hub's cache")
    return f"{ip}:{link.ports.pop()}", link.kind
