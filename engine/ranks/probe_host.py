"""Questions to a machine that may hold a rank: its libraries, files, memory, free ports and links.

It runs there as a process of its own: `python -m greenroom.engine.ranks.probe_host QUESTION`, where QUESTION
is a JSON object. Each answer is a line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from greenroom.engine.ranks.agreement import agreement_of

_PINGS, _CHUNK, _SECONDS = 200, 1 << 20, 0.5
_TIMEOUT = 20.0


class Link(msgspec.Struct, frozen=True):
    """An interface with an address of the ring, and ports that are free there.

    Args:
        kind: `loopback`, `thunderbolt`, `wireless` or `ethernet`; `virtual` for one without hardware.
        megabits: Its speed per second; None if the system does not tell.
    """

    name: str
    kind: str
    megabits: int | None = None
    ports: list[int] = []


class HostReport(msgspec.Struct, frozen=True):
    """A machine as a place for ranks.

    Args:
        memory_bytes: Bytes that ranks of all models may take.
        agreement: Its versions and files, to be compared with those of the other hosts.
        folder: Folder of the model's files; None if it has none.
        links: Links by address; None where no interface has it.
        macos: Its version; empty elsewhere.
        thunderbolt: Generation of its Thunderbolt; None without.
        available_bytes: Bytes that no program has taken; None on macOS, which makes room.
    """

    name: str
    system: str
    memory_bytes: int
    agreement: dict[str, str]
    folder: str | None
    links: dict[str, Link | None]
    macos: str = ""
    thunderbolt: int | None = None
    available_bytes: int | None = None


class LinkFigures(msgspec.Struct, frozen=True):
    """Measurements of a link: seconds one way, and bytes per second."""

    latency: float
    bandwidth: float


def report(folder: str, model: str, files: list[str], ips: list[str], ports: int) -> HostReport:
    """Describe this machine. `ports`: number of free ports wanted on each of `ips`."""
    from greenroom.engine.resources.device_memory import available_memory, default_memory

    found = find_folder(folder, model)
    macos, thunderbolt = platform.mac_ver()[0], None
    if macos:
        speeds = re.findall(r"(\d+) Gb/s", _output("system_profiler", "SPThunderboltDataType"))
        # Thunderbolt 5 has 80 Gb/s, and 120 in one direction; 4 has 40.
        thunderbolt = (5 if max(map(int, speeds)) >= 80 else 4) if speeds else None
    return HostReport(
        socket.gethostname(),
        platform.platform(),
        default_memory(),
        dict(agreement_of(found or Path("/nonexistent"), files)),
        None if found is None else str(found),
        {ip: find_link(ip, ports) for ip in ips},
        macos,
        thunderbolt,
        None if macos else available_memory(),
    )


def find_folder(folder: str, model: str) -> Path | None:
    """Return a model's folder here: at the same path, else in the hub's cache; None if it has none."""
    path = Path(folder).expanduser()
    if folder and path.is_dir():
        return path
    from greenroom.engine.catalog.hub.hub_cache import find_cached_model, hub_cache_folder

    return find_cached_model(model, hub_cache_folder()) if model else None


def free_ports(ip: str, count: int) -> list[int]:
    """Return ports that are free at an address now; empty if it is not this machine's."""
    socks = []
    try:
        for _ in range(count):
            socks.append(socket.create_server((ip, 0)))
        return [sock.getsockname()[1] for sock in socks]
    except OSError:
        return []
    finally:
        for sock in socks:
            sock.close()


def find_link(ip: str, ports: int) -> Link | None:
    """Return the interface with an address, and free ports there; None if this machine does not have it."""
    if not (free := free_ports(ip, max(1, ports))):
        return None
    if ip.startswith("127."):
        return Link("lo", "loopback", None, free)
    if sys.platform == "darwin":
        listing, pattern = _output("ifconfig", "-a"), rf"^(\w+): (?:(?!^\w).)*?\binet {re.escape(ip)} "
    else:
        listing, pattern = _output("ip", "-o", "-4", "addr"), rf"^\d+: (\S+) +inet {re.escape(ip)}/"
    found = re.search(pattern, listing, re.MULTILINE | re.DOTALL)
    name = found[1] if found else "unknown"
    try:
        megabits = int(Path("/sys/class/net", name, "speed").read_text())
    except (OSError, ValueError):
        megabits = 0
    return Link(name, _kind(name), max(0, megabits) or None, free)


def _kind(name: str) -> str:
    if name.startswith("lo"):
        return "loopback"
    if sys.platform == "darwin":
        ports = _output("networksetup", "-listallhardwareports")
        port = re.search(rf"Hardware Port: (.+)\nDevice: {re.escape(name)}\n", ports)
        words = port[1].lower() if port else ""
        return "thunderbolt" if "thunderbolt" in words else "wireless" if "wi-fi" in words else "ethernet"
    device = Path("/sys/class/net", name)
    if (device / "wireless").exists():
        return "wireless"
    if "thunderbolt" in os.path.basename(os.path.realpath(device / "device/driver")):
        return "thunderbolt"
    return "ethernet" if (device / "device").exists() else "virtual"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


# Measurement of a link: one process listens at an address, another connects from its own.


def listen(ip: str) -> int:
    """Print a free port at an address, echo single bytes there, then swallow and count all further ones."""
    with socket.create_server((ip, 0)) as server:
        server.settimeout(_TIMEOUT)
        print(server.getsockname()[1], flush=True)
        taken, _ = server.accept()
    received = 0
    with taken:
        taken.settimeout(_TIMEOUT)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_PINGS):
            taken.sendall(taken.recv(1))
        while chunk := taken.recv(_CHUNK):
            received += len(chunk)
        taken.sendall(b".")
    return received


def connect(ip: str, to: str, port: int) -> LinkFigures:
    """Measure the median latency and the speed to a process that listens."""
    with socket.create_connection((to, port), timeout=_TIMEOUT, source_address=(ip, 0)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(_PINGS):
            begun = time.perf_counter()
            sock.sendall(b".")
            sock.recv(1)
            times.append(time.perf_counter() - begun)
        chunk, sent, begun = bytes(_CHUNK), 0, time.perf_counter()
        while time.perf_counter() - begun < _SECONDS:
            sock.sendall(chunk)
            sent += len(chunk)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        seconds = time.perf_counter() - begun
    return LinkFigures(statistics.median(times) / 2, sent / seconds)


def answer(question: Mapping[str, Any]) -> Any:
    """Answer a question: its `ask` names the function, its other members are the arguments."""
    functions: dict[str, Callable[..., Any]] = {"report": report, "listen": listen, "connect": connect}
    given = dict(question)
    return functions[given.pop("ask")](**given)


if __name__ == "__main__":
    signal.alarm(60)  # nobody waits longer, and a cut link must leave nothing behind
    print(msgspec.json.encode(answer(json.loads(sys.argv[1]))).decode(), flush=True)
