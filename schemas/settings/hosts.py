"""Machines that hold the ranks of a model: their names for ssh, and their addresses in the ring."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

MAX_HOSTS = 16
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*\Z")]
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_Address = Annotated[str, msgspec.Meta(pattern=rf"^{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}\Z")]
_WholePath = Annotated[str, msgspec.Meta(pattern=r"^/[^\x00-\x1f]+\Z")]
_Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_]\w*=[^\x00-\x1f]*\Z")]
_EXAMPLE = '{"ssh": "studio.local", "ips": ["10.0.0.2"], "python": "/opt/bin/python", "envs": ["NAME=VALUE"]}'


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine for one rank or more.

    Args:
        ssh: Name by which ssh reaches it; `localhost` and this machine's own name need no ssh.
        ips: Its IPv4 addresses in the ring. They choose the link, such as the bridge of Thunderbolt.
        python: Python there that has Greenroom; by default the path of this process's own.
        memory_bytes: Most bytes that ranks may take there; None for a share of its memory.
        envs: Further environment variables of its ranks, each `NAME=VALUE`.
        rdma: Its RDMA device to each host, None to itself, if ranks speak over MLX's JACCL.
    """

    ssh: _Name
    ips: Annotated[tuple[_Address, ...], msgspec.Meta(min_length=1)]
    python: _WholePath | None = None
    memory_bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None
    envs: tuple[_Variable, ...] = ()
    rdma: tuple[str | tuple[str, ...] | None, ...] = ()

    @property
    def is_here(self) -> bool:
        """True if it is this machine, where a rank is started without ssh."""
        return self.ssh.lower() in ("localhost", "127.0.0.1", socket.gethostname().lower())


class _HostFile(msgspec.Struct):
    """The format of `mlx.launch`."""

    hosts: Annotated[tuple[Host, ...], msgspec.Meta(min_length=1)]
    backend: Literal["ring", "jaccl", "", None] = None
    envs: tuple[_Variable, ...] = ()


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
        example = "studio.local=10.0.0.2"
        try:
            if entry.endswith(".json"):
                example = _EXAMPLE
                hosts += _read_file(Path(os.path.expanduser(entry)))  # also of a user that is not here
            elif entry in ("localhost", "127.0.0.1"):
                hosts.append(THIS_HOST)
            else:
                ssh, _, address = entry.partition("=")
                hosts.append(msgspec.convert({"ssh": ssh, "ips": [address]}, Host))
        except OSError as error:
            raise ValueError(f"{entry}: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{entry}: {error}; a host is such as {example}") from None
    if len(hosts) > MAX_HOSTS:
        raise ValueError(f"there are {len(hosts)} hosts, but {MAX_HOSTS} at most can hold a model")
    hosts = [msgspec.structs.replace(each, ssh=THIS_HOST.ssh) if each.is_here else each for each in hosts]
    by_name = {host.ssh: host for host in hosts}
    for host in hosts:
        if (other := by_name[host.ssh]) != host:
            raise ValueError(f"host {host.ssh} is listed twice with other values: {host} and {other}")
    return tuple(hosts)


def _read_file(path: Path) -> list[Host]:
    found = msgspec.json.decode(path.read_bytes(), type=_HostFile | tuple[Host, ...])
    file = found if isinstance(found, _HostFile) else msgspec.convert({"hosts": found}, _HostFile)
    if file.backend == "jaccl" and not all(host.rdma for host in file.hosts):
        raise ValueError("backend 'jaccl' needs `rdma` of each host")
    changed = {} if file.backend == "jaccl" else {"rdma": ()}
    return [msgspec.structs.replace(each, envs=(*file.envs, *each.envs), **changed) for each in file.hosts]


def place_ranks(ranks: int, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the host of each rank: the first hosts, one rank on each; all on this machine without hosts.

    Hosts that appear twice hold two ranks.

    Raises:
        ValueError: There are fewer hosts than ranks, or devices for JACCL are missing.
    """
    if not hosts:
        return (THIS_HOST,) * ranks
    if len(hosts) < ranks:
        named = ", ".join(host.ssh for host in hosts)
        raise ValueError(f"ranks = {ranks} needs as many hosts, but there are {len(hosts)} ({named})")
    for rank, host in enumerate(hosts[:ranks]):
        devices = [bool(device) for device in host.rdma[:ranks]]
        if any(each.rdma for each in hosts) and devices != [other != rank for other in range(ranks)]:
            needs = "a device to each other host in their order, and null for itself"
            raise ValueError(f"host {host.ssh}: rdma = {list(host.rdma)}: JACCL needs {needs}")
    return tuple(hosts[:ranks])
