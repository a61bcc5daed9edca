"""The command `greenroom service`: the supervised server as a service of the user, by systemd or launchd."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

import click

from greenroom.http.commands import serve
from greenroom.http.settings.sources import SERVER_KEY_VARIABLE
from greenroom.http.supervision.services import LaunchdAgent, SystemdUnit, supervised_program


@click.group()
def command() -> None:
    """Run the server in the background, from login on and again after crashes.

    systemd starts it on Linux, launchd on a Mac, for this user alone; nothing needs root.

    \b
    Examples:
      greenroom service install mlx-community/Qwen3-4B-4bit --port 9000
      greenroom service status
      greenroom service logs --follow
      greenroom service uninstall
    """


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SERVE ARGUMENTS]...")
def install(arguments: tuple[str, ...]) -> None:
    """Start `greenroom serve --supervised` with these arguments, now and at every login.

    A service that is there already is replaced. It runs in this folder, with the settings of this
    environment, but without its keys: `--api-key-file` names a file with the server's key.
    """
    seconds = _checked_shutdown_timeout(arguments)
    service = _service()
    replaced = service.path.exists()
    _write(service, service.content(supervised_program(arguments, seconds)))
    click.echo(f"{'Replaced' if replaced else 'Wrote'} {service.path}")
    if replaced:
        _run(service.replace_commands, must=False)
    _run(service.start_commands)
    click.echo(service.advice)


@command.command()
def uninstall() -> None:
    """Stop the server, and remove the service; models, settings and stored responses stay."""
    service = _installed()
    _run(service.stop_commands, must=False)
    service.path.unlink()
    _run(service.forget_commands, must=False)
    click.echo(f"Removed {service.path}")


@command.command()
@click.pass_context
def status(context: click.Context) -> None:
    """Show whether the service runs; the exit status is that of systemctl or launchctl."""
    context.exit(_shown(_installed().status_command))


@command.command()
@click.option("-n", "--lines", default=100, show_default=True, type=click.IntRange(min=0), help="Last lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines; Ctrl-C ends.")
@click.pass_context
def logs(context: click.Context, lines: int, follow: bool) -> None:
    """Show the log of the service."""
    context.exit(_shown(_installed().logs_command(lines, follow)))


def _service() -> SystemdUnit | LaunchdAgent:
    if sys.platform == "darwin":
        return LaunchdAgent()
    if shutil.which("systemctl") is None:
        raise click.ClickException("services need systemd or launchd, and this machine has neither")
    return SystemdUnit()


def _installed() -> SystemdUnit | LaunchdAgent:
    service = _service()
    if not service.path.exists():
        raise click.ClickException("no service is installed: `greenroom service install MODEL` does so")
    return service


def _checked_shutdown_timeout(arguments: Sequence[str]) -> float:
    """Return the server's time limit of a shutdown by its arguments, which are checked as `serve` does.
    Raises UsageError: A key is among them, which would stand in the service's file.
    """
    with serve.command.make_context("greenroom serve", [*arguments]) as context:
        settings = serve.settings_of(context)
    match dict(settings.origins).get("api_key"):
        case "flag":
            raise click.UsageError("the file of a service is no place for a key: name it by --api-key-file")
        case "environment":
            told = f"{SERVER_KEY_VARIABLE} is left out: the file of a service is no place for a key. "
            click.echo(f"{told}Name a file with it by --api-key-file.", err=True)
    return settings.shutdown_timeout


def _write(service: SystemdUnit | LaunchdAgent, content: bytes) -> None:
    """Write the file, which only its owner can read, since variables may hold more than settings."""
    try:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        service.path.touch(0o600)
        service.path.chmod(0o600)
        service.path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {service.path}: {error.strerror}") from error


def _run(commands: Sequence[Sequence[str]], *, must: bool = True) -> None:
    for words in commands:
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except OSError as error:
            raise click.ClickException(f"cannot run {words[0]}: {error.strerror}") from error
        if done.returncode and must:
            reason = done.stderr.strip() or f"exit status {done.returncode}"
            raise click.ClickException(f"`{' '.join(words)}`: {reason}")


def _shown(words: Sequence[str]) -> int:
    try:
        return subprocess.run(words).returncode
    except OSError as error:
        raise click.ClickException(f"cannot run {words[0]}: {error.strerror}") from error
