"""A second host: a real sshd with a key of its own, in a network namespace where the machine allows that."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from greenroom.tests.support.servers.bounded_waits import PATIENCE
from greenroom.tests.support.servers.free_port import free_port

_SSHD = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
NAME = "second-host"
"""Name by which ssh reaches the second host."""


@attrs.frozen
class SecondHost:
    """The second host's address in the ring, and that of this machine on the same link.

    Args:
        path: Value of PATH with which `ssh` reaches it.
        namespace: Name of its network namespace; empty if it is this machine's own.
    """

    here: str
    there: str
    path: str
    namespace: str = ""


@contextmanager
def second_host(folder: Path) -> Iterator[SecondHost]:
    """Run sshd until the end of the block; skip the test where there is none."""
    if _SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("there is no sshd on this machine (Debian's openssh-server)")
    for name in ("host_key", "key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=PATIENCE)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd confines itself there
    with _network() as (namespace, here, there):
        port = free_port() if not namespace else 2222
        _write(folder, there, port)
        server = [_SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        with (folder / "sshd.log").open("wb") as log:
            process = subprocess.Popen([*inside, *server], stdin=subprocess.DEVNULL, stderr=log)
        try:
            _wait_for(there, port, process, folder / "sshd.log")
            yield SecondHost(here, there, f"{folder / 'bin'}:{os.environ['PATH']}", namespace)
        finally:
            process.terminate()
            process.wait(PATIENCE)


@contextmanager
def _network() -> Iterator[tuple[str, str, str]]:
    """Make a namespace with a link to it; without the rights, yield addresses of the loopback."""
    number = os.getpid() % 60_000
    namespace, near, far = f"greenroom-{number}", f"gr{number}a", f"gr{number}b"
    net = f"10.{128 + number // 16_384}.{number // 64 % 256}"
    here, there = f"{net}.{number % 64 * 4 + 1}", f"{net}.{number % 64 * 4 + 2}"
    if not (os.geteuid() == 0 and shutil.which("ip") and _try(f"ip netns add {namespace}")):
        yield "", "127.0.0.1", "127.0.0.1" if sys.platform == "darwin" else "127.0.0.2"
        return
    try:
        for command in (
            f"ip link add {near} type veth peer name {far} netns {namespace}",
            f"ip addr add {here}/30 dev {near}",
            f"ip link set {near} up",
            f"ip -n {namespace} addr add {there}/30 dev {far}",
            f"ip -n {namespace} link set {far} up",
            f"ip -n {namespace} link set lo up",
        ):
            if not _try(command):
                pytest.skip(f"this machine makes no network namespaces ({command})")
        yield namespace, here, there
    finally:
        _try(f"ip link del {near}")
        _try(f"ip netns del {namespace}")


def _try(command: str) -> bool:
    return subprocess.run(command.split(), capture_output=True, timeout=PATIENCE, check=False).returncode == 0


def _write(folder: Path, address: str, port: int) -> None:
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "known_hosts").write_text(f"{NAME} {(folder / 'host_key.pub').read_text()}")
    server = {
        "ListenAddress": f"{address}:{port}",
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
    }
    client = {
        "HostName": address,
        "Port": port,
        "User": getpass.getuser(),
        "HostKeyAlias": NAME,
        "IdentityFile": folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
    }
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in server.items()))
    lines = "".join(f"  {name} {value}\n" for name, value in client.items())
    (folder / "ssh_config").write_text(f"Host {NAME}\n{lines}")
    # ssh takes its settings from the user's home alone, unless it is called with a file of them.
    ssh = folder / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{folder / "ssh_config"}" "$@"\n')
    ssh.chmod(0o755)


def _wait_for(address: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection((address, port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"sshd does not listen: {log.read_text()}")
