"""Routes for operators about requests and keys: what runs, what was asked, the audit, API keys."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, cast, get_args

import attrs
from quart import Blueprint, Response, request
from werkzeug.datastructures import MultiDict

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.records.audit import AuditBook, AuditWriter
from greenroom.actors.records.inspector import Inspection, inspection_body, inspection_summary
from greenroom.actors.store.tables import ask_store
from greenroom.http.answering.explanation_body import explanation_body
from greenroom.http.answering.http_responses import json_response, stored_json_response
from greenroom.http.answering.protocols import EVENTS, FOR_OPERATORS, JSON, STORED, described
from greenroom.http.answering.request_parameters import query_boolean, query_number
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import json_bytes
from greenroom.http.guard.host_guard import loopback_blueprint
from greenroom.http.guard.keys import KeyRing
from greenroom.http.operations.admin_server import (
    answer_row,
    event_response,
    goes_on,
    named_event,
    watch_models,
)
from greenroom.schemas.events.statistics import RowStatistics
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.protocols.pool_protocol import (
    CancelRequest,
    DescribePool,
    ListRequests,
    PoolStatus,
    RequestCancelled,
    RequestStatus,
    RequestStatuses,
)
from greenroom.schemas.settings.caller import KeyList, KeyRecord
from greenroom.schemas.stored import AuditFilter, AuditRow, Ending
from greenroom.schemas.wire.admin import ADMIN, CancelledRequest, RequestInFlight, RequestsInFlight
from greenroom.schemas.wire.admin_upkeep import (
    AuditEntry,
    AuditList,
    AuditQuery,
    KeyBody,
    KeyReport,
    KeyReports,
    NewKey,
    UsageEntry,
    UsageQuery,
    Usages,
    key_report,
    new_key,
)


def request_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin requests")
    pool = services.refs.pool

    @routes.get("/admin/requests")
    @described("List the requests that wait for a model or use one", answer=RequestsInFlight)
    async def requests() -> Response:
        found = await ask_actor(pool, ListRequests(), RequestStatuses)
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        rows = [row for model in status.models if model.snapshot is not None for row in model.snapshot.rows]
        listed = tuple(_in_flight(request, rows) for request in found.requests)
        return json_response(attrs.asdict(RequestsInFlight(listed)))

    @routes.post("/admin/requests/<ident>/cancel")
    @described(
        "Cancel a request, which fails with `request_cancelled`", answer=CancelledRequest, problems=(404,)
    )
    async def cancel(ident: str) -> Response:
        cancelled = await ask_actor(pool, CancelRequest(ident), RequestCancelled)
        return json_response(attrs.asdict(CancelledRequest(cancelled.id, cancelled.count)))

    return routes


def _in_flight(request: RequestStatus, rows: list[RowStatistics]) -> RequestInFlight:
    own = tuple(answer_row(row) for row in rows if row.request_id == request.id)
    return RequestInFlight(
        id=request.id,
        model=request.key.model,
        state=request.state,
        choices=request.slots,
        priority=request.priority,
        seconds=request.seconds,
        rows=own if request.state == "running" else (),
    )


@attrs.frozen
class InspectQuery:
    """The parameters of the URL's query. `id`: id or number of a request, to show all of it; without it, all
    requests are listed.
    """

    id: str | None = None


def inspect_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin inspect")
    inspector = services.refs.inspector

    @routes.get("/admin/inspect")
    @described(
        "Show the last requests with prompts and answers", query=InspectQuery, problems=(*FOR_OPERATORS, 404)
    )
    async def inspect() -> Response:
        if inspector is None:
            detail = "The server keeps no requests to inspect: start it with --inspect N."
            raise ProblemError(Problem(404, "inspector_off", detail))
        name = request.args.get("id")
        if name is None:
            listed = [inspection_summary(record) for record in inspector.listed()]
            return _unstored(
                json_response({"requests": listed, "nbytes": inspector.nbytes, "limit": inspector.budget})
            )
        record = inspector.find(name)
        if record is None:
            detail = f"The inspector has no request '{name[:100]}'; it keeps only the latest."
            raise ProblemError(Problem(404, "request_not_found", detail, "id"))
        return _unstored(
            await stored_json_response(
                services.answers, 2 * record.nbytes, lambda: json_bytes(_whole(record))
            )
        )

    return routes


def _whole(record: Inspection) -> dict[str, Any]:
    explanation = None if record.explanation is None else explanation_body(record.explanation)
    return {**inspection_body(record), "explanation": explanation}


def _unstored(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


MOST = 1_000  # Most rows of a page


def audit_routes(services: RouteServices) -> Blueprint:
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
            return _followed(writer.book, asked, ring, await watch_models(services.refs.pool))
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
    """Return the ids of the keys that the query names; empty for all. Raises ProblemError: 404 for an unknown
    key.
    """
    if (named := request.args.get("key")) is None:
        return ()
    owners = tuple(owner for owner, name in ring.names.items() if named in (owner, name))
    if not owners:
        detail = f"`key` names '{named[:100]}', which is no key: `greenroom keys list` lists them."
        raise ProblemError(Problem(404, "key_not_found", detail, "key"))
    return owners


def _followed(book: AuditBook, asked: AuditFilter, ring: KeyRing, news: ReplyStream[Any]) -> Response:
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
            if not await goes_on(news):
                return None

    return event_response(receive)


def _entry(row: AuditRow, names: Mapping[str, str], number: int | None = None) -> AuditEntry:
    told: dict[str, Any] = attrs.asdict(row) | {"key_name": names.get(row.owner, "")}
    told |= {name: told[name] or None for name in ("body", "answer")}
    told |= {name: round(told[name], 4) for name in ("time", "seconds", "queue", "prefill", "decode")}
    return AuditEntry(number=number, id=told.pop("request_id"), key=told.pop("owner"), **told)


def _audit_query(args: MultiDict[str, str], owners: tuple[str, ...]) -> tuple[AuditFilter, bool]:
    """Return the rows that are asked for, and whether later ones are followed. `owners`: ids of the keys that
    are asked for; empty for all. Raises ProblemError: 400 that names the parameter.
    """
    asked = AuditFilter(
        query_number(args, "limit", 1, MOST) or 100,
        query_number(args, "after", 0, 10**15),
        _time(args, "since"),
        _time(args, "until"),
        owners,
        args.get("model"),
        query_number(args, "status", 100, 599),
        _ending(args.get("ending")),
    )
    return asked, bool(query_boolean(args, "follow"))


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


_KEYS = (*FOR_OPERATORS, *STORED)


def key_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin keys")
    store, ring = services.refs.store, services.door.ring

    async def known() -> tuple[KeyRecord, ...]:
        listed = await ask_store(store, lambda tables: tables.keys.list(), unused=KeyList("", ()))
        return listed.records or ()

    async def take_in() -> tuple[KeyRecord, ...]:
        # At once: the watch over the database would take half a second.
        records = await known()
        ring.replace(records, time.time())
        return records

    def report(record: KeyRecord) -> KeyReport:
        return key_report(record, of_server=ring.is_own(record))

    def listed(records: Iterable[KeyRecord]) -> Response:
        return json_response(attrs.asdict(KeyReports(tuple(map(report, records)), ring.own_names)))

    @routes.get("/admin/keys")
    @described("List the API keys, revoked ones too", answer=KeyReports, problems=(*FOR_OPERATORS, 503))
    async def keys() -> Response:
        return listed(await known())

    @routes.post("/admin/keys")
    @described(
        "Make an API key, after which every request needs one",
        body=KeyBody,
        converter=ADMIN,
        answer=NewKey,
        problems=_KEYS,
    )
    async def add() -> Response:
        record, secret = new_key(await services.read_body(KeyBody, ADMIN), time.time())
        await ask_store(store, lambda tables: tables.keys.add(record), writes=True)
        await take_in()
        return json_response(attrs.asdict(NewKey(report(record), secret)))

    @routes.delete("/admin/keys/<key>")
    @described("Revoke an API key by its id or name, and end its requests", answer=KeyReport, problems=_KEYS)
    async def revoke(key: str) -> Response:
        record = await ask_store(store, lambda tables: tables.keys.revoke(key, time.time()), writes=True)
        await take_in()
        return json_response(attrs.asdict(report(record)))

    @routes.delete("/admin/keys")
    @described("Revoke all API keys, and let requests in without one", answer=KeyReports, problems=_KEYS)
    async def switch_off() -> Response:
        await ask_store(store, lambda tables: tables.keys.switch_off(time.time()), writes=True)
        return listed(await take_in())

    return routes
