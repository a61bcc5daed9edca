"""The commands `greenroom launch` and `connect`: a client of a server, with settings made for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import click
import httpx2

from greenroom.http.clients.connected import connected_names, lines_for, needed_tokens
from greenroom.http.clients.launched import LAUNCHED, LaunchedClient
from greenroom.http.clients.server_facts import (
    FILE,
    NO_KEY,
    Launch,
    ServerFacts,
    facts_of,
    is_self_signed,
    make_bundle,
    own_server,
    trusted_address,
    with_bundle,
)
from greenroom.http.process.exit_status import status_of_signal
from greenroom.http.process.runtime_file import RunningServer, running_servers
from greenroom.http.settings.sources import environment_key
from greenroom.http.terminal.admin_client import DEFAULT_URL, NO_SOCKETS, check_client_url
from greenroom.http.terminal.chosen_server import ServedModels
from greenroom.http.terminal.streams import for_terminal

_NOT_INSTALLED = 127


@click.command("launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--model", metavar="MODEL", help="Model to use; else the server's default.")
@click.option(
    "--url", callback=check_client_url, help="Address of the server, instead of one on this machine."
)
@click.option("--print", "prints", is_flag=True, help="Print what would be started, with which settings.")
@click.argument("client", type=click.Choice(tuple(LAUNCHED)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    model: str | None, url: str | None, prints: bool, client: str, arguments: tuple[str, ...]
) -> None:
    """Start a client on a server of this machine, with settings made for it.

    CLIENT gets the server's address and key, the model, its context and what it can do, by variables, options
    or a folder of its own, which stays between launches. No file of yours is changed. If no server runs, one
    is started until the client ends. ARGUMENTS are the client's own.

    \b
    Examples:
      greenroom launch claude
      greenroom launch --model org/name codex exec "Explain this folder"
      greenroom launch --print opencode
    """
    launched, folder = LAUNCHED[client], client_folder(client)
    if not prints and shutil.which(launched.program) is None:
        click.echo(f"greenroom: {launched.title} is not installed: {launched.install}", err=True)
        sys.exit(_NOT_INSTALLED)
    with server_for_client(url, model, folder) as (server, certificate, is_own):
        started = start_trusting(launched, server, certificate, folder, arguments)
        if advice := server.advice_for(launched.title, launched.needs):
            click.echo(for_terminal(f"greenroom: {advice}"), err=True)
        if prints:
            _print(started, folder, server)
            return
        try:
            started.write(folder)
            status = _run(launched, started, is_own=is_own)
        except OSError as error:
            raise click.ClickException(f"{error.filename or folder}: {error.strerror}") from error
    sys.exit(status)


def client_folder(client: str) -> Path:
    from platformdirs import user_data_path

    return user_data_path("greenroom", appauthor=False) / "clients" / client


def _run(launched: LaunchedClient, started: Launch, *, is_own: bool) -> int:
    """Run the client, and return its exit status; beside a running server it replaces this process."""
    program, *arguments = started.command
    path = shutil.which(program) or program
    environment = started.variables(os.environ)
    if not is_own:
        sys.stdout.flush()
        os.execve(path, [program, *arguments], environment)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # they are the client's
    process = subprocess.Popen([path, *arguments], env=environment, preexec_fn=_take_interrupts)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: process.send_signal(received))
    status = process.wait()
    return status_of_signal(-status) if status < 0 else status


def _take_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _print(started: Launch, folder: Path, server: ServerFacts) -> None:
    """Print the commands and files of a client's start, with `KEY` in place of the API key."""

    def hidden(text: str) -> str:
        return text.replace(server.key, "KEY") if len(server.key) > len("none") else text

    files = dict(started.files)
    if FILE in files:
        files[FILE] = f"{files[FILE].count('BEGIN CERTIFICATE')} certificates"
    for line in attrs.evolve(started, files=files).lines(folder):
        click.echo(hidden(line))


