"""A proof is of the code that it was made with: an architecture's file, and all that it imports."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

from greenroom.engine.loading.batching import digest
from greenroom.engine.loading.batching.digest import digest_of, sources_of
from greenroom.tests.support.architectures.architectures import names


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
    monkeypatch.setattr(digest, "_LOADING", tmp_path / "loading")
    digests = set()
    for changed in (None, *sorted(tmp_path.glob("*.py")), patches / "known_faults.py"):
        if changed is not None:
            changed.write_text(changed.read_text() + "\n# changed\n")
        digests.add(digest_of.__wrapped__("mamba"))
    assert len(digests) == 2 + len(sources_of("mamba"))
