"""`GET /admin/audit` and `GET /admin/usage`: the requests that have ended, and the sums by key and day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, cast, get_args

import attrs
import trio
from quart import Blueprint, Response, request
from werkzeug.datastructures import MultiDict

from greenroom.actors.audit.audit_book import AuditBook
from greenroom.actors.audit.audit_writer import AuditWriter
from greenroom.actors.store.answers import ask_store
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import EVENTS, FOR_OPERATORS, JSON, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.keys.key_ring import KeyRing
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.http.operations.admin.event_body import event_response, named_event
from greenroom.schemas.admin.audit import AuditEntry, AuditList, AuditQuery, UsageEntry, UsageQuery, Usages
from greenroom.schemas.audit import AuditFilter, AuditRow, Ending
from greenroom.schemas.problems import Problem, ProblemError, invalid

MOST = 1_000
"""Most rows of a page."""
_POLL = 0.25
"""Seconds between checks for new rows; a wake-up for each row would slow the requests down."""


def audit_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that show the audit and its sums."""
    routes = loopback_blueprint("admin audit")
    audit, store, ring = services.refs.audit, services.refs.store, services.door.ring

    @routes.get("/admin/audit")
    @described(
        "List the requests that have ended, or follow them",
        query=AuditQuery,
        answer=AuditList,
        media=(JSON, EVENTS),
        problems=(*FOR_OPERATORS, 404, 503),
    )
    async def listed() -> Response:
        writer = _writer(audit)
        asked, follows = _audit_query(request.args, _owners(ring))
        if follows:
            return _followed(writer.book, asked, ring)
        page = await ask_store(store, lambda tables: tables.audit.list(asked))
        rows = tuple(_entry(row, ring.names, number) for number, row in page.rows)
        answer = AuditList(rows, page.has_more, writer.waiting, writer.book.lost)
        return _unstored(json_response(attrs.asdict(answer)))

    @routes.get("/admin/usage")
    @described(
        "Sum up the requests and tokens of each key and day",
        query=UsageQuery,
        answer=Usages,
        problems=(*FOR_OPERATORS, 404, 503),
    )
    async def usage() -> Response:
        _writer(audit)
        since, owners = _day(request.args.get("since")), _owners(ring)
        found = await ask_store(store, lambda tables: tables.audit.usage(since, owners))
        entries = ((attrs.asdict(entry), ring.names.get(entry.owner, "")) for entry in found)
        listed = tuple(UsageEntry(key=entry.pop("owner"), key_name=name, **entry) for entry, name in entries)
        return _unstored(json_response(attrs.asdict(Usages(listed))))

    return routes


def _writer(audit: AuditWriter | None) -> AuditWriter:
    if audit is None:
        detail = "The server keeps no audit: start it with a database and without --no-audit."
        raise ProblemError(Problem(404, "audit_off", detail))
    return audit


def _owners(ring: KeyRing) -> tuple[str, ...]:
    """Return the ids of the keys that the query names; empty for all.

    Raises:
        ProblemError: 404 for an unknown key.
    """
    if (named := request.args.get("key")) is None:
        return ()
    owners = tuple(owner for owner, name in ring.names.items() if named in (owner, name))
    if not owners:
        detail = f"`key` names '{named[:100]}', which is no key: `greenroom keys list` lists them."
        raise ProblemError(Problem(404, "key_not_found", detail, "key"))
    return owners


def _followed(book: AuditBook, asked: AuditFilter, ring: KeyRing) -> Response:
    position = book.position

    async def receive() -> bytes | None:
        nonlocal position
        while True:
            rows, position = book.after(position)
            pieces = [
                named_event("request", attrs.asdict(_entry(row, ring.names)))
                for row in rows
                if asked.includes(row)
            ]
            if pieces:
                return b"".join(pieces)
            await trio.sleep(_POLL)

    return event_response(receive)


def _entry(row: AuditRow, names: Mapping[str, str], number: int | None = None) -> AuditEntry:
    told: dict[str, Any] = attrs.asdict(row) | {"key_name": names.get(row.owner, "")}
    told |= {name: told[name] or None for name in ("body", "answer")}
    told |= {name: round(told[name], 4) for name in ("time", "seconds", "queue", "prefill", "decode")}
    return AuditEntry(number=number, id=told.pop("request_id"), key=told.pop("owner"), **told)


def _unstored(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _audit_query(args: MultiDict[str, str], owners: tuple[str, ...]) -> tuple[AuditFilter, bool]:
    """Return the rows that are asked for, and whether later ones are followed.

    Args:
        owners: Ids of the keys that are asked for; empty for all.

    Raises:
        ProblemError: 400 that names the parameter.
    """
    follow = args.get("follow", "false")
    if follow not in ("true", "false", "1", "0"):
        raise invalid("`follow` must be 'true' or 'false'.", "follow")
    asked = AuditFilter(
        _number(args, "limit", 1, MOST) or 100,
        _number(args, "after", 0, 10**15),
        _time(args, "since"),
        _time(args, "until"),
        owners,
        args.get("model"),
        _number(args, "status", 100, 599),
        _ending(args.get("ending")),
    )
    return asked, follow in ("true", "1")


def _number(args: MultiDict[str, str], name: str, low: int, high: int) -> int | None:
    text = args.get(name)
    if text is None:
        return None
    # `int` would also accept signs and the digits of other alphabets.
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else -1
    if not low <= number <= high:
        raise invalid(f"`{name}` must be a number from {low} to {high}.", name)
    return number


def _time(args: MultiDict[str, str], name: str) -> float | None:
    text = args.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
            seconds = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            seconds = -1.0
    if not 0 <= seconds < 1e12:
        raise invalid(f"`{name}` must be a Unix time in seconds, or a time such as 2026-11-24T12:00Z.", name)
    return seconds


def _day(text: str | None) -> str:
    if text is None:
        return ""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise invalid("`since` must be a day such as 2026-11-24.", "since") from None


def _ending(text: str | None) -> Ending | None:
    endings = get_args(Ending)
    if text is not None and text not in endings:
        raise invalid(f"`ending` must be one of {', '.join(endings)}.", "ending")
    return cast("Ending | None", text)