@click.command("connect")
@click.argument("client", required=False)
@click.option(
    "--url", callback=check_client_url, help=f"Address of the server [default: a running one, {DEFAULT_URL}]."
)
@click.option("--model", default="default", show_default=True, metavar="MODEL", help="Model to use.")
def connect_command(client: str | None, url: str | None, model: str) -> None:
    """Print the lines that connect a program to a server; without CLIENT, list the programs.

    Nothing is changed. YOUR_KEY stands for a key (`greenroom keys`); while the server needs none, any text
    will do.

    \b
    Examples:
      greenroom connect
      greenroom connect zed --model org/name
      greenroom connect open-webui --url http://studio.local:8000
    """
    names = connected_names()
    if client is None:
        for name, title in sorted(names.items()):
            click.echo(f"{name:<16}{title}")
        return
    if client not in names:
        raise click.BadParameter(f"'{client}' is none of {', '.join(sorted(names))}", param_hint="CLIENT")

    running = [server for server in running_servers() if server.urls] if url is None else []
    place = url or (running[0].urls[0] if running else DEFAULT_URL)
    key = environment_key() or (running[0].key if running else "") or NO_KEY
    facts = ServerFacts(place, model, "YOUR_KEY")
    try:
        with closing(ServedModels(place, key, verifies=not running)) as models:
            listed = models.named(model)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        reason = str(error) or type(error).__name__
        click.echo(
            for_terminal(f"greenroom: {place} tells no lengths ({reason}): those below are guesses"), err=True
        )
    else:
        if listed is None:
            raise click.ClickException(for_terminal(f"the server at {place} has no model '{model}'"))
        facts = facts_of(place, "YOUR_KEY", listed)
        if advice := facts.advice_for(names[client], needed_tokens(client)):
            click.echo(for_terminal(f"greenroom: {advice}"), err=True)
    try:
        text = lines_for(client, facts)
    except ValueError as error:
        raise click.ClickException(for_terminal(str(error))) from error
    click.echo(for_terminal(text))


_SELF_SIGNED = (
    "takes no self-signed certificate: serve under one that an authority signed (mkcert makes both)"
)


@contextmanager
def server_for_client(
    url: str | None, model: str | None, folder: Path
) -> Iterator[tuple[ServerFacts, str, bool]]:
    """Yield the server to use, the path of its certificate, and whether it was started for this."""
    own_key = environment_key()
    if url is not None:
        yield _facts(url, own_key, model), "", False
        return
    servers = running_servers()
    for running in servers:
        if running.urls:
            yield _facts_of_running(running, own_key, model), running.certificate, False
            return
    for running in servers:
        if running.addresses:
            raise click.ClickException(for_terminal(f"{running.addresses[0]}: {NO_SOCKETS}"))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)  # not without ending the server
    click.echo("greenroom: no server runs on this machine: starting one until the client ends", err=True)
    try:
        with own_server(model, folder / "server.log") as running:
            yield _facts_of_running(running, own_key, None), running.certificate, True
    except (RuntimeError, OSError) as error:  # its folder may be read-only
        raise click.ClickException(for_terminal(str(error))) from error


def _facts_of_running(running: RunningServer, own_key: str, model: str | None) -> ServerFacts:
    # A locked file of this user's names its address: whatever its certificate, it is this user's server.
    return _facts(running.urls[0], own_key or running.key, model, verifies=False)


def _facts(url: str, key: str, model: str | None, *, verifies: bool = True) -> ServerFacts:
    try:
        with closing(ServedModels(url, key or NO_KEY, verifies=verifies)) as models:
            listed: Mapping[str, Any] | None = (
                models.first_of(("text", "vision")) if model is None else models.named(model)
            )
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(for_terminal(f"{url}: {str(error) or type(error).__name__}")) from error
    if listed is None:
        wanted = f"model '{model}'" if model else "model for chats"
        raise click.ClickException(for_terminal(f"the server at {url} has no {wanted}"))
    return facts_of(url, key or NO_KEY, listed)


def start_trusting(
    launched: LaunchedClient, server: ServerFacts, certificate: str, folder: Path, arguments: Sequence[str]
) -> Launch:
    """Return the start of a client that trusts the certificate of this user's server, if it has one."""
    if not certificate or not server.url.startswith("https:"):
        return launched.make(server, folder, arguments)

    try:
        if not launched.takes_self_signed and is_self_signed(Path(certificate)):
            raise click.ClickException(f"{launched.title} {_SELF_SIGNED}")
        bundle = make_bundle(Path(certificate))
        address = trusted_address(server.url, bundle)
    except (OSError, ValueError) as error:
        reason = getattr(error, "verify_message", "") or error
        told = f"{launched.title} would not trust the certificate '{certificate}': {reason}"
        raise click.ClickException(for_terminal(told)) from error
    return with_bundle(launched.make(attrs.evolve(server, url=address), folder, arguments), folder, bundle)


def _leave(number: int, _frame: object) -> None:
    sys.exit(status_of_signal(number))
