"""`GET /openapi.json`: all routes of the server, for programs that make clients or test servers."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable
from enum import Enum
from functools import cache, lru_cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import attrs
import cattrs
from quart import Blueprint, Response, request
from quart_trio import QuartTrio
from werkzeug.routing import Rule

from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import JSON, RouteDescription, described, description_of
from greenroom.http.encoding.encoding import json_bytes
from greenroom.http.encoding.problem_documents import CONTENT_TYPE
from greenroom.schemas.wire.wire import AtMost


def openapi_routes(app: QuartTrio) -> Blueprint:
    """Return the blueprint of the route that serves the OpenAPI document."""
    routes = Blueprint("openapi", __name__)
    document = cache(lambda: openapi_document(app))
    written = lru_cache(_MOUNTS)(lambda at: json_bytes({**document(), **_servers(at)}))

    @routes.get("/openapi.json")
    @described("Describe all routes")
    async def openapi() -> Response:
        return json_response(written(request.root_path))

    return routes


_MOUNTS = 4
"""Paths of mounted applications whose documents are kept."""


def _servers(root_path: str) -> dict[str, Any]:
    return {"servers": [{"url": root_path}]} if root_path else {}


_ANY_REQUEST = (400, 403, 408, 431, 503)
"""Statuses of problems that any request may have, such as a wrong Host, or too many connections."""
_ANY_BODY = (408, 413, 415)
_PARAMETER = r"<(?:\w+:)?(\w+)>"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

_PROBLEM: Schema = {
    "type": "object",
    "description": "A problem document (RFC 9457), with the members that the path's protocol expects.",
    "required": ["title", "status", "detail"],
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
}


def openapi_document(app: QuartTrio) -> dict[str, Any]:
    """Return the OpenAPI document that covers all routes of an application."""
    schemas = WireSchemas()
    paths: dict[str, dict[str, Any]] = {}
    for rule, method, description in all_rules(app):
        if description is None:
            continue
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


Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}
_OWN_READERS = "greenroom.schemas."
_WIRE = "greenroom.schemas.wire.wire"


class WireSchemas:
    """Schemas of wire types, each class once.

    Attributes:
        components: Schemas by the names to which references point.
    """

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._named: dict[type, str] = {}

    def schema_of(self, kind: Any, converter: cattrs.Converter | None = None) -> Schema:
        """Return the schema of a type.

        Args:
            converter: Converter that reads the type from a request's body, where everything with a default
                may be missing. A type with a reader of its own has several forms, so its schema only
                describes it. None for a type of answers, where nothing is missing.
        """
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._bounded(arguments, converter)
        if isinstance(kind, NewType):
            return self.schema_of(kind.__supertype__, converter)
        if converter is not None and _has_own_reader(kind, converter):
            return _described(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return _either([self.schema_of(each, converter) for each in arguments])
        if origin in (tuple, list):
            return {"type": "array", "items": self.schema_of(arguments[0], converter)}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1], converter)}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        if isinstance(kind, type) and attrs.has(kind):
            return {"$ref": f"#/components/schemas/{self._name(kind, converter)}"}
        return {}

    def _bounded(self, arguments: tuple[Any, ...], converter: cattrs.Converter | None) -> Schema:
        schema = self.schema_of(arguments[0], converter)
        bounds = [bound for bound in arguments[1:] if isinstance(bound, AtMost)]
        return {**schema, "maxItems": bounds[0].items} if bounds else schema

    def _name(self, kind: type[attrs.AttrsInstance], converter: cattrs.Converter | None) -> str:
        if kind not in self._named:
            taken = kind.__name__ in self.components
            protocol = kind.__module__.split(".")[2].title()
            name = f"{protocol}{kind.__name__}" if taken else kind.__name__
            self._named[kind] = name
            self.components[name] = {}  # for a type that contains itself
            self.components[name] = self._object(kind, converter)
        return self._named[kind]

    def _object(self, kind: type[attrs.AttrsInstance], converter: cattrs.Converter | None) -> Schema:
        hints, meanings = get_type_hints(kind, include_extras=True), field_meanings(kind)
        properties, required = {}, []
        for field in attrs.fields(kind):
            schema = self.schema_of(hints[field.name], converter)
            meaning = meanings.get(field.name)
            properties[field.name] = {**schema, "description": meaning} if meaning else schema
            left_out = (
                field.metadata.get("optional") if converter is None else field.default is not attrs.NOTHING
            )
            if not left_out:
                required.append(field.name)
        schema = {"type": "object", "properties": properties, **_described(kind)}
        return {**schema, "required": required} if required else schema


def field_meanings(kind: type) -> dict[str, str]:
    """Return the meanings of a class's fields, from the `Args:` of its docstring."""
    _, _, block = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.+(?:\n      +.+)*)", block, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _described(kind: Any) -> Schema:
    named = next((each for each in (kind, *get_args(kind)) if attrs.has(each)), None)
    text = (inspect.getdoc(named) or "").partition("\n")[0] if named is not None else ""
    return {"description": text} if text else {}


def _either(schemas: list[Schema]) -> Schema:
    plain = [schema for schema in schemas if schema.keys() == {"type"}]
    if len(plain) == len(schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {} if {} in schemas else {"anyOf": schemas}


def _has_own_reader(kind: Any, converter: cattrs.Converter) -> bool:
    """Return whether a wire module reads the type by a function of its own, not field by field."""
    if kind is Any or not isinstance(kind, type | types.UnionType):
        return False
    reader = getattr(converter.get_structure_hook(kind), "__module__", None) or ""
    return reader.startswith(_OWN_READERS) and reader != _WIRE
