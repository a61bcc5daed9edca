"""Questions to a machine that may hold a rank: its libraries, files, memory, free ports and links.

It runs there as a process of its own: `python -m greenroom.engine.ranks.probe_host QUESTION`, where QUESTION
is a JSON object: `ask` names the function, its other members are the arguments. The answer is a line of JSON.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from greenroom.engine.ranks.agreement import Agreement, agreement_of
from greenroom.schemas.settings.hosts import MAX_HOSTS

_PINGS, _BLOCKS, _BLOCK_BYTES = 200, 3, 4 << 20


class HostReport(msgspec.Struct, frozen=True):
    """A machine as a place for ranks.

    Args:
        fault: Sentence why nothing else is known of it; empty if it has answered.
        memory_bytes: Bytes that ranks of all models may take, and `free_bytes` those that no program has.
        agreement: Its versions and files, to be compared with those of the other hosts.
        folder: Folder of the model's files; None if it has none.
        interface: Interface with its address in the ring, and `ports` that are free there; none without it.
        link: Kind of that: `loopback`, `thunderbolt`, `wireless`, `ethernet`; `virtual` without hardware.
        thunderbolt: Generation of its Thunderbolt; 0 without.
        has_jaccl: True if MLX can use RDMA there.
    """

    fault: str = ""
    memory_bytes: int = 0
    free_bytes: int = 0
    agreement: Agreement = {}
    folder: str | None = None
    interface: str = ""
    link: str = ""
    ports: list[int] = []
    thunderbolt: int = 0
    has_jaccl: bool = False


def report(folder: str, model: str, files: list[str], ip: str) -> HostReport:
    """Describe this machine, and its link with an address of the ring."""
    import mlx.core as mx

    from greenroom.engine.resources.device_memory import available_memory, default_memory

    found = Path(folder).expanduser() if folder else None  # at the same path, else in the hub's cache
    if found is None or not found.is_dir():
        from greenroom.engine.catalog.hub.hub_cache import find_cached_model, hub_cache_folder

        found = find_cached_model(model, hub_cache_folder())
    memory, (interface, link) = default_memory(), find_link(ip)
    speeds = re.findall(r"(\d+) Gb/s", _output("system_profiler", "SPThunderboltDataType"))
    return HostReport(
        memory_bytes=memory,
        free_bytes=available_memory() or memory,  # macOS makes room
        agreement=agreement_of(found or Path("/nonexistent"), files),
        folder=None if found is None else str(found),
        interface=interface,
        link=link,
        ports=free_ports(ip, MAX_HOSTS),
        # Thunderbolt 5 has 80 Gb/s, and 120 in one direction; 4 has 40.
        thunderbolt=(5 if max(map(int, speeds)) >= 80 else 4) if speeds else 0,
        has_jaccl=mx.distributed.is_available("jaccl"),
    )


def free_ports(ip: str, count: int) -> list[int]:
    """Return ports that are free at an address now; empty if it is not this machine's."""
    try:
        with ExitStack() as stack:
            socks = [stack.enter_context(socket.create_server((ip, 0))) for _ in range(count)]
            return [sock.getsockname()[1] for sock in socks]
    except OSError:
        return []


def find_link(ip: str) -> tuple[str, str]:
    """Return the name and kind of the interface with an address of this machine."""
    if ip.startswith("127."):
        return "lo", "loopback"
    listed = _output("ip", "-o", "-4", "addr") or _output("ifconfig", "-a")  # of Linux; of macOS
    pattern = rf"^(?:\d+: )?(\S+?):? (?:(?!^\w).)*?\binet {re.escape(ip)}[ /]"
    found = re.search(pattern, listed, re.MULTILINE | re.DOTALL)
    name = found[1] if found else "unknown"
    device = Path("/sys/class/net", name)
    hardware = _output("networksetup", "-listallhardwareports")  # of macOS alone
    port = re.search(rf"Hardware Port: (.+)\nDevice: {re.escape(name)}\n", hardware)
    words = port[1].lower() if port else os.path.realpath(device / "device/driver")
    kinds = {
        "thunderbolt": "thunderbolt" in words,
        "wireless": "wi-fi" in words or (device / "wireless").exists(),
        "ethernet": port is not None or (device / "device").exists(),
    }
    return name, next((kind for kind, holds in kinds.items() if holds), "virtual")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def measure(rank: int, addresses: list[str]) -> tuple[float, float]:
    """Return the seconds of one way and the bytes per second of a link, as one end of a ring of two: MLX's
    own, over which ranks will speak.
    """
    import mlx.core as mx

    reader, writer = os.pipe()
    os.write(writer, msgspec.json.encode([[address] for address in addresses]))
    os.close(writer)
    os.environ.update(MLX_RANK=str(rank), MLX_HOSTFILE=f"/dev/fd/{reader}")
    mx.distributed.init(strict=True, backend="ring")

    def seconds_one_way(nbytes: int, times: int) -> float:
        sent, seconds = mx.zeros(nbytes, mx.uint8), []
        for _ in range(times):
            begun = time.perf_counter()
            for end in (0, 1):  # there and back
                transfer = mx.distributed.send if rank == end else mx.distributed.recv_like
                mx.eval(transfer(sent, 1 - rank, stream=mx.cpu))
            seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds) / 2

    return seconds_one_way(1, _PINGS), _BLOCK_BYTES / seconds_one_way(_BLOCK_BYTES, _BLOCKS)


if __name__ == "__main__":
    signal.alarm(60)  # nobody waits longer, and a cut link must leave nothing behind
    functions: dict[str, Callable[..., Any]] = {"report": report, "measure": measure}
    question = msgspec.json.decode(sys.argv[1])
    print(msgspec.json.encode(functions[question.pop("ask")](**question)).decode(), flush=True)
