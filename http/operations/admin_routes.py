"""The routes under `/admin`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.route_services import RouteServices
from greenroom.http.operations.admin_models import (
    adapter_routes,
    model_routes,
    probe_routes,
    pull_routes,
    residence_routes,
)
from greenroom.http.operations.admin_requests import audit_routes, inspect_routes, key_routes, request_routes
from greenroom.http.operations.admin_server import event_routes, reload_routes, settings_routes, status_routes


def admin_routes(services: RouteServices) -> tuple[Blueprint, ...]:
    """Return the routes, which answer to programs of the server's machine only."""
    return (
        status_routes(services),
        model_routes(services),
        adapter_routes(services),
        residence_routes(services),
        probe_routes(services),
        pull_routes(services),
        request_routes(services),
        event_routes(services),
        settings_routes(services),
        reload_routes(services),
        inspect_routes(services),
        audit_routes(services),
        key_routes(services),
    )
