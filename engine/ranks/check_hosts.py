"""Examination of hosts and their links, in words for their owner."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from pathlib import Path

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.model_files import read_optional, text_config
from greenroom.engine.ranks.agreement import LIBRARIES, Agreement, agreement_of, check_agreement
from greenroom.engine.ranks.host_commands import answer_of, asking
from greenroom.engine.ranks.placement import plan_placement
from greenroom.engine.ranks.probe_host import HostReport, LinkFigures
from greenroom.engine.ranks.survey import ask_reports, rooms_of, weight_files
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.problems import Problem, ProblemError, load_failed
from greenroom.schemas.settings.hosts import Host, place_ranks, read_hosts
from greenroom.schemas.settings.settings import Settings

_RDMA_MACOS = (26, 2)
"""First macOS with RDMA over Thunderbolt 5. Source: MLX's documentation, "Distributed Communication"."""
_ALONE = 20.0  # Tokens per second of the example
_PROMPT = 1_000
_LINK_SECONDS = 60.0  # Time for the measurement of a link


HostFinding = tuple[str, str, bool]
"""A host or link, a sentence about it, and True for a fault."""


def check_hosts(named: Sequence[str], model: str | None, settings: Settings) -> Iterator[HostFinding]:
    """Yield the findings of all hosts, their links and a model's split.

    Args:
        named: The hosts, as in the setting; if empty, those of the settings for the model.

    Raises:
        ProblemError: There is no such model.
        ValueError: There are no hosts, a host is wrong, or they are fewer than the model's ranks.
    """
    name, folder, ranks = "", None, 1
    if model is not None:
        name, folder, id_ = _find(model, settings)
        settings, ranks = settings.applied_to(id_), settings.of_model(id_).ranks or 1
    if not (hosts := read_hosts(named or settings.hosts)):
        raise ValueError("name hosts: a file HOSTS.json, SSH=ADDRESS, or the setting `hosts`")
    hosts = place_ranks(ranks if ranks > 1 else len(hosts), hosts)
    account = MemoryAccount(settings.memory_bytes)
    here = agreement_of(folder or Path("/nonexistent"), weight_files(folder))
    found: dict[str, HostReport] = {}
    any_wrong = False
    for asked, told in ask_reports(hosts, folder, name).items():
        host = next(each for each in hosts if each.ssh == asked)
        if isinstance(told, str):
            findings: list[HostFinding] = [(asked, told, True)]
        else:
            found[asked] = told
            room = rooms_of([host], found, account)[asked]
            findings = [*_check_host(host, told, here, name, room)]
        any_wrong |= any(wrong for *_, wrong in findings)
        yield from findings
    if not any_wrong:
        yield from _check_links(hosts, found, folder)
        if folder is not None:
            yield _check_split(hosts, rooms_of(hosts, found, account), name, folder, settings)


def _find(model: str, settings: Settings) -> tuple[str, Path, str]:
    """Return a model's name, by which the hosts' hub caches may have it, its folder, and its id here."""
    entry = Catalog.of(settings).find(model)
    if isinstance(entry, Problem):
        raise ProblemError(entry)
    if entry.folder is None:
        raise ProblemError(load_failed(model, "its files are not here."))
    return entry.hub_id or entry.id, entry.folder, entry.id


def _check_host(
    host: Host, report: HostReport, here: Agreement, model: str, room: int
) -> Iterator[HostFinding]:
    how = "this machine" if host.is_here else "reached by ssh"
    libraries = ", ".join(f"{name} {report.agreement.get(name)}" for name in LIBRARIES)
    yield host.ssh, f"{how} ({report.name}, {report.system}); {libraries}", False
    yield host.ssh, f"ranks may have {room / 1e9:.1f} GB there", False
    try:
        check_agreement(here, report.agreement, host.ssh)
    except ValueError as error:
        yield host.ssh, str(error), True
    else:
        if model:
            yield host.ssh, f"has the files of {model}, in {report.folder}", False
    for ip in host.ips:
        if (link := report.links.get(ip)) is None:
            yield host.ssh, f"no interface there has the address {ip}", True
            continue
        speed = f", {link.megabits / 1000:g} Gb/s" if link.megabits else ""
        yield host.ssh, f"{ip} is {link.name} ({link.kind}{speed})", False
        if ip.startswith("169.254."):
            text = f"{ip} is link-local and may change at every start: give the interface a fixed address"
            yield host.ssh, text, False


