"""Arguments described in docstrings exist: none outlives a rename or a removal."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "engine", "actors", "http", "tests")

Described = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def described(node: Described) -> set[str]:
    """Return the names that `Args:` in a docstring describes."""
    _, heading, rest = (ast.get_docstring(node) or "").partition("\nArgs:\n")
    block = re.split(r"^\S", rest, maxsplit=1, flags=re.MULTILINE)[0] if heading else ""
    return set(re.findall(r"^    (\w+):", block, flags=re.MULTILINE))


def arguments(node: Described) -> set[str]:
    """Return the argument names of a function or class; attrs strips the underscore of a field."""
    if not isinstance(node, ast.ClassDef):
        spec = node.args
        every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        return {argument.arg for argument in every if argument is not None}
    names: set[str] = set()
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            names.add(member.target.id.lstrip("_"))
        elif isinstance(member, ast.FunctionDef) and member.name == "__init__":
            names |= arguments(member)
    return names


def unknown_arguments(source: str) -> list[str]:
    """Return the arguments that docstrings describe and that do not exist."""
    return [
        f"{node.name}: {name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, Described)
        for name in sorted(described(node) - arguments(node))
    ]


def test_described_arguments_exist() -> None:
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(paths) > 100
    unknown = {str(path.relative_to(ROOT)): unknown_arguments(path.read_text()) for path in paths}
    assert {path: names for path, names in unknown.items() if names} == {}


def test_an_argument_that_was_renamed_is_found() -> None:
    function = (
        'def grow(tokens):\n    """Grow.\n\n    Args:\n        nbytes: More.\n        tokens: More.\n    """'
    )
    assert unknown_arguments(function) == ["grow: nbytes"]
    field = (
        'class Share:\n    """A share.\n\n    Args:\n        limit: In bytes.\n    """\n\n    _maximum: int'
    )
    assert unknown_arguments(field) == ["Share: limit"]
