"""Machines that hold the ranks of a model: their names for ssh, and their addresses in the ring."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

MAX_HOSTS = 16
_SSH_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,253}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0\n]*")
_HERE = frozenset({"localhost", "127.0.0.1"})
_MEMBERS = ("ssh", "ips", "rdma", "python", "memory_bytes")


@attrs.frozen
class Host:
    """A machine for one rank or more.

    Args:
        ssh: Name by which ssh reaches it; `localhost` and this machine's own name need no ssh.
        ips: Its IPv4 addresses in the ring. They choose the link, such as the bridge of Thunderbolt.
        python: Python there that has Greenroom; by default the path of this process's own.
        memory_bytes: Most bytes that ranks may take there; None for a share of its memory.
        envs: Further environment variables of its ranks, each `NAME=VALUE`.
    """

    ssh: str
    ips: tuple[str, ...] = ()
    python: str | None = None
    memory_bytes: int | None = None
    envs: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """True if it is this machine, where a rank is started without ssh."""
        return self.ssh in _HERE or self.ssh.lower() == socket.gethostname().lower()


THIS_HOST = Host("localhost", ("127.0.0.1",))


def read_hosts(entries: Sequence[str]) -> tuple[Host, ...]:
    """Return the hosts of a setting's entries; reads the files that they name.

    Args:
        entries: Each is `SSH=ADDRESS`, `localhost`, or the path of a JSON file in the format of `mlx.launch`.

    Raises:
        ValueError: One sentence that names the entry.
    """
    hosts: list[Host] = []
    for entry in entries:
        if entry.endswith(".json"):
            hosts += _read_file(Path(entry).expanduser())
        elif entry in _HERE:
            hosts.append(THIS_HOST)
        else:
            ssh, _, address = entry.partition("=")
            hosts.append(_host({"ssh": ssh, "ips": [address] if address else []}, entry))
    if len(hosts) > MAX_HOSTS:
        raise ValueError(f"there are {len(hosts)} hosts, but {MAX_HOSTS} at most can hold a model")
    for host in hosts:
        if other := next((each for each in hosts if each.ssh == host.ssh and each != host), None):
            raise ValueError(f"host {host.ssh} is listed twice with other values: {host} and {other}")
    return tuple(hosts)


def _read_file(path: Path) -> list[Host]:
    try:
        found: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or f'is no JSON ({error})'}") from None
    envs: Any = []
    if isinstance(found, dict):
        if (backend := found.get("backend") or "ring") != "ring":
            raise ValueError(f"{path}: backend = {backend!r}: ranks speak over `ring` alone; leave it out")
        envs, found = found.get("envs", []), found.get("hosts")
    if not isinstance(found, list) or not found:
        raise ValueError(f"{path}: must be a list of hosts, or an object with one as `hosts`")
    if not isinstance(envs, list) or not all(isinstance(v, str) and _VARIABLE.fullmatch(v) for v in envs):
        raise ValueError(f"{path}: envs must be a list of texts NAME=VALUE")
    return [
        attrs.evolve(_host(each, f"{path}: host {number}"), envs=tuple(envs))
        for number, each in enumerate(found)
    ]


def _host(found: Any, place: str) -> Host:
    """Return the host of a table. `place`: words that name the entry in an error."""
    if not isinstance(found, Mapping):
        raise ValueError(f'{place} must be an object such as {{"ssh": "studio.local", "ips": ["10.0.0.2"]}}')
    if unknown := [name for name in found if name not in _MEMBERS]:
        raise ValueError(f"{place} has no {unknown[0]!r}: known are {', '.join(_MEMBERS)}")
    ssh, ips, python, memory = (found.get(name) for name in ("ssh", "ips", "python", "memory_bytes"))
    if not isinstance(ssh, str) or not _SSH_NAME.fullmatch(ssh):
        raise ValueError(f"{place}: ssh = {ssh!r}: must be a name that ssh knows, such as studio.local")
    if not isinstance(ips, list) or not ips or not all(map(_is_address, ips)):
        raise ValueError(
            f"{place} ({ssh}): ips = {ips!r}: must be IPv4 addresses of the link, such as 10.0.0.2 "
            f"(as an entry of a setting: {ssh}=10.0.0.2)"
        )
    if python is not None and not (
        isinstance(python, str) and python.isprintable() and python.strip() and python[0] != "~"
    ):
        raise ValueError(
            f"{place} ({ssh}): python = {python!r}: must be the whole path of Greenroom's Python"
        )
    if memory is not None and not (type(memory) is int and memory > 0):
        raise ValueError(f"{place} ({ssh}): memory_bytes = {memory!r}: must be a whole number above 0")
    host = Host(ssh, tuple(ips), python, memory)
    return attrs.evolve(host, ssh=THIS_HOST.ssh) if host.is_here else host


def _is_address(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(ipaddress.IPv4Address(text))
    except ValueError:
        return False


def place_ranks(ranks: int, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the host of each rank: the first hosts, one rank on each; all on this machine without hosts.

    Hosts that appear twice hold two ranks.

    Raises:
        ValueError: There are fewer hosts than ranks.
    """
    if not hosts:
        return (THIS_HOST,) * ranks
    if len(hosts) < ranks:
        named = ", ".join(host.ssh for host in hosts)
        raise ValueError(f"ranks = {ranks} needs as many hosts, but there are {len(hosts)} ({named})")
    return tuple(hosts[:ranks])
