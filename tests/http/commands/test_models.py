"""`greenroom models`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

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


def test_code_of_a_folder_is_trusted_only_if_the_operator_says_so(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "with-code")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))
    [refused] = json.loads(run_greenroom("models", str(folder), "--json").stdout)
    assert "trust-remote-code" in refused["problem"]
    [trusted] = json.loads(run_greenroom("models", str(folder), "--json", "--trust-remote-code").stdout)
    assert "problem" not in trusted
