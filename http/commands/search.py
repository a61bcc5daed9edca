"""The command `greenroom search`: models of the hub that MLX reads."""

from __future__ import annotations

import json
import sys

import click


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Longest list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Search the hub for models in MLX's format, the most downloaded first.

    In a pipe each model is a line, with tabs between its id, its downloads, its likes,
    and whether it is here or gated.

    \b
    Examples:
      greenroom search qwen3 4bit
      greenroom search whisper --limit 5 --json
    """
    import attrs

    from greenroom.actors.downloads.searching import search
    from greenroom.schemas.problems import ProblemError

    try:
        found = search(" ".join(words), limit)
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in found], indent=2))
        return
    rows: list[tuple[str, ...]] = [
        (
            "".join(letter if letter.isprintable() else "?" for letter in each.id),
            f"{each.downloads:,}",
            f"{each.likes:,}",
            ", ".join(word for word, told in (("here", each.local), ("gated", each.gated)) if told),
        )
        for each in found
    ]
    if sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            click.echo("\t".join(row))


def _print_table(rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("model", overflow="fold")
    table.add_column("downloads", justify="right")
    table.add_column("likes", justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
