"""Rules for the whole code base: allowed imports, and limits of size."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Set
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from greenroom.tests.support.reference.source_trees import imports_in, imports_of, statements_of, tree_of

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "schemas": {"schemas"},
    "engine": {"schemas", "engine"},
    "actors": {"schemas", "engine", "actors"},
    "http": {"schemas", "actors", "http"},
}
COMPOSITION_ROOT = ROOT / "http" / "command_line.py"
LIBRARY = ROOT / "api.py"
LOGGERS = ROOT / "schemas" / "logs.py"
MODEL_LIBRARIES = {"mlx", "mlx_lm", "mlx_vlm", "mlx_embeddings", "mlx_audio", "transformers"}

PROTOCOLS = [path.parent.name for path in (ROOT / "http").glob("*/protocol.py")]
LONGEST_FILE = 500
LONGEST_CLASS = 250
MOST_FILES = 25

SOURCES = [path for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]
MODULES = {".".join(("greenroom", *path.relative_to(ROOT).with_suffix("").parts)): path for path in SOURCES}


def imports_at_load_time(tree: ast.Module) -> set[str]:
    """Return the modules imported at load time, without function bodies and TYPE_CHECKING blocks."""
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


def rooms_in(names: Set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("greenroom.")}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_module_gives_a_constant_two_values(room: str) -> None:
    twice: list[str] = []
    for path in sorted((ROOT / room).rglob("*.py")):
        given = [node for node in tree_of(path).body if isinstance(node, ast.Assign)]
        names = Counter(each.id for node in given for each in node.targets if isinstance(each, ast.Name))
        # One may be made of its first value.
        anew = {each.id for node in given for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        twice += [f"{path.name}: {name}" for name, count in names.items() if count > 1 and name not in anew]
    assert twice == []


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_it_may_know(room: str) -> None:
    imports = {
        str(path.relative_to(ROOT)): rooms_in(
            imports_at_load_time(tree_of(path)) if path == COMPOSITION_ROOT else imports_in(path)
        )
        for path in SOURCES
        if path.is_relative_to(ROOT / room)
    }
    assert imports
    assert {name: rooms for name, rooms in imports.items() if not rooms <= MAY_IMPORT[room]} == {}


def test_the_library_names_what_it_shows_and_has_nothing_of_its_own() -> None:
    tree = ast.parse(LIBRARY.read_text())
    assert rooms_in(imports_at_load_time(tree)) == {"schemas", "actors"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_the_test_kit_stands_on_the_actors_and_nothing_stands_on_it() -> None:
    tree = ast.parse((ROOT / "testing.py").read_text())
    assert rooms_in(imports_of(tree)) == {"schemas", "engine", "actors"}
    assert not [path for path in SOURCES if "greenroom.testing" in imports_in(path)]


def test_loggers_are_silent_until_a_program_wants_them() -> None:
    loud = [path for path in SOURCES if "structlog.get_logger(" in path.read_text(encoding="utf-8")]
    assert set(loud) <= {LOGGERS}


def test_no_file_and_no_class_is_too_long_to_be_read_at_once() -> None:
    files = {str(path.relative_to(ROOT)): path for path in SOURCES}
    lines = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    classes = {
        f"{name}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, path in files.items()
        for node in statements_of(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}
    assert {name: count for name, count in classes.items() if count > LONGEST_CLASS} == {}


def test_no_folder_is_too_crowded_to_be_read_at_once() -> None:
    loose = Counter(
        str(path.parent.relative_to(ROOT)) for path in (*SOURCES, *(ROOT / "tests").rglob("*.py"))
    )
    del loose["schemas"]  # protocol-independent messages, one file each
    assert {folder: count for folder, count in loose.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("room", ["schemas", "actors", "http"])
def test_model_libraries_are_spoken_to_by_the_engine_alone(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        libraries = {name.split(".")[0] for name in imports_in(path)}
        assert not libraries & MODEL_LIBRARIES, path


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_the_folders_of_a_room_form_no_circle(room: str) -> None:
    imports: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((ROOT / room).rglob("*.py")):
        names = imports_in(path)
        for imported in sorted(MODULES[name] for name in names & MODULES.keys()):
            if _two_floors(path) != _two_floors(imported):
                line = f"    {path.relative_to(ROOT)} imports {imported.relative_to(ROOT)}"
                imports[_two_floors(path)][_two_floors(imported)].append(line)
    assert imports
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]  # each module is imported by the next
        arrows = [imports[importer][imported] for imported, importer in pairwise(circle)]
        lines = [line for arrow in sorted(arrows, key=len) for line in arrow]
        pytest.fail("\n".join([f"a circle: {' <- '.join(circle)}", *lines]), pytrace=False)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_the_files_of_a_room_form_no_circle_not_even_for_types(room: str) -> None:
    imports: dict[Path, set[Path]] = {}
    for path in (path for path in SOURCES if path.is_relative_to(ROOT / room)):
        names = imports_in(path)
        imports[path] = {MODULES[name] for name in names & MODULES.keys()} - {path}
    assert imports
    TopologicalSorter(imports).prepare()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_is_known_to_the_application_alone(protocol: str) -> None:
    def is_own(path: Path) -> bool:
        wire = path.parent == ROOT / "schemas" / "wire" and path.stem.startswith(protocol)
        return wire or _two_floors(path) == f"http/{protocol}"

    importers = {
        _two_floors(path)
        for path in SOURCES
        if not is_own(path)
        for name in imports_in(path) & MODULES.keys()
        if is_own(MODULES[name])
    }
    assert importers == {"http/app.py"}


def _two_floors(path: Path) -> str:
    """Return the first two parts of a file's path: its room, and the folder or file in it."""
    return "/".join(path.relative_to(ROOT).parts[:2])


