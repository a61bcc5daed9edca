"""The OpenAPI document covers the application's routes, and is one."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from quart_trio import QuartTrio

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import Inbox
from greenroom.actors.store.tables import StoreMessage
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import create_app_with
from greenroom.http.operations.openapi import WireSchemas, all_rules, openapi_document
from greenroom.schemas.protocols.download_protocol import DownloadMessage
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.responses_protocol import ResponsesMessage
from greenroom.schemas.protocols.tools_protocol import ToolsMessage
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.openai_answers import ChatCompletion
from greenroom.tests.support.servers.http_servers import Served, fetch


def _app() -> QuartTrio:
    refs = ActorRefs(
        Inbox[PoolMessage]().ref,
        Inbox[StoreMessage]().ref,
        Inbox[ResponsesMessage]().ref,
        Inbox[DownloadMessage]().ref,
        Inbox[ToolsMessage]().ref,
    )
    return create_app_with(RouteServices(refs, Settings()))


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_references, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(_references, value.values()))


def test_every_route_is_described() -> None:
    undescribed = [f"{method} {rule.rule}" for rule, method, known in all_rules(_app()) if known is None]
    assert undescribed == [], "put `@described(…)` below the decorator of the route"


async def test_the_document_has_every_path_and_points_nowhere_else(server_without_model: Served) -> None:
    answer = await fetch(server_without_model.server, "GET", "/openapi.json")
    document = answer.json()
    assert (answer.status, document["openapi"]) == (200, "3.1.1")
    paths = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule) for rule, _, _ in all_rules(_app())}
    assert set(document["paths"]) == paths
    components = document["components"]
    known = {f"#/components/{kind}/{name}" for kind, named in components.items() for name in named}
    assert _references(document) == known


def test_a_request_and_an_answer_fit_their_schemas() -> None:
    document = openapi_document(_app())

    def check(name: str, value: Any) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(value)

    check("ChatRequest", {"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
    check("ChatRequest", {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]})
    unfit: tuple[dict[str, Any], ...] = (
        {"messages": []},
        {"model": 1, "messages": []},
        {"model": "m", "messages": [{}]},
        {"model": "m", "messages": [{"role": "user"}], "stream": "yes"},
        {"model": "m", "messages": [{"role": "user"}] * 10_001},
    )
    for wrong in unfit:
        with pytest.raises(jsonschema.ValidationError):
            check("ChatRequest", wrong)


def test_a_field_keeps_its_meaning_and_only_optional_ones_may_be_missing() -> None:
    schemas = WireSchemas()
    schemas.schema_of(ChatCompletion)
    completion = schemas.components["ChatCompletion"]
    assert "dropped_messages" not in completion["required"]
    assert {"id", "usage", "timings"} <= {*completion["required"]}
    assert completion["properties"]["service_tier"] == {
        "type": ["string", "null"],
        "description": "`flex` if the request asked for that; else omitted.",
    }
    assert schemas.components["ChatMessage"]["properties"]["role"] == {"enum": ["assistant"]}
