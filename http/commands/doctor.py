"""The command `greenroom doctor`: everything that a report of a fault should say about a machine."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import aclosing, closing, suppress
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import attrs
import click
from packaging.requirements import Requirement

from greenroom.actors.store.connection import check_contents
from greenroom.actors.store.database_file import MEMORY, UnusableDatabase, default_path
from greenroom.http.commands.local_models import LocalModels
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.process.shutdown import raise_descriptor_limit
from greenroom.http.settings.check_value import FIELDS
from greenroom.http.settings.sources import GroupedCommand, settings_options
from greenroom.http.settings.start_checks import check_at_start
from greenroom.http.terminal.admin_client import AdminClient, running_server
from greenroom.http.terminal.streams import MODEL, without_home
from greenroom.http.transport.accept_loop import needed_descriptors
from greenroom.schemas.models.model_description import MachineReport
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.settings import Settings

FLAGS = tuple(name for name in FIELDS if name != "models")


@click.command(cls=GroupedCommand)
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=MODEL)
@settings_options(*FLAGS)
@click.pass_context
def command(context: click.Context, settings: Settings, models: tuple[str, ...]) -> None:
    """Examine this machine for a server with these settings, and say what is wrong.

    It looks at the platform, MLX and its device, memory, descriptors, folders and their rights, ports,
    versions of libraries, and models that cannot be loaded. Nothing is loaded, downloaded or created. The
    exit status is 1 if something is wrong. The text is made for reports of faults: it has names of models and
    paths, without the home folder, and no secrets.

    \b
    Examples:
      greenroom doctor
      greenroom doctor ~/models/Qwen3-4B-4bit --port 9000
    """
    local: LocalModels = context.obj
    settings = attrs.evolve(settings, models=models or settings.models)
    wrong = 0
    for name, check in _checks(settings, local):
        for finding in _findings(name, check):
            click.echo(finding.line())
            wrong += finding.wrong
    end = f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong." if wrong else "All is well."
    click.echo(f"\n{end}")
    context.exit(ExitStatus.FAILED if wrong else ExitStatus.DONE)


def _checks(settings: Settings, local: LocalModels) -> Iterator[tuple[str, Callable[[], Iterable[Finding]]]]:
    """Yield the checks in the order of the report; each begins when it is called."""
    machine = local.examine_machine(settings.device)
    hub_cache = Path(machine.hub_cache)
    yield "platform", check_platform
    yield "libraries", check_libraries
    yield "device", lambda: check_device(settings, machine)
    yield "descriptors", lambda: check_descriptors(settings)
    yield "folders", lambda: check_folders(settings, hub_cache)
    yield "ports", lambda: check_ports(settings)
    yield "settings", lambda: _check_settings(settings, local)
    yield "remotes", lambda: check_remotes(settings)
    yield "models", lambda: check_models(local.describe(settings), settings.models, hub_cache)


def _findings(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; one that fails is a finding too, and the others go on."""
    try:
        yield from check()
    except Exception as error:
        yield Finding(name, f"cannot be examined: {type(error).__name__}: {error}", wrong=True)


def _check_settings(settings: Settings, local: LocalModels) -> Iterator[Finding]:
    try:
        # The folder of the prefix cache, which a start would create, is examined with the others.
        check_at_start(attrs.evolve(settings, prefix_cache_dir=None), local)
    except click.ClickException as error:
        yield Finding("settings", error.format_message(), wrong=True)
    else:
        yield Finding("settings", "a server would start with them")


@attrs.frozen
class Finding:
    """A line of the report. `subject`: part that was examined, in a word or two; `wrong`: True for a fault,
    which makes the exit status 1.
    """

    subject: str
    text: str
    wrong: bool = False

    def line(self) -> str:
        """Return the finding as a line; the user's name in paths is left out, as reports are public."""
        shown = "".join(each if each.isprintable() else " " for each in without_home(self.text))
        return f"{'WRONG' if self.wrong else 'ok':<6}{self.subject:<14}{shown}"


LEAST_FREE = 1_000_000_000  # Free bytes below which a disk counts as full


def check_folders(settings: Settings, hub_cache: Path) -> Iterator[Finding]:
    """Yield the state of each folder."""
    yield _check("hub cache", hub_cache)
    if settings.db == MEMORY:
        yield Finding("database", "in memory")
    else:
        yield _check_database(default_path() if settings.db is None else Path(settings.db).expanduser())
    if settings.prefix_cache_dir is not None:
        yield _check("prefix cache", Path(settings.prefix_cache_dir).expanduser())
    try:
        yield _check("uploads", Path(tempfile.gettempdir()))
    except OSError as error:
        yield Finding("uploads", f"no folder for temporary files: {error.strerror}", wrong=True)


