"""`greenroom models`: the list of models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.server_processes import run_greenroom


def test_models_lists_those_that_are_named_first(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    done = run_greenroom("models", str(folder), "org/model", "--json")
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == [folder.name, "org/model"]
    assert (rows[0]["family"], rows[0]["architecture"]) == ("qwen", "qwen3")
    assert rows[0]["capabilities"]["type"] == "text"
    assert rows[0]["size_bytes"] > 0
    assert rows[1]["folder"] is None
    assert folder.name in run_greenroom("models", str(folder)).stdout


def test_models_says_of_each_kind_what_tells_it_from_others(tiny_encoder: Callable[..., Path]) -> None:
    folders = [str(tiny_encoder(kind)) for kind in ("bert", "bert-rerank")]
    embeds, ranks = json.loads(run_greenroom("models", *folders, "--json").stdout)
    assert embeds["capabilities"]["dimensions"] == 64
    assert ranks["capabilities"]["outputs"] == ["score"]
    words = run_greenroom("models", *folders).stdout.split()
    assert {"rerank", "embeddings", "(64"} <= set(words)


def test_code_of_a_folder_is_trusted_only_if_the_operator_says_so(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "with-code")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))
    [refused] = json.loads(run_greenroom("models", str(folder), "--json").stdout)
    assert "trust-remote-code" in refused["problem"]
    [trusted] = json.loads(run_greenroom("models", str(folder), "--json", "--trust-remote-code").stdout)
    assert trusted["problem"] is None


def test_show_tells_where_each_setting_of_a_model_comes_from(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, file = tiny_model("qwen3"), tmp_path / "settings.toml"
    file.write_text(
        f'models = ["{folder}"]\ntemperature = 0.5\n[model.qwen3]\nkv_bits = 8\n'
        '[profiles."qwen3:code"]\nmodel = "qwen3"\ntop_k = 7\n'
    )
    shown = run_greenroom("show", "qwen3:code", "--config", str(file))
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.stdout.splitlines() if line}
    facts = ("inputs", "outputs", "probed", "state")
    assert [lines[name] for name in facts] == ["text", "text", "no", "unknown without a server"]
    assert (lines["temperature"], lines["kv_bits"], lines["top_k"]) == (
        "0.5 (file)",
        "8 (model)",
        "7 (profile)",
    )
    assert (lines["images_max_count"], lines["type"], lines["fits"]) == ("5 (default)", "text", "yes")
    assert lines["base_model"] == "qwen3"
    flags = ("--config", str(file), "--model-settings", "qwen3:kv_bits=4", "--json")
    settings = json.loads(run_greenroom("show", "qwen3", *flags).stdout)["settings"]
    assert settings["kv_bits"] == {"value": 4, "origin": "model"}
    assert run_greenroom("show", str(folder), "--json").returncode == 0
