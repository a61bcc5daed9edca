"""The table of architectures and the rows they can batch; `make batching-table` rewrites it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from greenroom.engine.kv_cache.caches import Batching
from greenroom.engine.loading.batching_patches import patch_for_batching
from greenroom.engine.loading.batching_table import TABLE, as_entry, code_digest
from greenroom.tests.support.architectures.architectures import make, names
from greenroom.tests.support.architectures.batching_trials import prove_thoroughly


def prove_architecture(name: str) -> tuple[str | None, Batching]:
    """Return the digest of an architecture's code, and the batching that a tiny model of it supports."""
    model = make(name)
    patch_for_batching(model)
    return code_digest(model), prove_thoroughly(model)


def table_of(architectures: Iterable[str]) -> dict[str, Any]:
    """Return the table as JSON, and print each entry."""
    entries: dict[str, Any] = {}
    for name in architectures:
        digest, batching = prove_architecture(name)
        entries[name] = {"digest": digest, **as_entry(batching)}
        print(name, json.dumps(as_entry(batching)), flush=True)
    return {"mlx-lm": version("mlx-lm"), "architectures": entries}


if __name__ == "__main__":
    made = table_of(names())
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in made["architectures"].items()]
    head = f'{{\n "mlx-lm": {json.dumps(made["mlx-lm"])},\n "architectures": {{\n'
    TABLE.write_text(head + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")
