"""The table of mlx-vlm's architectures, rewritten by `make vision-table`."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path

import attrs

from greenroom.engine.catalog.kind_detection import vision_module, vlm_text_module
from greenroom.engine.catalog.libraries import models_of
from greenroom.tests.support.architectures.vision.own_fields import OwnFields
from greenroom.tests.support.architectures.vision.vision_answers import (
    BROKEN,
    EQUAL,
    LIBRARY_FAILS,
    NOT_MADE,
    NOT_RUN,
    REFUSED,
    VERDICTS,
    WRONG,
    Comparison,
    compare,
    refusal,
)
from greenroom.tests.support.architectures.vision.vision_configs import NO_TINY_MODEL, OWN

TABLE = Path(__file__).parents[4] / "notes" / "vision-architectures.md"
_SECONDS = 240
"""Time limit of one architecture, in seconds; some have a vision tower of fixed size."""

_PRELOADED = ("mlx_lm.utils", "mlx_vlm.utils", "mlx_vlm.generate", "transformers")
"""Modules that all comparisons share; importing them takes longer than a comparison."""

_MEANING = {
    EQUAL: "every token is mlx-vlm's",
    REFUSED: "the server refuses the model at load for the reason given",
    LIBRARY_FAILS: "mlx-vlm itself raises this with the tiny model, so nothing is known",
    NOT_MADE: "it needs sizes or files that nothing here makes",
    WRONG: "answers differ from mlx-vlm's",
    BROKEN: "answers fail",
    NOT_RUN: "nobody has tried it yet",
}

_HEAD = """\
# Architectures that see, and those for text that only mlx-vlm has

`make vision-table` (`ARGS="pixtral llava"` for some rows) writes this page with mlx-vlm {version}. It makes a
tiny model with random weights of each architecture, asks it about texts and pictures, and compares 12 greedy
tokens with those of mlx-vlm's own `stream_generate`.

| result | means | architectures |
|---|---|---|
{summary}
| architecture | result | |
|---|---|---|
"""


def names() -> list[str]:
    """Return mlx-vlm's packages that write: those that see, and those that mlx-lm does not have."""
    return sorted(
        name for name in models_of("mlx_vlm") if name in (vision_module(name), vlm_text_module(name))
    )


def judge(module: str) -> Comparison:
    """Compare an architecture in this process."""
    from greenroom.engine.loading.libraries import import_vision_libraries
    from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder

    if module in NO_TINY_MODEL:
        return Comparison(NOT_MADE, NO_TINY_MODEL[module])
    import_vision_libraries()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "tiny"
        try:
            make_vision_folder(module, folder)
        except ModuleNotFoundError:  # its code needs a package that Greenroom asks for
            return refusal(folder)
        except Exception as error:  # foreign model code may raise anything
            line = " ".join(str(error).split())[:200]
            return Comparison(NOT_MADE, f"{type(error).__name__}: {line}")
        own = OWN.get(module, OwnFields())
        return compare(folder, own) if own.asks_library else refusal(folder)


def judge_apart(module: str) -> Comparison:
    """Compare an architecture in a separate process, which may crash or hang."""
    context = multiprocessing.get_context("forkserver")
    if sys.platform == "linux":  # elsewhere a GPU's library may be in use after its import
        context.set_forkserver_preload([*_PRELOADED])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(module, sender), daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(_SECONDS):
            return Comparison(*receiver.recv())
        return Comparison(NOT_MADE, f"its tiny model takes more than {_SECONDS} seconds")
    except EOFError:
        process.join()
        return Comparison(BROKEN, f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _send(module: str, sender: Connection) -> None:
    with open(os.devnull, "w", encoding="utf-8") as quiet, redirect_stdout(quiet):
        found = judge(module)
    sender.send((found.verdict, found.reason))


def page_of(findings: Mapping[str, Comparison]) -> str:
    """Return the page's text, with a row for all architectures of the same finding."""
    found = {name: findings.get(name, Comparison(NOT_RUN)) for name in names()}
    counts = Counter(each.verdict for each in found.values())
    shown = [verdict for verdict in VERDICTS if counts[verdict]]
    summary = "".join(f"| {verdict} | {_MEANING[verdict]} | {counts[verdict]} |\n" for verdict in shown)
    same: dict[tuple[str, str], list[str]] = {}
    for name, each in found.items():
        same.setdefault((each.verdict, _escaped(each.reason)), []).append(f"`{name}`")
    rows = (f"| {', '.join(alike)} | {verdict} | {reason} |\n" for (verdict, reason), alike in same.items())
    return _HEAD.format(version=version("mlx-vlm"), summary=summary) + "".join(rows)


def read_table() -> dict[str, Comparison]:
    """Return the findings in the page."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ", 2) for line in lines if "| `" in line]
    found = {
        name: Comparison(row[1], row[2].strip() if len(row) > 2 else "")
        for row in rows
        if row[0].startswith("`")
        for name in row[0].replace("`", "").split(", ")
    }
    return dict(sorted(found.items()))


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\u00a6").replace("<", "&lt;").split())


def main(arguments: Sequence[str]) -> None:
    """Rewrite the page, or the rows of some architectures."""
    findings = read_table() if arguments else {}
    for name in arguments or names():
        findings[name] = judge_apart(name)
        print(name, *attrs.astuple(findings[name]), flush=True)
    TABLE.write_text(page_of(findings), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
