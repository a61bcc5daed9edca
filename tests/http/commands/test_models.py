"""`greenroom models`."""

from __future__ import annotations

import json

from greenroom.tests.support.server_processes import run_greenroom
from greenroom.tests.support.tiny_models import TinyModel


def test_models_lists_those_that_are_named_first(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    done = run_greenroom("models", str(folder), "org/model", "--json")
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == [folder.name, "org/model"]
    assert rows[0]["family"] == "qwen"
    assert rows[0]["size"] > 0
    assert rows[1]["folder"] is None
    assert folder.name in run_greenroom("models", str(folder)).stdout
