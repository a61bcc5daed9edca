"""The command `greenroom hosts check`: the machines of models with ranks, and the links between them."""

from __future__ import annotations

import attrs
import click

from greenroom.http.commands.local_models import LocalModels, model_option
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.settings.sources import BadSettingError, settings_options
from greenroom.http.terminal.streams import for_line
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings


@click.group("hosts")
def command() -> None:
    """Examine the machines that share a model (`ranks`, `hosts`)."""


@command.command("check")
@click.argument("hosts", nargs=-1, metavar="[HOSTS.json]...")
@settings_options("memory_bytes")
@model_option
@click.pass_context
def check(context: click.Context, hosts: tuple[str, ...], settings: Settings, model: str | None) -> None:
    """Try ssh, versions, files, links and memory of the hosts, and say what to expect of them.

    HOSTS.json has the format of `mlx.launch`; without it, the setting `hosts` counts. With a model, its files
    are compared, too, and its split is planned over as many hosts as its `ranks`, or all. The exit status is
    1 if a model could not be loaded over them.

    \b
    Examples:
      greenroom hosts check hosts.json
      greenroom hosts check studio=10.0.0.1 mini=10.0.0.2 --model ~/models/Qwen3-235B-4bit
    """
    local: LocalModels = context.obj
    settings = attrs.evolve(settings, models=(*settings.models, *([model] if model else ())))
    wrong = 0
    try:
        for subject, text, is_wrong in local.check_hosts(hosts, model, settings):
            click.echo(for_line(f"{'WRONG' if is_wrong else 'ok':<6}{subject:<14} {text}"))
            wrong += is_wrong
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    except ValueError as error:
        raise BadSettingError(str(error)) from error
    faults = "1 thing is" if wrong == 1 else f"{wrong} things are"
    click.echo(f"\n{faults} wrong." if wrong else "\nAll is well.")
    context.exit(ExitStatus.FAILED if wrong else ExitStatus.DONE)
