"""`make attack`: attack a server of tiny models of every type for a time, and report the findings.

python -m greenroom.tests.attack --seconds 1800 --seed 1
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from greenroom.tests.attack.server.kinds import KINDS
from greenroom.tests.support import surroundings

if TYPE_CHECKING:
    from greenroom.tests.attack.faults import Fault, Limits
    from greenroom.tests.attack.server.target import Target

TEXT = ("qwen3", "gemma3", "lfm2")
PLAIN_ROWS = 32
_FIRST_LOAD = 180.0
"""Time limit of the first request to a model in seconds: its libraries may take long to import."""
UNDISTURBED = 0.25
"""Largest accepted extra wait of the calm client in seconds, compared with as many plain requests."""


@click.command()
@click.option("--seconds", default=1800.0, show_default=True, help="For the whole attack.")
@click.option("--seed", default=None, type=int, help="Of the first attacks (default: by the clock).")
@click.option("--model", "folders", multiple=True, type=click.Path(path_type=Path), help="Folders to serve.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([*KINDS, "none"]),
    help="Beside text: what the other models do (default: everything).",
)
@click.option("--sweep/--no-sweep", "sweeps", default=True, help="Send every hostile file and address first.")
@click.option("--logs", type=click.Path(path_type=Path), help="Folder that keeps the logs.")
def main(
    seconds: float,
    seed: int | None,
    folders: tuple[Path, ...],
    kinds: tuple[str, ...],
    sweeps: bool,
    logs: Path | None,
) -> None:
    """Attack a server of models of every kind for SECONDS; exit with 1 if anything was found."""
    from greenroom.tests.attack.campaign import Campaign
    from greenroom.tests.attack.faults import Limits
    from greenroom.tests.attack.hostile_models import faults_of_models, make_hostile_models
    from greenroom.tests.attack.observation import observe
    from greenroom.tests.attack.plain_rows import largest_gap
    from greenroom.tests.attack.requests.connections import attacks
    from greenroom.tests.attack.server.kinds import make_model
    from greenroom.tests.attack.server.serving import scratch_folder, server_command
    from greenroom.tests.attack.server.target import Target
    from greenroom.tests.support.servers.free_port import free_port

    seed = int(time.time()) if seed is None else seed
    with scratch_folder(logs) as scratch:
        surroundings.neutralize(scratch)
        served = folders or _make_models(scratch)
        kinds = tuple(kind for kind in kinds or KINDS if kind != "none")
        others = tuple(make_model(kind, scratch) for kind in kinds)
        names = tuple(folder.name for folder in served)
        hostile = make_hostile_models(_make_plain(scratch), scratch / "hostile") if sweeps else {}
        command = server_command((*served, *others), tuple(hostile.values()))
        target = Target(command, free_port(), names, scratch, kinds)
        target.start()
        try:
            for kind in kinds:  # load its libraries now, so that their memory is not blamed on an attack
                if not target.completes(kind, _FIRST_LOAD):
                    raise click.ClickException(f"the model that {kind} does not answer")
            plain = largest_gap(target, PLAIN_ROWS)
            limits = Limits(plain + UNDISTURBED)
            click.echo(
                f"seed {seed}; beside {PLAIN_ROWS} plain requests the calm client waits {plain * 1000:.0f} ms"
            )
            swept = _sweep(target, names[0], kinds, limits) if sweeps else []
            swept += faults_of_models(target, hostile, limits, click.echo)
            campaign = Campaign(
                attacks(names, kinds), lambda attack: observe(target, attack, limits), seconds, click.echo
            )
            findings = campaign.run(seed)
        finally:
            target.stop()
    click.echo(f"{campaign.tried} attacks in {seconds:.0f} s, {len(findings) + len(swept)} findings")
    for fault in swept:
        click.echo(f"- {fault.kind}: {fault.detail}")
    for finding in findings:
        click.echo(f"- {finding.fault.kind}: {finding.fault.detail}\n  {finding.smallest!r}")
    sys.exit(1 if findings or swept else 0)


def _sweep(target: Target, text_model: str, kinds: tuple[str, ...], limits: Limits) -> list[Fault]:
    """Return the faults in the answers to each hostile file and address."""
    from greenroom.tests.attack.campaign import confirmed
    from greenroom.tests.attack.observation import observe
    from greenroom.tests.attack.sweep import sweep

    found: list[Fault] = []
    for attack in sweep(text_model, kinds):
        for fault in confirmed(partial(observe, target, attack, limits)):
            found.append(fault)
            click.echo(f"found {fault.kind} ({fault.detail}) in {attack!r:.300}")
    return found


def _make_models(folder: Path) -> tuple[Path, ...]:
    from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer

    make_tokenizer(folder)
    return tuple(make_tiny_model(kind, folder / kind, folder) for kind in TEXT)


def _make_plain(folder: Path) -> Path:
    from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer

    make_tokenizer(folder)
    return make_tiny_model(TEXT[0], folder / "plain", folder)


if __name__ == "__main__":
    main()
