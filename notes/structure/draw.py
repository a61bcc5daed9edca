"""Draws the rooms of the house on their floors, from the code's own imports.

    python notes/structure/draw.py [REVISION] [--out FILE.svg] [--inside http actors schemas engine]

A room is a top-level folder; one that is named after `--inside` is opened: each folder in it, and each file
at its root, is then a room of its own. A room stands one floor above the highest one that it imports. An
import that cannot point downwards, because its target needs the importing room itself, is an arrow upwards.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP = ("schemas", "engine", "actors", "http")
COMPOSITION_ROOT = "http/command_line.py"
Arrows = Mapping[str, Set[str]]
WIDTH, HEIGHT, GAP, PER_LINE, MARGIN = 200, 44, 24, 5, 24


def sources(revision: str) -> dict[str, str]:
    """Return the text of every program file of a revision, by path."""
    command = ["git", "archive", revision, "--", *TOP]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = [member for member in tar.getmembers() if member.name.endswith(".py")]
        return {member.name: tar.extractfile(member).read().decode() for member in files}  # type: ignore[union-attr]


def imported_files(text: str, files: Set[str]) -> Iterator[str]:
    """Yield the files that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            path = "/".join(name.split(".")[1:]) + ".py"
            if path in files:
                yield path


def room_of(path: str, opened: Set[str]) -> str:
    """Return the room that a file belongs to."""
    top, *rest = path.split("/")
    return f"{top}/{rest[0]}" if top in opened else top


def arrows_between(texts: Mapping[str, str], opened: Set[str]) -> dict[str, set[str]]:
    """Return for each room those that it imports; the command line, which may import any, has none."""
    arrows: dict[str, set[str]] = {room_of(path, opened): set() for path in texts}
    for path, text in texts.items():
        if path == COMPOSITION_ROOT:
            continue
        for target in imported_files(text, texts.keys()):
            if room_of(target, opened) != room_of(path, opened):
                arrows[room_of(path, opened)].add(room_of(target, opened))
    return arrows


def reachable(arrows: Arrows, start: str) -> set[str]:
    """Return every room that `start` needs, directly or not."""
    seen: set[str] = set()
    pending = [start]
    while pending:
        for room in arrows[pending.pop()] - seen:
            seen.add(room)
            pending.append(room)
    return seen


def circles(arrows: Arrows) -> list[set[str]]:
    """Return the groups of rooms that all need each other."""
    needs = {room: reachable(arrows, room) for room in arrows}
    found: list[set[str]] = []
    for room in sorted(arrows):
        if room in needs[room] and not any(room in circle for circle in found):
            found.append({other for other in needs[room] if room in needs[other]})
    return found


def upward_arrows(arrows: Arrows) -> set[tuple[str, str]]:
    """Return as few arrows as a greedy search finds without which no circle is left."""
    kept = {room: set(targets) for room, targets in arrows.items()}
    upward: set[tuple[str, str]] = set()
    while tied := circles(kept):
        inside = {(a, b) for circle in tied for a in circle for b in kept[a] & circle}
        users: dict[str, int] = defaultdict(int)
        for _, b in inside:
            users[b] += 1
        # The arrow from the room that most others stand on is the likeliest to point the wrong way.
        a, b = max(inside, key=lambda arrow: (users[arrow[0]] - users[arrow[1]], arrow))
        kept[a].discard(b)
        upward.add((a, b))
    return upward


def floors(arrows: Arrows, upward: Set[tuple[str, str]]) -> dict[str, int]:
    """Return each room's floor, the lowest being 1."""
    known: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in known:
            below = [target for target in arrows[room] if (room, target) not in upward]
            known[room] = 1 + max(map(floor, below), default=0)
        return known[room]

    for room in arrows:
        floor(room)
    return known


def picture(arrows: Arrows, lines: Mapping[str, int]) -> str:
    """Return the drawing as SVG: the top floor first, arrows upwards in red."""
    upward = upward_arrows(arrows)
    levels = floors(arrows, upward)
    place: dict[str, tuple[int, int]] = {}
    y = MARGIN
    width = 2 * MARGIN + PER_LINE * (WIDTH + GAP) - GAP
    for level in range(max(levels.values()), 0, -1):
        rooms = sorted(room for room in levels if levels[room] == level)
        for start in range(0, len(rooms), PER_LINE):
            line = rooms[start : start + PER_LINE]
            left = (width - len(line) * (WIDTH + GAP) + GAP) // 2
            place |= {room: (left + column * (WIDTH + GAP), y) for column, room in enumerate(line)}
            y += HEIGHT + GAP
        y += GAP
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-family="sans-serif">',
        f'<rect width="{width}" height="{y}" fill="#fff"/>',
    ]
    for room in sorted(arrows):
        for target in sorted(arrows[room]):
            (x1, y1), (x2, y2) = place[room], place[target]
            wrong = (room, target) in upward
            ends = (
                x1 + WIDTH / 2,
                y1 + (0 if wrong else HEIGHT),
                x2 + WIDTH / 2,
                y2 + (HEIGHT if wrong else 0),
            )
            style = 'stroke="#c00" stroke-width="2"' if wrong else 'stroke="#8ab" stroke-opacity="0.5"'
            shapes.append('<line x1="{}" y1="{}" x2="{}" y2="{}" {}/>'.format(*ends, style))
    for room, (x, top) in sorted(place.items()):
        shapes.append(
            f'<rect x="{x}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#f4f1e8" stroke="#665"/>'
        )
        for text, size, dy in ((room, 13, 18), (f"floor {levels[room]}, {lines[room]:,} lines", 10, 34)):
            shapes.append(f'<text x="{x + 8}" y="{top + dy}" font-size="{size}">{text}</text>')
    return "\n".join([*shapes, "</svg>\n"])


def main() -> None:
    """Print the figures of a revision, and draw it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--inside", nargs="*", default=["engine"], choices=TOP)
    options = parser.parse_args()
    texts, opened = sources(options.revision), set(options.inside)
    arrows = arrows_between(texts, opened)
    lines: dict[str, int] = defaultdict(int)
    for path, text in texts.items():
        lines[room_of(path, opened)] += text.count("\n")
    upward = upward_arrows(arrows)
    print(f"rooms {len(arrows)}, floors {max(floors(arrows, upward).values())}", end=", ")
    print(
        f"arrows {sum(map(len, arrows.values()))}, upwards {len(upward)}, circles {len(circles(arrows))}",
        end=", ",
    )
    print(f"lines {sum(lines.values()):,}")
    for circle in circles(arrows):
        print("circle:", ", ".join(sorted(circle)))
    if options.out is not None:
        options.out.write_text(picture(arrows, lines))


if __name__ == "__main__":
    main()
