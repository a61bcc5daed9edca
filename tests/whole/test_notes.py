"""Links between pages lead to headings that exist, each decision is short, and the log's events are told."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = sorted((ROOT / "notes" / "decisions").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "notes").rglob("*.md"))]

LEVELS = ("info", "warning", "error", "exception", "critical")
PLAIN_EVENTS = {
    *("started", "stopped", "socket opened", "socket closed", "database opened", "server not started"),
    *("batching proved", "batching proof not kept", "kv cache quantized", "image computed in one piece"),
    *("weights are not read ahead", "memory of decoders is not bounded", "model fills the memory"),
    *("model folder skipped", "model broken", "lookup hangs", "streams not cleared"),
    *("prefixes found", "prefixes held", "prefixes not written in time", "cached prefix removed"),
    *("doubtful prefixes removed", "capabilities unreadable"),
    *("responses of a stopped server failed", "response template given up for an answer"),
    *("certificate expired", "certificate not reloaded", "settings not reloaded", "no runtime file"),
    "uncaught exception in a thread",
}
"""Events of the log that need no explanation."""


def events_of(source: ast.AST) -> Iterator[str]:
    """Yield the texts of the events above `debug` that a module logs."""

    def texts(node: ast.expr) -> Iterator[str]:
        match node:
            case ast.Constant(str() as text):
                yield text
            case ast.IfExp(_, one, other):
                yield from (*texts(one), *texts(other))

    for node in ast.walk(source):
        match node:
            case ast.Call(ast.Attribute(_, "log"), [_, text, *_]):
                yield from texts(text)
            case ast.Call(ast.Attribute(_, name), [text, *_]) if name in LEVELS:
                yield from texts(text)
            case ast.Call(ast.Name("write" | "warn" | "report"), [text, *_]):
                yield from texts(text)


def test_each_event_of_the_log_is_explained_or_explains_itself() -> None:
    rooms = (ROOT / room for room in ("actors", "engine", "http", "schemas"))
    files = [file for room in rooms for file in room.rglob("*.py")]
    sources = [file.read_text(encoding="utf-8") for file in files]
    logging = re.compile(rf"\.(?:log|{'|'.join(LEVELS)})\(|\b(?:write|warn|report)\(")
    events = {text for source in sources if logging.search(source) for text in events_of(ast.parse(source))}
    told = set(re.findall(r"`([^`\n]+)`", (ROOT / "notes" / "logs.md").read_text(encoding="utf-8")))
    assert "request answered" in events
    assert events - told == PLAIN_EVENTS
    assert not [event for event in events if "_" in event]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_headings() -> None:
    anchors = {page.resolve(): anchors_of(page) for page in PAGES}
    for page in PAGES:
        for path, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            target = page.parent / path if path else page
            assert anchor in anchors[target.resolve()], f"{page}: {path}#{anchor}"


def test_a_decision_has_at_most_120_words() -> None:
    for page in DECISIONS:
        for decision in page.read_text(encoding="utf-8").split("\n## ")[1:]:
            heading, _, text = decision.partition("\n")
            assert len(text.split()) <= 120, f"{page}: {heading}"
