"""The house rules that no single room can hold: who may import whom, and what may not exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "schemas": {"schemas"},
    "engine": {"schemas", "engine"},
    "actors": {"schemas", "engine", "actors"},
    "http": {"schemas", "actors", "http"},
}
COMPOSITION_ROOT = ROOT / "http" / "command_line.py"
MODEL_LIBRARIES = {"mlx", "mlx_lm", "mlx_vlm", "mlx_embeddings", "mlx_audio", "transformers"}

SOURCES = [path for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]


def imports_of(tree: ast.AST) -> set[str]:
    """Dotted names of all modules that the code imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return names


def imports_at_load_time(tree: ast.Module) -> set[str]:
    """Modules that are imported when this one is, leaving out function bodies and TYPE_CHECKING blocks."""
    names: set[str] = set()
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= imports_of(ast.Module([node], []))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            pending += [*node.body, *node.orelse]
        elif isinstance(node, ast.ClassDef | ast.With | ast.Try):
            pending += node.body
    return names


def rooms_in(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("greenroom.")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_the_rooms_it_may_know(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    tree = ast.parse(path.read_text())
    if path == COMPOSITION_ROOT:
        assert rooms_in(imports_at_load_time(tree)) <= MAY_IMPORT[room]
    else:
        assert rooms_in(imports_of(tree)) <= MAY_IMPORT[room]


@pytest.mark.parametrize("room", ["schemas", "actors", "http"])
def test_model_libraries_are_spoken_to_by_the_engine_alone(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        libraries = {name.split(".")[0] for name in imports_of(ast.parse(path.read_text()))}
        assert not libraries & MODEL_LIBRARIES, path


def test_no_folder_is_a_regular_package() -> None:
    tracked_folders = [ROOT / name for name in (*MAY_IMPORT, "tests", "notes")]
    assert [path for folder in tracked_folders for path in folder.rglob("__init__.py")] == []
