"""The table of mlx-vlm's vision architectures, rewritten by `make vision-table`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import attrs

from greenroom.engine.catalog.kinds.libraries import models_of
from greenroom.engine.catalog.kinds.vision_kinds import vision_module
from greenroom.tests.support.architectures.vision.vision_answers import (
    BROKEN,
    NOT_MADE,
    VERDICTS,
    Comparison,
    compare,
)
from greenroom.tests.support.architectures.vision.vision_configs import OWN, OwnFields

TABLE = Path(__file__).parents[4] / "notes" / "vision-architectures.md"
_SECONDS = 240
"""Time limit of one architecture, in seconds; some have a vision tower of fixed size."""

_HEAD = """\
# Architectures that see

`make vision-table` writes this page: it makes a tiny model with random weights of every architecture of
mlx-vlm that sees and writes, asks it about text, one picture, another, and two, and compares 12 greedy tokens
with those of mlx-vlm's own `stream_generate`. Made with mlx-vlm {version}.

| result | means | architectures |
|---|---|---|
| equal | every token is mlx-vlm's | {equal} |
| refused | it is not loaded, for the reason that the server gives | {refused} |
| mlx-vlm fails | mlx-vlm itself raises this with the tiny model, so nothing is known | {fails} |
| no tiny model | it needs sizes or files that nothing here makes | {not_made} |
| WRONG, BROKEN | answers differ from mlx-vlm's, or fail | {wrong} |

| architecture | result | |
|---|---|---|
"""


def names() -> list[str]:
    """Return mlx-vlm's packages that take images and generate text."""
    return sorted(name for name in models_of("mlx_vlm") if vision_module(name) == name)


def judge(module: str) -> Comparison:
    """Compare an architecture in this process."""
    from greenroom.engine.loading.libraries import import_vision_libraries
    from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder

    import_vision_libraries()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "tiny"
        try:
            make_vision_folder(module, folder)
        except Exception as error:  # foreign model code may raise anything
            line = " ".join(str(error).split())[:200]
            return Comparison(NOT_MADE, f"{type(error).__name__}: {line}")
        return compare(folder, OWN.get(module, OwnFields()))


def judge_apart(module: str) -> Comparison:
    """Compare an architecture in a separate process, which may crash or hang."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, module]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Comparison(NOT_MADE, f"its tiny model takes more than {_SECONDS} seconds")
    verdict, _, reason = (done.stdout.strip().splitlines() or [""])[-1].partition("\t")
    if verdict not in VERDICTS:
        return Comparison(BROKEN, f"the process ended with {done.returncode}")
    return Comparison(verdict, reason)


def table_of(findings: Iterable[tuple[str, Comparison]]) -> str:
    """Return the page's text."""
    found = dict(findings)
    counts = Counter(each.verdict for each in found.values())
    head = _HEAD.format(
        version=version("mlx-vlm"),
        equal=counts["equal"],
        refused=counts["refused"],
        fails=counts["mlx-vlm fails"],
        not_made=counts[NOT_MADE],
        wrong=counts["WRONG"] + counts[BROKEN],
    )
    return head + "".join(
        f"| `{name}` | {each.verdict} | {_cell(each.reason)} |\n" for name, each in found.items()
    )


def read_table() -> dict[str, str]:
    """Return the verdict of each architecture in the page."""
    rows = [line.split(" | ") for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return {row[0].strip("| `"): row[1] for row in rows if row[0].startswith("| `")}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _main(arguments: list[str]) -> None:
    if len(arguments) == 1:
        found = judge(arguments[0])
        print(f"{found.verdict}\t{found.reason}")
        return
    findings: list[tuple[str, Comparison]] = []
    for name in names():
        findings.append((name, judge_apart(name)))
        print(name, *attrs.astuple(findings[-1][1]), flush=True)
    TABLE.write_text(table_of(findings), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
