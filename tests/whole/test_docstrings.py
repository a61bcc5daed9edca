"""House rules of docstrings: their first words, and arguments that exist."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

from greenroom.tests.support.reference.source_trees import statements_of

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "engine", "actors", "http", "tests", "notes")
PATHS = [
    *ROOT.glob("*.py"),
    *(ROOT / ".ci").glob("*.py"),
    *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))),
]

VAGUE = re.compile(
    r"(… )?(What|How|Which|Where|Whose|Of|That|Who|When|Whether|For)\b"
    r"|Return (what|how|which|whose|where|who)\b"
)
"""Openings without a verb and a noun of the field."""
_DOUBTFUL = re.compile(rf'"""\s*(?:{VAGUE.pattern})|\n +Args:\n')
"""Pattern of the files that are parsed, which takes a hundred times as long."""

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


@lru_cache(1)
def statements(source: str) -> list[ast.AST]:
    return statements_of(ast.parse(source))


def unknown_arguments(source: str) -> list[str]:
    """Return the arguments that docstrings describe and that do not exist."""
    return [
        f"{node.name}: {name}"
        for node in statements(source)
        if isinstance(node, Described)
        for name in sorted(described(node) - arguments(node))
    ]


def docstrings(source: str) -> list[str]:
    """Return the docstrings of a module, its classes and functions, and the notes on its values."""
    found: list[str] = []
    for node in statements(source):
        body: list[ast.stmt] = getattr(node, "body", [])
        documented = isinstance(node, ast.Module | Described)
        for before, member in zip([None, *body], body, strict=False):
            match member:
                case ast.Expr(ast.Constant(str(text))) if documented and (
                    before is None or isinstance(before, ast.Assign | ast.AnnAssign)
                ):
                    found.append(text)
    return found


def test_no_docstring_begins_vaguely_and_described_arguments_exist() -> None:
    assert len(PATHS) > 100
    vague, unknown = list[tuple[str, str]](), dict[str, list[str]]()
    for path in PATHS:
        source, name = path.read_text(), str(path.relative_to(ROOT))
        if not _DOUBTFUL.search(source):
            continue
        vague += [(name, text.splitlines()[0]) for text in docstrings(source) if VAGUE.match(text.lstrip())]
        if names := unknown_arguments(source):
            unknown[name] = names
    assert (vague, unknown) == ([], {})


def test_a_vague_beginning_is_found() -> None:
    source = '"""A module."""\n\nLIMIT = 3\n"""Of bytes."""\n\n\ndef f():\n    """Return what it is."""\n'
    assert [text for text in docstrings(source) if VAGUE.match(text)] == ["Of bytes.", "Return what it is."]


def test_an_argument_that_was_renamed_is_found() -> None:
    function = (
        'def grow(tokens):\n    """Grow.\n\n    Args:\n        nbytes: More.\n        tokens: More.\n    """'
    )
    assert unknown_arguments(function) == ["grow: nbytes"]
    field = (
        'class Share:\n    """A share.\n\n    Args:\n        limit: In bytes.\n    """\n\n    _maximum: int'
    )
    assert unknown_arguments(field) == ["Share: limit"]
