"""The OpenAPI document of the application (OpenAPI Specification 3.1.1), made from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, get_type_hints

import attrs
from quart_trio import QuartTrio
from werkzeug.routing import Rule

from greenroom.http.answering.protocols.route_description import JSON, RouteDescription, description_of
from greenroom.http.errors.problem_documents import CONTENT_TYPE
from greenroom.http.operations.openapi.json_schema import Schema, WireSchemas, field_meanings

_ANY_REQUEST = (400, 403, 408, 431, 503)
"""Statuses of problems that any request may have, such as a wrong Host, or too many connections."""
_ANY_BODY = (408, 413, 415)
_PARAMETER = r"<(?:\w+:)?(\w+)>"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

_PROBLEM: Schema = {
    "type": "object",
    "description": "A problem document (RFC 9457), with the members that the path's protocol expects.",
    "required": ["title", "status", "detail"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def openapi_document(app: QuartTrio) -> dict[str, Any]:
    """Return the OpenAPI document that covers all routes of an application."""
    schemas = WireSchemas()
    paths: dict[str, dict[str, Any]] = {}
    for rule, method, description in described_rules(app):
        path = re.sub(_PARAMETER, r"{\1}", rule.rule)
        operation = _operation(rule, description, schemas)
        operation["operationId"] = f"{method.lower()}{re.sub(r'[^0-9A-Za-z]+', '_', path)}"
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Greenroom",
            "version": version("greenroom"),
            "description": "A local inference server for MLX models.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **schemas.components},
            "responses": {status: _problem_response(int(status)) for status in sorted(_refused_with(paths))},
        },
    }


def described_rules(app: QuartTrio) -> Iterable[tuple[Rule, str, RouteDescription]]:
    """Yield each rule with each of its methods and its description; undescribed ones are left out."""
    for rule, method, description in all_rules(app):
        if description is not None:
            yield rule, method, description


def all_rules(app: QuartTrio) -> Iterable[tuple[Rule, str, RouteDescription | None]]:
    """Yield each rule of an application with each of its methods, and its description if it has one."""
    for rule in app.url_map.iter_rules():
        description = description_of(app.view_functions[rule.endpoint])
        for method in _METHODS:
            if method in (rule.methods or ()):
                yield rule, method, description


def _operation(rule: Rule, description: RouteDescription, schemas: WireSchemas) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(_PARAMETER, rule.rule)
    ]
    if description.query is not None:
        parameters += _query_parameters(description.query, schemas)
    operation: dict[str, Any] = {
        "summary": description.summary,
        "responses": _responses(rule, description, schemas),
    }
    if parameters:
        operation["parameters"] = parameters
    if description.body_media is not None:
        body = {"type": "object"}
        if description.body is not None:
            body = schemas.schema_of(description.body, description.converter)
        content = {description.body_media: {"schema": body}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _query_parameters(query: type[attrs.AttrsInstance], schemas: WireSchemas) -> list[dict[str, Any]]:
    hints, meanings = get_type_hints(query, include_extras=True), field_meanings(query)
    return [
        {
            "name": field.name,
            "in": "query",
            "required": field.default is attrs.NOTHING,
            "description": meanings.get(field.name, ""),
            "schema": schemas.schema_of(hints[field.name]),
        }
        for field in attrs.fields(query)
    ]


def _responses(rule: Rule, description: RouteDescription, schemas: WireSchemas) -> dict[str, Any]:
    problems = {*_ANY_REQUEST, *description.problems}
    if rule.arguments:
        problems.add(404)  # a line break, say, fits no parameter
    if description.body_media is not None:
        problems |= {*_ANY_BODY}
    responses: dict[str, Any] = {}
    if description.status is not None:
        schema = schemas.schema_of(description.answer) if description.answer is not None else {}
        content = {media: {"schema": schema} if media == JSON else {} for media in description.media}
        responses[str(description.status)] = {"description": description.summary, "content": content}
    for status in sorted(problems):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return responses


def _refused_with(paths: dict[str, dict[str, Any]]) -> set[str]:
    """Return the statuses of all problems of any route."""
    operations = [operation for methods in paths.values() for operation in methods.values()]
    return {
        status
        for operation in operations
        for status, response in operation["responses"].items()
        if "$ref" in response
    }


def _problem_response(status: int) -> dict[str, Any]:
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": HTTPStatus(status).phrase, "content": content}
