"""The command `greenroom launch`: a client of a server, started with settings made for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from greenroom.http.process.exit_status import status_of_signal
from greenroom.http.terminal.admin_client import check_client_url
from greenroom.http.terminal.standard_streams import for_terminal

if TYPE_CHECKING:
    from greenroom.http.clients.launch import Launch
    from greenroom.http.clients.launched import LaunchedClient
    from greenroom.http.clients.server_facts import ServerFacts

NAMES = ("claude", "codex", "opencode", "aider", "cn", "cline", "llm")
_NOT_INSTALLED = 127


@click.command("launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--model", metavar="MODEL", help="Model to use; else the server's default.")
@click.option(
    "--url", callback=check_client_url, help="Address of the server, instead of one on this machine."
)
@click.option("--print", "prints", is_flag=True, help="Print what would be started, with which settings.")
@click.argument("client", type=click.Choice(NAMES))
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
    from greenroom.http.clients.launched import LAUNCHED
    from greenroom.http.commands.clients.server_for_client import server_for_client, start_trusting

    launched, folder = LAUNCHED[client], client_folder(client)
    if not prints and _find(launched.program) is None:
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
        except OSError as error:
            raise click.ClickException(f"{error.filename or folder}: {error.strerror}") from error
        status = _run(launched, started, is_own=is_own)
    sys.exit(status)


def client_folder(client: str) -> Path:
    """Return the folder that belongs to a client when Greenroom starts it."""
    from platformdirs import user_data_path

    return user_data_path("greenroom", appauthor=False) / "clients" / client


def _run(launched: LaunchedClient, started: Launch, *, is_own: bool) -> int:
    """Run the client, and return its exit status; beside a running server it replaces this process."""
    program, *arguments = started.command
    path = _find(program) or program
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


def _find(program: str) -> str | None:
    import shutil

    return shutil.which(program)


def _print(started: Launch, folder: Path, server: ServerFacts) -> None:
    """Print the commands and files of a client's start, with `KEY` in place of the API key."""
    from greenroom.http.clients.certificate_bundle import FILE

    def hidden(text: str) -> str:
        return text.replace(server.key, "KEY") if len(server.key) > len("none") else text

    files = dict(started.files)
    if FILE in files:
        files[FILE] = f"{files[FILE].count('BEGIN CERTIFICATE')} certificates"
    for line in attrs.evolve(started, files=files).lines(folder):
        click.echo(hidden(line))
