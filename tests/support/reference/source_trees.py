"""Syntax trees of source files, parsed once for all tests, and what their statements import."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements_of(tree: ast.AST) -> list[ast.AST]:
    """Return a module and its statements: to walk expressions, too, takes as long again."""
    found = [tree]
    for node in found:
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            found += getattr(node, field, ())
    return found


@cache
def imports_in(path: Path) -> frozenset[str]:
    """Return all imports of a file; see `imports_of`."""
    return frozenset(imports_of(tree_of(path)))


def imports_of(tree: ast.AST) -> set[str]:
    """Return the dotted names of all imported modules and of the names imported from them."""
    names: set[str] = set()
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return names
