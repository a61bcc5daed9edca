"""The audit's join of both halves of a request."""

from __future__ import annotations

from greenroom.actors.records.audit import MAX_ROWS, MAX_TEXT, REFUSED_SHARE, AuditBook
from greenroom.schemas.events.events import Timing, Usage
from greenroom.schemas.protocols.model_protocol import RequestEnded

ENDED = RequestEnded("cancelled", None, Usage(prompt=7, generated=3, cached=2), Timing(0.5, 1.0, 2.0))


def test_a_row_waits_for_the_model_of_a_client_that_has_left() -> None:
    book = AuditBook(lambda: 5.0)
    book.begin("r", "openai", "/v1/chat/completions")
    book.hold("r", "m")
    book.end("r", None, owner="key", cancelled=True)
    assert not book.waiting
    book.release("r", ENDED)
    [row] = book.take(10)
    assert (row.ending, row.model, row.owner, row.queue, row.decode) == ("cancelled", "m", "key", 0.5, 2.0)
    assert (row.prompt_tokens, row.cached_tokens, row.generated_tokens) == (7, 2, 3)
    book.release("r", ENDED)  # a late report changes nothing
    assert not book.waiting


def test_prompts_of_one_request_are_one_row() -> None:
    book = AuditBook()
    book.begin("r", "openai", "/v1/completions")
    for _ in range(3):
        book.hold("r", "m")
        book.release("r", RequestEnded("stop", None, Usage(prompt=2, generated=1)))
    book.end("r", 200)
    [row] = book.take(10)
    assert (row.ending, row.status, row.prompt_tokens, row.generated_tokens) == ("answered", 200, 6, 3)


def test_names_are_bounded_and_a_flood_of_refusals_displaces_no_other_row() -> None:
    book = AuditBook()
    for number in range(MAX_ROWS):
        book.refuse(str(number), "other", "/" + "x" * 100_000 + "\ud800", 431, "bad_request")
    assert (book.waiting, book.lost) == (MAX_ROWS // REFUSED_SHARE, MAX_ROWS - MAX_ROWS // REFUSED_SHARE)
    for number in range(MAX_ROWS):
        book.begin(f"r{number}", "openai", "\ud800")
        book.end(f"r{number}", 503, "model_crashed")
    assert book.waiting == MAX_ROWS
    rows = book.take(MAX_ROWS)
    assert len(rows[0].route) == MAX_TEXT
    assert (rows[-1].ending, rows[-1].route) == ("failed", "?")
