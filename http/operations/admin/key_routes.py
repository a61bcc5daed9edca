"""`/admin/keys`: API keys, made, listed, revoked and switched off on a running server."""

from __future__ import annotations

import time
from collections.abc import Iterable

import attrs
from quart import Blueprint, Response

from greenroom.actors.store.answers import ask_store
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import FOR_OPERATORS, STORED, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.converter import ADMIN
from greenroom.schemas.admin.keys import KeyBody, KeyReport, KeyReports, NewKey, key_report, new_key
from greenroom.schemas.settings.key_record import KeyList, KeyRecord


def key_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that make, list and revoke API keys."""
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

    def reports(records: Iterable[KeyRecord]) -> KeyReports:
        return KeyReports(tuple(map(report, records)), ring.own_names)

    def report(record: KeyRecord) -> KeyReport:
        return key_report(record, of_server=ring.is_own(record))

    @routes.get("/admin/keys")
    @described("List the API keys, revoked ones too", answer=KeyReports, problems=(*FOR_OPERATORS, 503))
    async def keys() -> Response:
        return json_response(attrs.asdict(reports(await known())))

    @routes.post("/admin/keys")
    @described(
        "Make an API key, after which every request needs one",
        body=KeyBody,
        converter=ADMIN,
        answer=NewKey,
        problems=(*FOR_OPERATORS, *STORED),
    )
    async def add() -> Response:
        record, secret = new_key(await services.read_body(KeyBody, ADMIN), time.time())
        await ask_store(store, lambda tables: tables.keys.add(record), writes=True)
        await take_in()
        return json_response(attrs.asdict(NewKey(report(record), secret)))

    @routes.delete("/admin/keys/<key>")
    @described(
        "Revoke an API key by its id or name, and end its requests",
        answer=KeyReport,
        problems=(*FOR_OPERATORS, *STORED),
    )
    async def revoke(key: str) -> Response:
        record = await ask_store(store, lambda tables: tables.keys.revoke(key, time.time()), writes=True)
        await take_in()
        return json_response(attrs.asdict(report(record)))

    @routes.delete("/admin/keys")
    @described(
        "Revoke all API keys, and let requests in without one",
        answer=KeyReports,
        problems=(*FOR_OPERATORS, *STORED),
    )
    async def switch_off() -> Response:
        await ask_store(store, lambda tables: tables.keys.switch_off(time.time()), writes=True)
        return json_response(attrs.asdict(reports(await take_in())))

    return routes
