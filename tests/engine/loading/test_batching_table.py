"""Tests of code digests, which cover an architecture's file and all its imports."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

from greenroom.engine.loading import batching_table
from greenroom.engine.loading.batching_table import branches_by_device, digest_of, sources_of
from greenroom.tests.support.architectures.architectures import make, names


@cache
def imported_files(path: Path) -> set[str]:
    """Return the files of mlx-lm's models that a file imports, by its syntax tree."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (
            node.level == 1 or (node.module or "").startswith("mlx_lm.models")
        ):
            module = (node.module or "").removeprefix("mlx_lm.models").lstrip(".")
            found |= {module} if module else {alias.name for alias in node.names}
    return {name for name in found if (path.parent / f"{name}.py").exists()}


@pytest.mark.deep
def test_everything_that_any_architecture_imports_is_among_its_sources() -> None:
    for name in names():
        sources = sources_of(name)
        assert {"base", "cache", name} <= {path.stem for path in sources}
        for path in sources:
            assert imported_files(path) <= {source.stem for source in sources}, (name, path.stem)


def test_an_architecture_within_another_counts_with_all_its_files() -> None:
    assert {"kimi_vl", "deepseek_v3", "mla", "switch_layers"} <= {path.stem for path in sources_of("kimi_vl")}
    assert {"qwen3_vl_moe", "qwen3_moe"} <= {path.stem for path in sources_of("qwen3_vl_moe")}


def test_the_digest_changes_with_each_of_the_files_and_with_our_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = importlib.import_module("mlx_lm.models")
    for path in sources_of("mamba"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    patches = tmp_path / "loading" / "batching_patches"
    patches.mkdir(parents=True)
    (patches / "known_faults.py").write_text("")
    monkeypatch.setattr(models, "__path__", [str(tmp_path)])
    monkeypatch.setattr(batching_table, "_LOADING", tmp_path / "loading")
    digests = set()
    for changed in (None, *sorted(tmp_path.glob("*.py")), patches / "known_faults.py"):
        if changed is not None:
            changed.write_text(changed.read_text() + "\n# changed\n")
        digests.add(digest_of.__wrapped__("mamba"))
    assert len(digests) == 2 + len(sources_of("mamba"))


@pytest.mark.parametrize(
    ("architecture", "branches"),
    [
        ("llama", False),
        ("mamba", False),
        ("deepseek_v3", False),
        ("mamba2", True),
        ("nemotron_h", True),
        ("qwen3_5", True),
        ("rwkv7", True),
        ("kimi_k3", True),
        ("deepseek_v41", True),
    ],
)
def test_code_for_one_kind_of_device_is_found_in_all_files_of_an_architecture(
    architecture: str, branches: bool
) -> None:
    assert branches_by_device(make(architecture)) == branches


def test_every_file_of_the_library_that_tells_devices_apart_is_known() -> None:
    folder = Path(importlib.import_module("mlx_lm.models").__path__[0])
    found = {path.stem for path in folder.glob("*.py") if batching_table._any_branches(path.stem)}
    assert {"bitnet", "muse_spark", "bitlinear_layers", "ssm", "gated_delta"} <= found
    assert not {"llama", "qwen3", "gemma3", "gpt_oss", "base", "cache", "switch_layers"} & found