def _check_database(file: Path) -> Finding:
    if file.exists() and not file.is_file():
        return Finding("database", f"{file}: it is no file", wrong=True)
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        return Finding("database", f"{file}: this user may not read and write it", wrong=True)
    if file.exists():
        try:
            check_contents(file)
        except UnusableDatabase as error:
            return Finding("database", f"{file}: {error}", wrong=True)
    folder = _check("database", file.parent)
    return Finding("database", folder.text.replace(str(file.parent), str(file), 1), folder.wrong)


def _check(subject: str, folder: Path) -> Finding:
    try:
        existing = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        with tempfile.TemporaryFile(dir=existing):
            pass
        if folder == existing:
            os.listdir(folder)
        free = shutil.disk_usage(existing).free
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Finding(subject, f"{folder}: cannot be read and written ({reason})", wrong=True)
    told = f"{folder}: {size_text(free)} free"
    if free < LEAST_FREE:
        return Finding(subject, f"{told}, the disk is full", wrong=True)
    return Finding(subject, told if folder == existing else f"{told}, not there yet")


_TOLD = ("mlx", "mlx-lm", "mlx-vlm", "mlx-audio", "transformers", "tokenizers", "huggingface-hub", "trio")
"""Libraries whose versions every report tells."""


def check_libraries() -> Iterator[Finding]:
    """Yield the versions of the main libraries, and each library that is missing or of an untested
    version."""
    asked = [Requirement(line) for line in requires("greenroom") or ()]
    found = {each.name: _version(each.name) for each in asked}
    yield Finding("libraries", ", ".join(f"{name} {found[name]}" for name in _TOLD if found.get(name)))
    yield from check_versions(asked, found)


def check_versions(asked: list[Requirement], found: dict[str, str | None]) -> Iterator[Finding]:
    """Yield the requirements that installed versions do not meet; those of extras, only if installed.
    `found`: installed versions by name; None for a library that is not installed.
    """
    for each in asked:
        optional = each.marker is not None and not each.marker.evaluate({"extra": ""})
        installed = found[each.name]
        if installed is None:
            if not optional:
                yield Finding("library", f"{each.name} is missing: install Greenroom again", wrong=True)
        elif not optional and not each.specifier.contains(installed, prereleases=True):
            told = f"{each.name} {installed} was not tested: install {each.name}{each.specifier}"
            yield Finding("library", told, wrong=True)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_platform() -> Iterator[Finding]:
    """Yield the versions of Greenroom, of Python and of the system."""
    yield Finding("greenroom", version("greenroom"))
    implementation = platform.python_implementation()
    translated = sys.platform == "darwin" and platform.machine() != "arm64"
    yield Finding("python", f"{platform.python_version()} ({implementation}, {platform.machine()})")
    told = f"{platform.platform()}, {os.cpu_count()} processors"
    if translated:
        told += ": Python is not made for Apple silicon, or runs under Rosetta; install one for arm64"
    yield Finding("system", told, translated)


def check_device(settings: Settings, found: MachineReport) -> Iterator[Finding]:
    """Yield the device of the settings, and the memory that models may have on it."""
    told = found.problem or found.device
    if told == "cpu" and sys.platform == "linux":
        told += "; with OpenBLAS (Debian: libopenblas0-pthread) it would compute prompts several times faster"
    yield Finding("device", told, found.problem is not None)
    if not found.memory:
        return
    asked = settings.memory_bytes
    most = found.limit if asked is None else asked
    limit = f"models may have {size_text(most)} of {size_text(found.memory)}"
    if asked is not None and asked > found.memory:
        yield Finding("memory", f"{limit}: memory_bytes is more than there is", wrong=True)
    else:
        yield Finding("memory", limit if asked is None else f"{limit} (memory_bytes)")


def check_descriptors(settings: Settings) -> Iterator[Finding]:
    """Yield the limit on open files, against the connections of the settings."""
    needed = needed_descriptors(settings.max_connections)
    allowed = raise_descriptor_limit(needed)
    told = f"{allowed:,}; {settings.max_connections:,} connections need {needed:,}"
    remedy = "" if allowed >= needed else ": raise `ulimit -Hn`, or lower max_connections"
    yield Finding("descriptors", told + remedy, allowed < needed)


