"""The command line, and the one place that may import from every room (inside functions).

Commands are imported when they are called: `greenroom --help` loads click and nothing else.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.process.problem_line import print_problem
from greenroom.http.process.quick_imports import quick_imports
from greenroom.http.terminal.standard_streams import drop_output

if TYPE_CHECKING:
    from greenroom.schemas.settings import Settings

COMMANDS = {
    "serve": "Serve models over HTTP to any client of OpenAI, Anthropic or Ollama.",
    "chat": "Talk to a model in the terminal, or pipe a prompt through it.",
    "speak": "Speak a text into an audio file.",
    "embed": "Print the vectors of texts.",
    "transcribe": "Write down what is said in a recording.",
    "models": "List the models that can be asked for.",
    "bench": "Measure a server, or a model against mlx-lm's bare loop.",
}


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What standard output may be, of commands that only print."""


class LazyCommands(click.Group):
    """Imports a command's module, `greenroom.http.commands.<name>`, when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with quick_imports():
            module = importlib.import_module(f"greenroom.http.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        click.echo(f"greenroom {version('greenroom')}")
        ctx.exit()


class EngineModels:
    """The models and devices of this machine, as the engine finds them: `LocalModels` of the commands."""

    def has_gpu(self) -> bool:
        """Return whether MLX can compute on a GPU here."""
        from greenroom.engine.loading import devices

        return devices.has_gpu()

    def is_missing(self, model: str) -> bool:
        """Return whether an operator's name for a model means a folder that holds none."""
        from greenroom.engine.catalog.catalog import resolve_folder

        folder = resolve_folder(model)
        return folder is not None and not (folder / "config.json").is_file()

    def find_unknown(self, settings: Settings, names: Collection[str]) -> set[str]:
        """Return those of the names that no model has which a server with these settings would serve now."""
        from greenroom.engine.catalog.catalog import Catalog, CatalogEntry

        catalog = Catalog(settings.models, trust_remote_code=settings.trust_remote_code)
        return {name for name in names if not isinstance(catalog.find(name), CatalogEntry)}

    def find_bad_system_prompt(self, settings: Settings) -> str | None:
        """Return what is wrong with a file that holds a system prompt, if one cannot be used."""
        from greenroom.engine.catalog.operator.system_prompts import find_bad_system_prompt

        return find_bad_system_prompt(settings)

    def describe(self, models: tuple[str, ...], trust_remote_code: bool) -> list[dict[str, Any]]:
        """Return what is known of the models that can be asked for, without loading any."""
        from greenroom.engine.catalog.catalog import Catalog
        from greenroom.engine.catalog.description import describe
        from greenroom.schemas.capability_summary import capability_summary

        rows: list[dict[str, Any]] = []
        for entry in Catalog(models, trust_remote_code=trust_remote_code).entries():
            known = describe(entry, trust_remote_code)
            row: dict[str, Any] = {"id": known.id, "folder": known.folder, "size": known.nbytes}
            if (record := known.record) is not None:
                row |= {"family": record.family, "architecture": record.architecture}
                row |= {"context": record.context, "capabilities": capability_summary(record)}
            if known.problem is not None:
                row["problem"] = known.problem.detail
            rows.append(row)
        return rows


@click.command(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "obj": EngineModels()},
    epilog="Every option of `serve` can also be set in a TOML file or as a GREENROOM_… variable.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def greenroom() -> None:
    """A local inference server for MLX models.

    \b
    Examples:
      greenroom serve                                 # the built-in demo model
      greenroom serve mlx-community/Qwen3-4B-4bit     # then point any OpenAI client at it
      greenroom chat ~/models/Qwen3-4B-4bit
      git diff | greenroom chat
      greenroom bench http://127.0.0.1:8000
    """


def main() -> None:
    """Run the command line and exit; print what the user did wrong in one line."""
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
        drop_output()
        print_problem(click.ClickException(f"cannot write: {problem.strerror}"))
        status = ExitStatus.FAILED
    sys.exit(status)


if __name__ == "__main__":
    main()
