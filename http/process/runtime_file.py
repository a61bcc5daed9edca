"""Files that tell a user's other processes where this user's servers are.

Each server has one, in a folder that only the user can enter, and holds a lock on it. The operating system
releases the lock with the process, however that ends: a file without one is stale, even if another process
has the same id by now.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import msgspec

from greenroom.schemas.logs import get_logger

log = get_logger(actor="http")

_MAX_BYTES = 64 * 1024
_SECONDS_TO_WRITE = 60.0
_OF_HUB = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN")
_NAME = re.compile(r"server-[0-9a-f]{16}\.json")
_LOOPBACK = re.compile(r"(https?)://(127\.\d+\.\d+\.\d+|\[::1\]):(\d+)")
_PATH = re.compile(r"unix:/[^\0]+")


@attrs.frozen
class RunningServer:
    """A server that runs on this machine.

    Args:
        addresses: Base URLs by which this machine reaches it, such as `http://127.0.0.1:8000`; after those,
            `unix:/PATH` of its Unix sockets.
        started: Unix time in seconds.
        key: API key that opens it to this user's processes; empty for none.
        certificate: Path of the certificate under which it listens; empty for none.
        hub: What its environment says of the hub, as `hub_environment` has it.
        own_keys: Names of the settings that gave it keys, and the SHA-256 of each, in hexadecimal digits.
    """

    addresses: tuple[str, ...]
    pid: int
    started: float
    key: str = attrs.field(default="", repr=False)
    certificate: str = ""
    own_keys: tuple[tuple[str, str], ...] = ()
    hub: tuple[tuple[str, str], ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses that are URLs, which every program can use."""
        return tuple(address for address in self.addresses if _PATH.fullmatch(address) is None)


def describe_unusable_address(error: OSError) -> str:
    """Return the sentence on an address at which nothing can listen, with the server that does so already."""
    told = f"cannot listen on {error.filename}: {error.strerror}"
    if error.errno != errno.EADDRINUSE or str(error.filename).startswith("unix:"):
        return told
    port = str(error.filename).rpartition(":")[2]
    for server in running_servers():
        if any(url.rpartition(":")[2] == port for url in server.urls):
            return f"{told} by greenroom (process {server.pid}): stop it, or name another port with --port"
    return f"{told} by another program: name another port with --port"


@contextmanager
def runtime_file(
    addresses: Sequence[str], key: str = "", certificate: str = "", own_keys: tuple[tuple[str, str], ...] = ()
) -> Iterator[None]:
    """Write the file of this server's addresses and its keys, and delete it at the end of the block.

    A folder that cannot be used is logged: a server is useful without it.
    """
    path_of_certificate = str(Path(certificate).expanduser().absolute()) if certificate else ""
    own = own_addresses(addresses)
    now, hub = time.time(), hub_environment()
    server = RunningServer(own, os.getpid(), now, key, path_of_certificate, own_keys, hub)
    try:
        path, file = _write(server)
    except (OSError, RuntimeError) as error:
        log.warning("no runtime file", reason=str(error), effect="commands of this machine do not find it")
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(file)


def hub_environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that decide how this process fetches from the hub, the token as a digest."""
    told = {name: os.environ.get(name, "") for name in _OF_HUB}
    home = told["HF_HOME"] or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
    told["HF_HOME"] = str(Path(home).expanduser())
    told["HF_HUB_CACHE"] = str(Path(told["HF_HUB_CACHE"] or f"{told['HF_HOME']}/hub").expanduser())
    told["HF_TOKEN"] = told["HF_TOKEN"] and hashlib.sha256(told["HF_TOKEN"].encode()).hexdigest()
    return tuple(told.items())


def running_servers() -> list[RunningServer]:
    """Return this user's servers on this machine, the last one started first."""
    try:
        folder = _open_folder(runtime_folder())
    except (OSError, RuntimeError):
        return []
    try:
        names = sorted(filter(_NAME.fullmatch, os.listdir(folder)))
        found = [server for name in names if (server := _read(folder, name)) is not None]
    finally:
        os.close(folder)
    return sorted(found, key=lambda server: server.started, reverse=True)


def runtime_folder() -> Path:
    """Return the folder of these files, which may not exist."""
    if os.path.isabs(named := os.environ.get("XDG_RUNTIME_DIR", "")):
        return Path(named) / "greenroom"

    from platformdirs import user_runtime_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the variable above
        return user_runtime_path("greenroom", appauthor=False)


def own_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses by which a server's own machine reaches it: loopback, then Unix sockets."""
    own = (
        address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:") for address in addresses
    )
    paths = filter(_PATH.fullmatch, addresses)
    return tuple(dict.fromkeys((*filter(_LOOPBACK.fullmatch, own), *paths)))


def _write(server: RunningServer) -> tuple[Path, int]:
    """Write a server's file under its lock, and return its path and descriptor.

    It appears at once and whole, so that no reader sees half of it, or sees it unlocked.
    """
    path = runtime_folder()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = _open_folder(path)
    try:
        _remove_stale(folder)
        name = f"server-{secrets.token_hex(8)}.json"
        unfinished = f".{name}"
        file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            os.fchmod(file, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, msgspec.json.encode(server))
            os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=folder)
            raise
    finally:
        os.close(folder)
    return path / name, file


def _open_folder(path: Path) -> int:
    """Return a descriptor of the folder. Raises OSError: it does not exist, or others than this user may read
    or change it.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if not _is_private(os.fstat(folder)):
        os.close(folder)
        raise PermissionError(f"'{path}' is not this user's alone")
    return folder


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _read(folder: int, name: str) -> RunningServer | None:
    """Return the server of a file; None if it has ended, or if a server has not written this."""
    try:
        # Opening a pipe would wait for its other end.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or not _is_private(found) or _is_stale(file):
            return None
        content = os.read(file, _MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            return None
        server = msgspec.json.decode(content, type=RunningServer)
        # Nothing but this machine is ever asked, whatever a file says.
        return attrs.evolve(server, addresses=own_addresses(server.addresses))
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    finally:
        os.close(file)


def _is_stale(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_stale(folder: int) -> None:
    """Remove what servers that were killed have left."""
    for name in os.listdir(folder):
        if _NAME.fullmatch(name.removeprefix(".")) is None:
            continue
        with contextlib.suppress(OSError):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                # One that is not finished yet may still get its lock.
                finished = (
                    not name.startswith(".") or time.time() - os.fstat(file).st_mtime > _SECONDS_TO_WRITE
                )
                if finished and _is_stale(file):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(file)
