"""What goes wrong with things that the Responses API keeps, or does not."""

from __future__ import annotations

from greenroom.schemas.problems import Problem


def item_not_found(ident: str, field: str) -> Problem:
    """Return the problem of an item that is referred to, and is not kept here."""
    detail = f"`{field}.id`: no item {ident[:80]!r} is stored here; send the item itself."
    return Problem(404, "item_not_found", detail, f"{field}.id")


def history_too_long() -> Problem:
    """Return the problem of a history that is longer than any context, and may not be cut."""
    detail = (
        "What was said before is longer than any model's maximum context length; without "
        "`truncation: disabled` the oldest turns would be left out."
    )
    return Problem(400, "context_length_exceeded", detail, "truncation")
