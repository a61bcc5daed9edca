"""The routes under `/admin`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.operations.admin.audit_routes import audit_routes
from greenroom.http.operations.admin.event_routes import event_routes
from greenroom.http.operations.admin.inspect_routes import inspect_routes
from greenroom.http.operations.admin.key_routes import key_routes
from greenroom.http.operations.admin.model_routes import model_routes
from greenroom.http.operations.admin.probe_routes import probe_routes
from greenroom.http.operations.admin.pull_routes import pull_routes
from greenroom.http.operations.admin.reload_routes import reload_routes
from greenroom.http.operations.admin.request_routes import request_routes
from greenroom.http.operations.admin.residence_routes import residence_routes
from greenroom.http.operations.admin.settings_routes import settings_routes
from greenroom.http.operations.admin.status_routes import status_routes


def admin_routes(services: RouteServices) -> tuple[Blueprint, ...]:
    """Return the routes, which answer to programs of the server's machine only."""
    return (
        status_routes(services),
        model_routes(services),
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
