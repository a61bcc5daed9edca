"""The command line, the only module that may import from every package (inside functions).

Commands are imported on use: `greenroom --help` loads only click.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenroom.http.command_table import COMMANDS, PLACES
from greenroom.http.process.deferred_imports import deferred_imports
from greenroom.http.process.exit_status import ExitStatus, print_problem

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from greenroom.schemas.models.model_description import Download, MachineReport
    from greenroom.schemas.protocols.download_protocol import DownloadProgress
    from greenroom.schemas.settings.settings import Settings


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of standard output for commands that only print."""


class LazyCommands(click.Group):
    """A group that imports a command's module, `greenroom.http.commands.<name>`, on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place, name = PLACES.get(cmd_name, (cmd_name, "command"))
        with deferred_imports():
            module = importlib.import_module(f"greenroom.http.commands.{place}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return matching commands, without importing any, and options."""
        from click.shell_completion import CompletionItem

        begun = {name: text for name, text in COMMANDS.items() if name.startswith(incomplete)}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=text) for name, text in begun.items()), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _versions() -> list[str]:
    """Return this program's name and version, then those of the libraries that compute, and of Python."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    names = ("greenroom", "mlx", "mlx-lm", "mlx-vlm", "mlx-audio", "mlx-embeddings", "transformers")
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # an extra, or the program runs from a folder
            found += [f"{name} unknown"] if name == names[0] else []
    return [*found, f"Python {platform.python_version()}"]


class EngineModels:
    """Models and devices of this machine as the engine finds them; implements `LocalModels`."""

    def has_gpu(self) -> bool:
        from greenroom.engine.loading import devices

        return devices.has_gpu()

    def can_compute(self) -> bool:
        """Return whether MLX is installed with a backend, which is a separate package on Linux."""
        from greenroom.engine.loading import devices

        return devices.can_compute()

    def is_missing(self, model: str) -> bool:
        from greenroom.engine.catalog.folders import resolve_folder

        folder = resolve_folder(model)
        return folder is not None and not folder.is_dir()

    def why_no_model(self, model: str) -> str | None:
        from greenroom.engine.catalog.folders import why_no_model

        return why_no_model(model)

    def find_missing(self, models: Sequence[str]) -> list[str]:
        from greenroom.engine.catalog.folders import resolve_folder
        from greenroom.engine.catalog.hub.hub_cache import find_cached_model, hub_cache_folder

        ids = [model for model in dict.fromkeys(models) if resolve_folder(model) is None]
        return [hub_id for hub_id in ids if find_cached_model(hub_id, hub_cache_folder()) is None]

    def fetch(
        self,
        name: str,
        settings: Settings,
        tell: Callable[[Download], None],
        report: Callable[[DownloadProgress], None],
    ) -> str:
        import trio

        from greenroom.actors.engines.listed_models import ModelNames
        from greenroom.actors.transfers.fetch_model import Wish, fetch_model
        from greenroom.engine.catalog.hub.repository import split_name

        wish = Wish(*split_name(name), trust_remote_code=settings.trust_remote_code)
        folder = trio.run(fetch_model, wish, report, tell)
        if (base := ModelNames(settings).missing_base(wish.hub_id)) is not None:
            trust = settings.trust_remote_code
            trio.run(fetch_model, Wish(base, trust_remote_code=trust), report, tell)
        return str(folder)

    def survey_hub(self, hub_ids: Sequence[str]) -> tuple[dict[str, int], float]:
        import trio

        from greenroom.actors.transfers.fetch_model import survey_hub

        return trio.run(survey_hub, hub_ids)

    def examine_machine(self, device: str) -> MachineReport:
        from greenroom.engine.loading.examine_machine import examine_machine

        return examine_machine(device)

    def cached_ids(self) -> list[str]:
        from greenroom.engine.catalog.hub.hub_cache import hub_cache_folder, list_cached_ids

        return list_cached_ids(hub_cache_folder())

    def find_unknown(self, settings: Settings, names: Collection[str]) -> set[str]:
        from greenroom.engine.catalog.catalog import Catalog
        from greenroom.engine.catalog.folders import CatalogEntry
        from greenroom.schemas.settings.settings import Settings

        plain = Settings(
            models=settings.models, model_dir=settings.model_dir, trust_remote_code=settings.trust_remote_code
        )
        catalog = Catalog.of(plain)
        return {name for name in names if not isinstance(catalog.find(name), CatalogEntry)}

    def why_pins_do_not_fit(self, settings: Settings) -> str | None:
        from greenroom.engine.loading.load_size import why_pins_do_not_fit

        return why_pins_do_not_fit(settings)

    def find_conflict(self, settings: Settings) -> str | None:
        from greenroom.engine.catalog.catalog import Catalog, find_conflict

        return find_conflict(Catalog.of(settings).owned(), settings.aliases, settings.all_profiles)

    def find_bad_file(self, settings: Settings) -> str | None:
        from greenroom.engine.catalog.operator_texts import find_bad_file

        return find_bad_file(settings)

    def describe(self, settings: Settings, name: str | None = None) -> list[dict[str, Any]]:
        from greenroom.actors.engines.engines import Engines
        from greenroom.actors.engines.residences import ProbedModels
        from greenroom.actors.store import read_only as stored
        from greenroom.actors.store.database_file import MEMORY, default_path
        from greenroom.schemas.models.model_description import model_listing
        from greenroom.schemas.problems import Problem

        database = settings.db or str(default_path())
        if database == MEMORY:
            engines = Engines(settings)
        else:
            engines = Engines(settings, ProbedModels(partial(stored.read_capabilities, Path(database))))
            engines.residences.connect(partial(stored.read_working_space, Path(database)))
        found = engines.describe(name)
        return [
            {"id": known.id, **model_listing(known), "folder": known.folder, "notices": list(known.notices)}
            for known in (() if isinstance(found, Problem) else found)
        ]

    def check_hosts(
        self, named: Sequence[str], model: str | None, settings: Settings
    ) -> Iterator[tuple[str, str, bool]]:
        from greenroom.engine.ranks.survey import check_hosts

        return check_hosts(named, model, settings)


@click.command(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "obj": EngineModels()},
    epilog="Every option of `serve` can also be set in a TOML file or as a GREENROOM_… variable.",
    invoke_without_command=True,
    no_args_is_help=True,
)
@click.option(
    "--version", "shows_version", is_flag=True, help="Show the versions of this and of MLX's libraries."
)
@click.option("-v", "--verbose", is_flag=True, help="With --version: one version a line.")
@click.pass_context
def greenroom(ctx: click.Context, shows_version: bool, verbose: bool) -> None:
    """A local inference server for MLX models.

    \b
    Examples:
      greenroom serve                                 # the built-in demo model
      greenroom serve mlx-community/Qwen3-4B-4bit     # then point any OpenAI client at it
      greenroom chat ~/models/Qwen3-4B-4bit
      git diff | greenroom chat
    """
    if shows_version:
        own, *others = _versions()
        click.echo("\n".join((own, *others)) if verbose else f"{own} ({', '.join(others)})")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run the command line and exit; print user errors on one line."""
    try:
        status = greenroom.main(prog_name="greenroom", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as problem:
        problem.show()
        status = problem.exit_code
    except click.ClickException as problem:
        print_problem(problem)
        status = problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = ExitStatus.INTERRUPTED
    except OSError as problem:
        if problem.errno not in _UNWRITABLE:
            raise
        from greenroom.http.terminal.streams import drop_output

        drop_output()
        print_problem(click.ClickException(f"cannot write: {problem.strerror}"))
        status = ExitStatus.FAILED
    sys.exit(status)


if __name__ == "__main__":
    main()
