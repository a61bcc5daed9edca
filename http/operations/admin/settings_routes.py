"""`GET /admin/settings`: every setting as it holds, and the source that set it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import attrs
from quart import Blueprint, Response

from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.answers import EffectiveSetting, EffectiveSettings, SettingSource
from greenroom.schemas.settings.settings import Settings

_UNSET: SettingSource = "default"
SECRET_VARIABLES = ("HF_TOKEN",)
"""Secrets that other libraries read from the environment."""


def settings_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that shows the settings."""
    routes = loopback_blueprint("admin settings")

    @routes.get("/admin/settings")
    @described("Show every setting as it holds, with its source", answer=EffectiveSettings)
    async def settings() -> Response:
        effective = tuple(effective_settings(services.settings_now))
        return json_response(attrs.asdict(EffectiveSettings(effective)))

    return routes


def effective_settings(settings: Settings) -> Iterator[EffectiveSetting]:
    """Yield every setting with its source; of secrets, only whether they are set."""
    sources: dict[str, SettingSource] = {**dict(settings.origins)}
    for field in attrs.fields(type(settings)):
        if "meaning" not in field.metadata:
            continue
        value, secret = getattr(settings, field.name), bool(field.metadata.get("secret"))
        shown = None if secret else _plain(value)
        source = sources.get(field.name, _UNSET)
        yield EffectiveSetting(field.name, shown, source, secret, value not in (None, ()))
    for name in SECRET_VARIABLES:
        given = bool(os.environ.get(name))
        yield EffectiveSetting(name, None, "environment" if given else "default", True, given)


def _plain(value: Any) -> Any:
    """Return a setting's value as JSON, without what a table of one model leaves to the server."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if attrs.has(type(value)):
        shown = (field for field in attrs.fields(type(value)) if not field.metadata.get("secret"))
        fields = {field.name: getattr(value, field.name) for field in shown}
        return {name: _plain(each) for name, each in fields.items() if each not in (None, ())}
    return value
