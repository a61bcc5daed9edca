"""The table of encoders and rerankers compared with the libraries' own (`make encoder-table`)."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from greenroom.engine.loading.libraries import import_encoder_libraries
from greenroom.tests.support.architectures.encoder_trials import Case, Outcome, cases, try_case

TABLE = Path(__file__).parents[3] / "notes" / "encoders.md"

_HEAD = """# Encoders and rerankers, against the libraries' own

`make encoder-table` writes this page. It makes a tiny model with random weights of every architecture that
embeds or ranks in the installed mlx-vlm {vlm} and mlx-embeddings {extra}. It compares Greenroom's results
with the library's for the same tokens, alone and together with other texts.

| result | meaning |
|---|---|
| equal | vectors of length 1, or scores, are the library's up to 2e-5 |
| refused | the model is not loaded, and clients get this reason |
| library fails | Greenroom computes it, and the library does not |
| not made | no tiny model of it could be made |
| differs | a fault |

{counts}.

| library | makes | architectures | result | reason |
|---|---|---|---|---|
"""
_ROW = re.compile(r"^\| (mlx-\w+) \| (vectors|scores) \| (`.+?`) \| ([a-z ]+?) \| (.*?) ?\|$", re.MULTILINE)


def make_outcomes(home: Path) -> list[Outcome]:
    """Try every architecture in `home`, and print each outcome."""
    import_encoder_libraries()
    outcomes = []
    for case in cases():
        outcomes.append(try_case(case, home / f"{case.library}-{case.makes}-{case.architecture}"))
        print(*_cells(outcomes[-1]), sep=" | ", flush=True)
    return outcomes


def page_of(outcomes: Sequence[Outcome]) -> str:
    """Return the page's text."""
    counts = Counter(outcome.result for outcome in outcomes)
    told = ", ".join(f"{count} {result}" for result, count in counts.most_common())
    head = _HEAD.format(
        vlm=version("mlx-vlm"), extra=version("mlx-embeddings"), counts=f"Of {len(outcomes)}: {told}"
    )
    names: dict[tuple[str, ...], list[str]] = {}
    for outcome in outcomes:
        library, name, *rest = _cells(outcome)
        names.setdefault((library, *rest), []).append(name)
    rows = (
        (library, makes, ", ".join(same), *rest) for (library, makes, *rest), same in sorted(names.items())
    )
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def read_table() -> dict[Case, tuple[str, str]]:
    """Return the result and detail of each case in the page."""
    rows = _ROW.findall(TABLE.read_text(encoding="utf-8"))
    return {
        Case(library.replace("-", "_"), name, makes): (result, detail)
        for library, makes, names, result, detail in rows
        for name in re.findall(r"\w+", names)
    }


def _cells(outcome: Outcome) -> tuple[str, ...]:
    case = outcome.case
    library = case.library.replace("_", "-")
    return library, f"`{case.architecture}`", case.makes, outcome.result, outcome.detail.replace("|", "\\|")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        TABLE.write_text(page_of(make_outcomes(Path(made))), encoding="utf-8")