def test_no_folder_is_a_regular_package() -> None:
    tracked_folders = [ROOT / name for name in (*MAY_IMPORT, "tests", "notes")]
    assert [path for folder in tracked_folders for path in folder.rglob("__init__.py")] == []


def _rows_of_the_page() -> list[tuple[list[str], list[str]]]:
    """Return the folders of each row, and its files to read first."""
    page = (ROOT / "notes" / "structure.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    return [(re.findall(r"`([\w/]+?)/?`", row[1]), re.findall(r"`(\w+\.py)`", row[-2])) for row in rows]


def test_the_page_that_newcomers_read_first_names_every_room_in_forty_rows() -> None:
    rows = [row for row in _rows_of_the_page() if row[0]]
    code = {folder for path in SOURCES if "." not in (folder := _two_floors(path))}
    assert {name for names, _ in rows for name in names} == code | set(MAY_IMPORT) | {"engine/demo"}
    assert len(rows) <= 40
    for names, files in rows:
        for file in files:
            assert any(path for folder in names for path in (ROOT / folder).rglob(file)), file


def test_imports_point_upwards_on_that_page() -> None:
    row = {name: number for number, (names, _) in enumerate(_rows_of_the_page()) for name in names}
    for path in SOURCES:
        importer = _two_floors(path)
        for name in imports_in(path) & MODULES.keys():
            imported = _two_floors(MODULES[name])
            # Files at a room's root have no row.
            if importer in row and imported in row:
                assert row[imported] <= row[importer], f"{path} imports {name}"


def test_rooms_form_no_circle_and_a_file_beside_them_counts_as_a_room() -> None:
    for room in MAY_IMPORT:
        imports: dict[str, set[str]] = defaultdict(set)
        for path in SOURCES:
            importer = _two_floors(path) if path.parent != ROOT / room else room
            for name in imports_in(path) & MODULES.keys():
                target = MODULES[name]
                imported = _two_floors(target) if target.parent != ROOT / room else room
                if importer.split("/")[0] == imported.split("/")[0] == room and importer != imported:
                    imports[importer].add(imported)
        TopologicalSorter(imports).prepare()


PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "notes").rglob("*.md"))]


def test_pages_name_files_that_exist() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        paths = re.findall(r"`((?:engine|actors|http|schemas|tests|notes)/[a-z][\w/.]+)`", text)
        real = [path for path in paths if "/example" not in path]  # add-a-protocol.md invents a protocol
        assert page.name != "structure.md" or len(real) > 20
        assert [path for path in real if not (ROOT / path).exists()] == [], page
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page
