"""The command `greenroom doctor`: everything that a report of a fault should say about a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.doctor.finding import Finding
from greenroom.http.doctor.folder_checks import check_folders
from greenroom.http.doctor.library_checks import check_libraries
from greenroom.http.doctor.machine_checks import check_descriptors, check_device, check_platform
from greenroom.http.doctor.model_checks import check_models
from greenroom.http.doctor.port_checks import check_ports
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.settings.check_value import FIELDS
from greenroom.http.settings.grouped_options import GroupedCommand
from greenroom.http.settings.sources import settings_options
from greenroom.http.settings.start_checks import check_at_start
from greenroom.http.terminal.option_types import MODEL
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
