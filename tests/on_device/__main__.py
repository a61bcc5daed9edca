"""`make on-device`: check correctness, robustness and speed on this machine, and write one report.

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
@click.option("--short", is_flag=True, help="A few minutes: few models, short loads.")
@click.option("--model", help="Folder or hub id that is benchmarked (default: the built-in one).")
@click.option("--seconds", type=int, help="Of the attack.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("on-device.md"))
def main(short: bool, model: str | None, seconds: int | None, out: Path) -> None:
    """Run faithfulness, attack and bench on this machine; exit with 1 if anything failed."""
    plan = SHORT if short else LONG
    plan = evolve(plan, model=model or plan.model, attack_seconds=seconds or plan.attack_seconds)
    failures = write_report(plan, out, click.echo)
    click.echo(f"{len(failures)} failures; the report is {out}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