def _check_links(
    hosts: Sequence[Host], reports: dict[str, HostReport], folder: Path | None
) -> Iterator[HostFinding]:
    """Yield what the links of the ring can do, each measured once."""
    ring = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
    figures: list[LinkFigures] = []
    for first, second in dict.fromkeys(tuple(sorted(pair, key=hosts.index)) for pair in ring):
        subject = f"{first.ssh} → {second.ssh}"
        try:
            found = measure_link(first, second)
        except ValueError as error:
            yield subject, str(error), True
            continue
        figures.append(found)
        yield subject, f"{found.latency * 1000:.2f} ms one way, {found.bandwidth / 1e9:.2f} GB/s", False
        yield subject, possible_transport(reports[first.ssh], first, reports[second.ssh], second), False
    if not figures or len(hosts) < 2:
        return
    slowest = LinkFigures(max(f.latency for f in figures), min(f.bandwidth for f in figures))
    config = {} if folder is None else read_optional(folder / "config.json")
    width = int(text_config(config).get("hidden_size") or config.get("hidden_size") or 4_096)
    yield "expect", expectation(len(hosts), slowest, 2 * width), False
    if any(_kind(reports[host.ssh], host) != "loopback" for host in hosts):
        text = "the ring has no authentication and no encryption: keep it on a cable or network of your own"
        yield "safety", text, False


def measure_link(first: Host, second: Host) -> LinkFigures:
    """Measure a TCP connection from one host to another. Raises ValueError: they do not connect."""
    here, there = first.ips[0], second.ips[0]
    try:
        with asking(second, {"ask": "listen", "ip": there}) as listening:
            assert listening.stdout is not None
            if not select.select([listening.stdout], [], [], _LINK_SECONDS)[0]:
                raise ValueError(f"host {second.ssh} did not answer in time")
            # A process that ends tells why instead.
            port = int(listening.stdout.readline() or answer_of(second, listening, _LINK_SECONDS, int))
            with asking(first, {"ask": "connect", "ip": here, "to": there, "port": port}) as connecting:
                return answer_of(first, connecting, _LINK_SECONDS, LinkFigures)
    except ValueError as error:
        raise ValueError(f"no link from {here} to {there}: {error}") from None


def _kind(report: HostReport, host: Host) -> str:
    link = report.links[host.ips[0]]
    return "" if link is None else link.kind


def possible_transport(one: HostReport, first: Host, other: HostReport, second: Host) -> str:
    """Return a sentence on the fastest transport that this hardware can ever have."""
    kinds = {_kind(one, first), _kind(other, second)}
    generations = [one.thunderbolt, other.thunderbolt]
    if first == second:
        return "one machine: the ring over its loopback, which needs no cable"
    if all(generation == 5 for generation in generations):
        if not all(_version(report.macos) >= _RDMA_MACOS for report in (one, other)):
            how = "once both have macOS 26.2 or later"
        else:
            how = "in use" if first.rdma else 'by "backend": "jaccl" and "rdma" in the file of hosts'
        used = "" if "thunderbolt" in kinds else "; these addresses are not those of the Thunderbolt bridge"
        return f"Thunderbolt 5 on both: RDMA (MLX's JACCL) {how}, else the ring over TCP{used}"
    if all(generations):
        used = "" if "thunderbolt" in kinds else ", which these addresses do not use"
        return (
            f"Thunderbolt 4: the ring over a Thunderbolt bridge{used}; never JACCL, which needs Thunderbolt 5"
        )
    if "wireless" in kinds:
        return "wireless: its delays are long and uneven; connect a cable, of Thunderbolt or 10 Gb/s Ethernet"
    return "Ethernet: the ring over TCP; never JACCL, which needs Macs with Thunderbolt 5"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def expectation(ranks: int, link: LinkFigures, hop_bytes: int) -> str:
    """Return a sentence on tokens per second. A token crosses each of `ranks - 1` links as activations, and
    each once more as the plan of its step.
    """
    hops = ranks - 1
    token = hops * (2 * link.latency + hop_bytes / link.bandwidth)
    prompt = hops * _PROMPT * hop_bytes / link.bandwidth
    with_links = 1 / (1 / _ALONE + token)
    return (
        f"the links add at least {token * 1000:.2f} ms to a token of {hop_bytes:,} bytes and "
        f"{prompt * 1000:.1f} ms to a prompt of {_PROMPT:,} tokens, so {_ALONE:g} tokens/s of one machine "
        f"become at most {with_links:.1f}; ranks add memory, not speed: they compute one after another"
    )


def _check_split(
    hosts: Sequence[Host], rooms: dict[str, int], model: str, folder: Path, settings: Settings
) -> HostFinding:
    try:
        record = detect(folder, settings.trust_remote_code, model)
        stages = plan_placement(folder, record, settings, hosts, rooms, model)
    except ProblemError as error:
        return "split", error.problem.detail, True
    told = (
        f"rank {rank} on {stage.host}: layers {stage.start} to {stage.end - 1}, {stage.nbytes / 1e9:.2f} GB"
        for rank, stage in enumerate(stages)
    )
    return "split", "; ".join(told), False
