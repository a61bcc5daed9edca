"""The server that a command uses: one that runs, or one of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.terminal.running_server import choose_server
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.settings.caller import new_secret
from greenroom.schemas.settings.setting_groups import Network
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.actors.system import System
    from greenroom.http.terminal.chosen_server import ChosenServer

_ANY_SIZE = 1 << 50


@attrs.frozen
class CommandServer:
    """The server that a command uses: one that runs, or one of its own that ends with it.

    Args:
        running: Server that runs; None for its own.
        sets_length: True if the settings limit the length of its own server's answers.
    """

    settings: Settings
    running: ChosenServer | None
    sets_length: bool = False

    def run(self, run: Callable[[ChosenServer], Awaitable[int]]) -> NoReturn:
        """Run the command, and end the process with its exit status."""
        from greenroom.http.process.command_run import run_command, run_with_system

        if (running := self.running) is not None:
            run_command(lambda: run(running))

        from greenroom.http.app import serve
        from greenroom.http.terminal.chosen_server import ChosenServer

        settings, key = self.settings, new_secret()
        plain: dict[str, Any] = {
            each.name: each.default for each in attrs.fields(Network) if each.name != "shutdown_timeout"
        }
        private = {"host": "127.0.0.1", "port": 0, "api_key": key, "max_upload_bytes": _ANY_SIZE}
        serving = attrs.evolve(settings, db=None, **plain | private)

        async def run_on_own(system: System) -> int:
            [address] = await system.start(serve, system, serving)
            length = self.sets_length
            return await run(ChosenServer(address, "default", key, drops_oldest=True, sets_length=length))

        run_with_system(settings, run_on_own, stores=False)


def server_of_command(
    local: LocalModels,
    settings: Settings,
    model: str | None,
    kinds: Sequence[ModelType],
    url: str | None,
    *,
    stays_local: bool,
    place: str = "-m",
    name_first: Callable[[Settings], Settings] = lambda settings: settings,
) -> CommandServer:
    """Return the server that a command uses, once nothing but its model's load is left to do.

    Args:
        place: Option or argument that names the model, for errors.

    Raises:
        UsageError: Both a server and none is asked for, or the first model is known to have another type.
        ClickException: The settings are wrong, or a model cannot be downloaded.
    """
    from greenroom.http.commands.downloads import fetch_missing
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.settings.start_checks import check_at_start

    configure_command_logging(settings.log_level)
    settings = attrs.evolve(settings, models=(model,) if model else settings.models)
    running = choose_server(settings, model, kinds, url, stays_local=stays_local)
    if running is not None:
        return CommandServer(settings, running)
    settings = name_first(settings)
    check_at_start(settings, local)
    fetch_missing(local, settings)
    known = local.describe(settings, "default")
    if known and known[0]["type"] is not None and known[0]["type"] not in kinds:
        raise click.UsageError(_misfit(settings, model, known[0]["type"], kinds[0], place))
    length = any(each["settings"]["max_tokens"]["value"] is not None for each in known)
    return CommandServer(settings, None, length)


def _misfit(settings: Settings, model: str | None, found: ModelType, kind: ModelType, place: str) -> str:
    """Return the error of a model for something else, which says how to name another."""
    from greenroom.schemas.models.kinds import PURPOSES

    wanted = f"name one for {PURPOSES[kind]} with {place}, a local folder or a hub id"
    if model is not None:
        return f"'{model}' is a model for {PURPOSES[found]}: {wanted}"
    first = f"'{settings.models[0]}', the first model of the settings," if settings.models else ""
    return f"no model is named, and {first or 'the built-in demo model'} is for {PURPOSES[found]}: {wanted}"
