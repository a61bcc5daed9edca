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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.ranks.agreement import agreement_of

_PINGS, _CHUNK, _SECONDS = 200, 1 << 20, 0.5
_TIMEOUT = 20.0


def report(question: Mapping[str, Any]) -> dict[str, Any]:
    """Describe this machine as a place for ranks.

    Args:
        question: `folder` and `model` of the model's files, `files` that count, `ips` of the ring, and
            `ports`, the number of free ports wanted on each.
    """
    folder = find_folder(str(question.get("folder", "")), str(question.get("model", "")))
    found: dict[str, Any] = {"name": socket.gethostname(), "memory_bytes": usable_memory(), **_system()}
    agreed = agreement_of({}, folder or Path("/nonexistent"), question.get("files", ()))
    found |= {"versions": agreed.versions, "files": agreed.files, "folder": str(folder) if folder else None}
    ports: dict[str, list[int]] = {}
    found["links"] = {}
    for ip in question.get("ips", ()):
        found["links"][ip] = interface = find_interface(ip)
        ports[ip] = free_ports(ip, int(question.get("ports", 0))) if interface is not None else []
    return {**found, "ports": ports}


def find_folder(folder: str, model: str) -> Path | None:
    """Return a model's folder here: at the same path, else in the hub's cache; None if it has none."""
    path = Path(folder).expanduser()
    if folder and path.is_dir():
        return path
    from greenroom.engine.catalog.hub.hub_cache import find_cached_model, hub_cache_folder

    return find_cached_model(model, hub_cache_folder()) if model else None


def usable_memory() -> int:
    """Return the bytes that ranks may take on this machine, less what other programs have on Linux."""
    from greenroom.engine.resources.device_memory import available_memory, default_memory

    usable, available = default_memory(), available_memory()
    return usable if available is None or sys.platform == "darwin" else min(usable, available)


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


# Links: kind and speed of an interface, and the fastest transport that the hardware can ever have.


def find_interface(ip: str) -> dict[str, Any] | None:
    """Return name, kind and megabits per second of the interface with an address; None if there is none."""
    listing = _output("ifconfig", "-a") if sys.platform == "darwin" else _output("ip", "-o", "-4", "addr")
    if sys.platform == "darwin":
        block = re.search(
            rf"^(\w+): (?:(?!^\w).)*?\binet {re.escape(ip)} ", listing, re.MULTILINE | re.DOTALL
        )
        name = block[1] if block else None
    else:
        line = re.search(rf"^\d+: (\S+) +inet {re.escape(ip)}/", listing, re.MULTILINE)
        name = line[1] if line else None
    if name is None:
        bound = bool(free_ports(ip, 1))  # such as 127.0.0.2, which no interface lists
        return (
            {"name": "lo", "kind": "loopback", "megabits": None} if bound and ip.startswith("127.") else None
        )
    return {"name": name, "kind": _kind(name), "megabits": _megabits(name)}


def _kind(name: str) -> str:
    """Return `loopback`, `thunderbolt`, `wireless` or `ethernet`; `virtual` for one without hardware."""
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
    driver = os.path.basename(os.path.realpath(device / "device/driver"))
    return (
        "thunderbolt"
        if "thunderbolt" in driver
        else "ethernet"
        if (device / "device").exists()
        else "virtual"
    )


def _megabits(name: str) -> int | None:
    try:
        speed = int(Path("/sys/class/net", name, "speed").read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None


def _system() -> dict[str, Any]:
    """Return the system, its version if it is macOS, and the generation of Thunderbolt; None without."""
    release, thunderbolt = platform.mac_ver()[0], None
    if release:
        speeds = re.findall(r"(\d+) Gb/s", _output("system_profiler", "SPThunderboltDataType"))
        # Thunderbolt 5 has 80 Gb/s, and 120 in one direction; 4 has 40.
        thunderbolt = (5 if max(map(int, speeds)) >= 80 else 4) if speeds else None
    return {"macos": release, "thunderbolt": thunderbolt, "system": platform.platform()}


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


# Measurement of a link: one process listens at an address, another connects from its own.


def listen(question: Mapping[str, Any]) -> dict[str, Any]:
    """Tell a free port at an address, echo single bytes there, then swallow all further ones."""
    with socket.create_server((question["ip"], 0)) as server:
        server.settimeout(_TIMEOUT)
        _tell({"port": server.getsockname()[1]})
        taken, _ = server.accept()
    with taken:
        taken.settimeout(_TIMEOUT)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_PINGS):
            taken.sendall(taken.recv(1))
        received = 0
        while chunk := taken.recv(_CHUNK):
            received += len(chunk)
        taken.sendall(b".")
    return {"bytes": received}


def connect(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the median latency one way, in seconds, and the bytes per second to a listening process."""
    source, target = (question["ip"], 0), (question["to"], question["port"])
    with socket.create_connection(target, timeout=_TIMEOUT, source_address=source) as sock:
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
    return {"latency": statistics.median(times) / 2, "bandwidth": sent / seconds}


def _tell(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    signal.alarm(60)  # nobody waits longer, and a cut link must leave nothing behind
    asked = json.loads(sys.argv[1])
    try:
        _tell({"report": report, "listen": listen, "connect": connect}[asked["ask"]](asked))
    except OSError as error:
        _tell({"error": str(error)})