def check_models(rows: list[dict[str, Any]], named: Collection[str], hub_cache: Path) -> Iterator[Finding]:
    """Yield a finding for each model that cannot be loaded, and one with the number of the others.

    A model that lies in the hub's cache and that no setting names is no fault: other programs put theirs
    there too.
    """
    counts: Counter[str] = Counter()
    places = {os.path.realpath(os.path.expanduser(each)) for each in named}
    for row in rows:
        name, folder = row["id"], row["folder"]
        is_named = name in named or folder in places
        if row["problem"]:
            foreign = folder is not None and Path(folder).is_relative_to(hub_cache) and not is_named
            yield Finding("model", f"{name}: {row['problem']}", wrong=not foreign)
        elif folder is None:
            yield Finding("model", f"{name}: not on this machine; it is downloaded when it is needed")
        elif row["fits"] is False:
            least = size_text(row["least_bytes"] or 0)
            yield Finding("model", f"{name}: needs at least {least}, more than models may have", is_named)
        else:
            counts[row["type"] or "unknown"] += 1
    usable = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"
    yield Finding("models", f"that can be loaded: {usable}")


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Yield for each address whether it can be bound, or is a running Greenroom's."""
    for address in listen_addresses(settings):
        if address.is_path:
            if running_server(str(address)) is None:
                yield Finding("port", f"{address} is a Unix socket of this machine")
            else:
                yield from _ask(address, address, settings)
            continue
        bound = ListenAddress("127.0.0.1", address.port) if address.is_localhost else address
        error = _bind(bound)
        if error is None:
            yield Finding("port", f"{address} is free")
        elif error.errno == errno.EADDRINUSE:
            yield from _ask(address, bound, settings)
        else:
            yield Finding("port", f"{address} cannot be bound: {error.strerror or error}", wrong=True)


MOST_SECONDS_OFF = 60.0
"""Seconds by which the clock of a remote may differ, before the doctor tells it."""


def check_remotes(settings: Settings) -> Iterator[Finding]:
    """Yield for each remote whether it is reached, takes the key, and has models that the settings list."""
    import trio

    from greenroom.actors.remotes.remote_call import CallFailure
    from greenroom.actors.remotes.remote_client import RemoteClient
    from greenroom.actors.remotes.remote_servers import RemoteServer

    async def ask(name: str, remote: Remote) -> tuple[Any, Any, str]:
        async with aclosing(RemoteClient(name, remote)) as client:
            return await client.list_models()

    for name, remote in settings.remote_servers.items():
        place = f"{name}, {remote.root}"
        try:
            listed, _, date = trio.run(ask, name, remote)
        except CallFailure as failure:
            told = failure.detail or failure.problem.detail
            yield Finding("remote", f"{place}: {told[:300]}", wrong=True)
            continue
        server = RemoteServer(name, remote)
        server.record_list(listed)
        yield Finding("remote", f"{place}: {len(server.models or ())} models", wrong=not server.models)
        with suppress(ValueError, TypeError):  # some tell no date
            seconds = abs(parsedate_to_datetime(date).timestamp() - time.time())
            if seconds > MOST_SECONDS_OFF:
                yield Finding("remote", f"{name}: its clock and this machine's differ by {seconds:.0f} s")


def _bind(address: ListenAddress) -> OSError | None:
    try:
        places = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(place)
    except OSError as error:
        return error
    return None


def _ask(address: ListenAddress, bound: ListenAddress, settings: Settings) -> Iterator[Finding]:
    unspecified = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    reached = ListenAddress(unspecified.get(bound.host, bound.host), bound.port)
    usual = "https" if settings.tls_certificate else "http"
    urls = (
        (str(bound),)
        if bound.is_path
        else (f"{usual}://{reached}", f"https://{reached}", f"http://{reached}")
    )
    url = next((each for each in urls if running_server(each) is not None), urls[0])
    own = running_server(url)
    known = "a Greenroom server" if own is None else f"greenroom (process {own.pid})"
    try:
        with closing(AdminClient(url)) as client:
            told = client.status()
        if told is not None:
            known = f"greenroom {told['version']} (process {told['pid']})"
            problems = [str(problem)[:500] for problem in told["problems"][:20]]
    except click.ClickException as refused:
        yield Finding("port", f"{address} is in use by {known}; its problems are not told: {refused.message}")
        return
    except (ValueError, KeyError, TypeError):
        told = None
    if told is None:
        yield Finding("port", f"{address} is in use by another program: use --port", wrong=True)
        return
    yield Finding("port", f"{address} is in use by {known}")
    yield from (Finding("server", problem, wrong=True) for problem in problems)
