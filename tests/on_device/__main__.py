"""`make on-device`: measure a model on this machine, check the program there, and write one report.

python -m greenroom.tests.on_device --short --out report.md
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from attrs import evolve

from greenroom.tests.on_device.plans import LONG, SHORT
from greenroom.tests.on_device.report import write_report


@click.command()
@click.option("--short", is_flag=True, help="Minutes: one run of each figure, few checks.")
@click.option("--model", help="Folder or hub id that is measured (default: the built-in one).")
@click.option("--draft-model", help="Folder or hub id of a model that drafts (default: a lookup).")
@click.option("--checks", is_flag=True, help="Also compare tiny models with mlx-lm, and attack a server.")
@click.option("--seconds", type=int, help="Of the attack.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("on-device.md"))
def main(
    short: bool, model: str | None, draft_model: str | None, checks: bool, seconds: int | None, out: Path
) -> None:
    """Print the figures of a model on this machine as a table to paste; exit with 1 if anything failed."""
    plan = SHORT if short else LONG
    drafts = ("--draft-model", draft_model) if draft_model else ()
    plan = evolve(
        plan,
        model=model or plan.model,
        row_options=(*plan.row_options, *drafts),
        checks=checks,
        attack_seconds=seconds or plan.attack_seconds,
    )
    failures = write_report(plan, out, lambda text: click.echo(text, err=True))
    click.echo(out.read_text())
    click.echo(f"{len(failures)} failures; the report is {out}", err=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
