"""Checks of JSON Schemas before compilation, and normalization where llguidance is too lenient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import attrs

from greenroom.engine.grammar import limits, schema_keywords
from greenroom.engine.grammar.compile_cost import check_compile_cost
from greenroom.engine.grammar.composition import compose
from greenroom.engine.grammar.limits import ConstraintBudget
from greenroom.engine.grammar.patterns import JsonPath, portable_pattern, shown, steps_to_parse
from greenroom.engine.grammar.schema_keywords import KEYWORD_CHECKS, check_number, check_text, refusal
from greenroom.schemas.problems import ProblemError


@attrs.define
class _Walk:
    """State of one schema's check. `unheld`: places of the parts left out because they cannot be held; None
    if such a part is an error.
    """

    root: JsonPath
    budget: ConstraintBudget
    unheld: list[str] | None = None
    references: list[tuple[JsonPath, dict[str, Any]]] = attrs.field(factory=list)
    """Place of each `$ref`, and the checked schema that holds it."""

    def count(self, path: JsonPath, text: str) -> str:
        self.budget.spend("characters", len(text), self.root)
        return check_text(text, path)

    def leave_out(self, error: ProblemError) -> None:
        """Note a part that cannot be held, or raise its error."""
        if self.unheld is None or error.problem.code == "schema_too_large":
            raise error
        self.unheld.append(error.problem.param or str(self.root))


def check_schema(
    schema: Any, param: str, budget: ConstraintBudget | None = None, unheld: list[str] | None = None
) -> Any:
    """Return the schema, checked and normalized for llguidance.

    Args:
        param: Path of the schema in the request, e.g. `response_format.json_schema.schema`.
        budget: Cost budget shared by the request's schemas; a new one if not given.
        unheld: List that takes the places of parts that cannot be enforced, which are then left out; without
            it such a part is an error.

    Raises:
        ProblemError: 400 that names the path of an unsupported keyword, an invalid schema or an unresolvable
            reference; or of the schema if it is too large.
    """
    root = JsonPath(param)
    walk = _Walk(root, budget or ConstraintBudget(), unheld)
    checked = _schema(walk, schema, root, 0)
    targets = check_references(checked, walk.references, walk.leave_out)
    try:
        compose(checked, targets, root, walk.budget, walk.leave_out)
    except RecursionError:
        raise refusal(root, "leads through too many references", "schema_too_large") from None
    check_compile_cost(checked, targets, root, walk.budget)
    return checked


def _schema(walk: _Walk, schema: Any, path: JsonPath, depth: int) -> Any:
    walk.budget.spend("subschemas", 1, walk.root)
    if depth > limits.MAX_DEPTH:
        raise refusal(path, f"is nested more than {limits.MAX_DEPTH} levels deep")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        walk.leave_out(refusal(path, "must be a JSON Schema: an object or a boolean"))
        return True
    if schema.get("not") in (True, {}):
        return False
    checked: dict[str, Any] = {}
    references = len(walk.references)
    said = _in_todays_words(schema)
    for keyword, value in said.items():
        try:
            _keyword(walk, checked, keyword, value, path, depth)
        except ProblemError as error:
            walk.leave_out(error)
    if not checked.keys() >= {"properties", "patternProperties"} & said.keys():
        for word in ("additionalProperties", "unevaluatedProperties"):
            checked.pop(word, None)  # It meant all keys but those left out.
    if depth and "$id" in schema and len(walk.references) > references:
        raise refusal(path.key("$id"), "changes what its '$ref' mean, which cannot be honoured")
    _normalize(walk, checked, path)
    return checked


def _in_todays_words(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without words that constrain nothing, and with others written as honoured ones."""
    said = {
        word: value for word, value in schema.items() if value not in schema_keywords.VACUOUS.get(word, ())
    }
    for word, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(said.get(word), bool) and said.pop(word) and bound in said:  # Draft 4.
            said[word] = said.pop(bound)
    for word, needed in schema_keywords.BESIDE.items():
        if word in said and not needed & said.keys():
            del said[word]
    if said.get("unevaluatedProperties") is False and not schema_keywords.IN_PLACE & said.keys():
        said.setdefault("additionalProperties", said.pop("unevaluatedProperties"))
    names = said.get("propertyNames")
    if isinstance(names, Mapping):
        tells = {
            word: names[word]
            for word in names.keys() & (schema_keywords.SUPPORTED | schema_keywords.UNENFORCED)
        }
        if tells.pop("type", "string") == "string" and not tells:
            del said["propertyNames"]
        elif len(tells) == 1 and not {"properties", "patternProperties"} & said.keys():
            any_name = said.get("additionalProperties", True)
            if isinstance(tells.get("enum"), list):
                said["properties"] = {name: any_name for name in tells["enum"] if isinstance(name, str)}
            elif isinstance(tells.get("pattern"), str):
                said["patternProperties"] = {tells["pattern"]: any_name}
            else:
                return said
            del said["propertyNames"]
            said["additionalProperties"] = False
    return said


def _keyword(
    walk: _Walk, checked: dict[str, Any], keyword: str, value: Any, path: JsonPath, depth: int
) -> None:
    here = path.key(keyword)
    if keyword in schema_keywords.SCHEMA_MAPS:
        checked[keyword] = _map(walk, keyword, value, here, depth)
    elif keyword in schema_keywords.SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
        checked[keyword] = _list(walk, keyword, value, here, depth)
    elif keyword in schema_keywords.SINGLE_SCHEMAS or keyword == "items":
        checked[keyword] = _schema(walk, value, here, depth + 1)
    elif keyword == "$ref":
        checked[keyword] = _reference(walk, value, here)
        walk.references.append((here, checked))
    elif keyword in ("enum", "const"):
        _values(walk, keyword, value, here)
        checked[keyword] = value
    elif keyword in KEYWORD_CHECKS:
        held = _checked(walk, keyword, value, here)
        if held is not None:
            checked[keyword] = held
    elif keyword == "unevaluatedProperties" and value is False:
        checked[keyword] = False  # `compose` closes the object, once all of its parts are known.
    elif keyword in schema_keywords.UNENFORCED:
        raise _unsupported(keyword, here)
    elif meant := schema_keywords.meant(keyword):
        raise refusal(here, f"is no keyword of JSON Schema; did you mean '{meant}'?", "unsupported_schema")


def _unsupported(keyword: str, path: JsonPath) -> ProblemError:
    honoured = ", ".join(sorted(schema_keywords.SUPPORTED))
    why = f"is the JSON Schema keyword '{shown(keyword)}', which cannot be honoured; remove it."
    return refusal(path, f"{why} Honoured are: {honoured}.", "unsupported_schema")


def _checked(walk: _Walk, keyword: str, value: Any, path: JsonPath) -> Any:
    checked = KEYWORD_CHECKS[keyword](value, path)
    if keyword in ("pattern", "required"):
        walk.budget.spend("characters", sum(map(len, checked)), walk.root)
    if keyword == "pattern":
        walk.budget.spend("steps of work", steps_to_parse(checked), walk.root)
    return checked


def _map(walk: _Walk, keyword: str, value: Any, path: JsonPath, depth: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refusal(path, "must be an object")
    most = {"properties": limits.MAX_PROPERTIES, "patternProperties": limits.MAX_PATTERN_PROPERTIES}
    if len(value) > most.get(keyword, limits.MAX_NODES):
        raise refusal(path, f"has more than {most.get(keyword, limits.MAX_NODES)} entries")
    checked = {}
    for name, schema in value.items():
        walk.count(path, name)
        here = path.key(name)
        written = name
        if keyword == "patternProperties":
            written = portable_pattern(name, str(here))
            walk.budget.spend("steps of work", steps_to_parse(written), walk.root)
        checked[written] = _schema(walk, schema, here, depth + 1)
    return checked


def _list(walk: _Walk, keyword: str, value: Any, path: JsonPath, depth: int) -> list[Any]:
    if not isinstance(value, list) or (not value and keyword != "prefixItems"):
        raise refusal(path, "must be a list of schemas")
    return [_schema(walk, schema, path.item(index), depth + 1) for index, schema in enumerate(value)]


def _reference(walk: _Walk, value: Any, path: JsonPath) -> str:
    if not isinstance(value, str):
        raise refusal(path, "must be a string")
    if value != "#" and not value.startswith("#/"):
        raise refusal(path, f"is '{shown(value)}'; only references inside the schema ('#/…') work here")
    return walk.count(path, value)


def _values(walk: _Walk, keyword: str, value: Any, path: JsonPath) -> None:
    if keyword == "const":
        _value(walk, value, path, 0)
    elif not isinstance(value, list) or not value:
        raise refusal(path, "must be a list with at least one value")
    else:
        for index, item in enumerate(value):
            _value(walk, item, path.item(index), 0)


def _value(walk: _Walk, value: Any, path: JsonPath, depth: int) -> None:
    walk.budget.spend("listed values", 1, walk.root)
    if depth > limits.MAX_DEPTH:
        raise refusal(path, f"is nested more than {limits.MAX_DEPTH} levels deep")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _value(walk, item, path.item(index), depth + 1)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            walk.count(path, name)
            _value(walk, item, path.key(name), depth + 1)
    elif isinstance(value, str):
        walk.count(path, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        check_number(value, path)


def _normalize(walk: _Walk, checked: dict[str, Any], path: JsonPath) -> None:
    """Tighten keywords that llguidance enforces too loosely; refuse those that it cannot enforce."""
    exact = schema_keywords.FORMAT_PATTERNS.get(checked.get("format", ""))
    if exact is not None:
        del checked["format"]
        checked["allOf"] = [*checked.get("allOf", ()), {"pattern": exact}]
    longest = schema_keywords.FORMAT_MAX_LENGTHS.get(checked.get("format", ""))
    if longest is not None:
        checked["maxLength"] = min(longest, checked.get("maxLength", longest))
    types = checked.get("type", ())
    if "integer" in ([types] if isinstance(types, str) else types) and "number" not in types:
        _bound_integers(checked)
    # Undeclared keys may repeat, and repeats count once.
    highest_minimum = len(set(checked.get("required", ()))) + 1
    if checked.get("minProperties", 0) > highest_minimum:
        why = f"is {checked['minProperties']}; more than the required properties and one cannot be honoured"
        walk.leave_out(refusal(path.key("minProperties"), why, "unsupported_schema"))
        del checked["minProperties"]


def _bound_integers(checked: dict[str, Any]) -> None:
    if not {"minimum", "exclusiveMinimum"} & checked.keys():
        checked["minimum"] = -limits.MAX_INTEGER
    if not {"maximum", "exclusiveMaximum"} & checked.keys():
        checked["maximum"] = limits.MAX_INTEGER


def check_references(
    schema: Any,
    references: Iterable[tuple[JsonPath, dict[str, Any]]],
    leave_out: Callable[[ProblemError], None],
) -> dict[str, Any]:
    """Return the target subschema of each reference; references into `oneOf` then lead to its later place.

    Args:
        references: Place of each `$ref`, `#` or `#/…`, and the schema that holds it.
        leave_out: Function that takes the 400 for a reference without a target, and may raise it.
    """
    found: dict[str, Any] = {}
    for path, holder in references:
        target, pointer = _subschema(schema, unquote(holder["$ref"][1:]).split("/")[1:])
        if target is None:
            leave_out(refusal(path, f"refers to '{shown(holder.pop('$ref'))}', where no schema stands"))
            continue
        if "/oneOf/" in holder["$ref"]:
            holder["$ref"] = "".join(["#", *(f"/{quote(part, safe='~$')}" for part in pointer)])
        found[holder["$ref"]] = target
    _break_circles([(path, holder) for path, holder in references if "$ref" in holder], found, leave_out)
    return found


def _break_circles(
    references: Iterable[tuple[JsonPath, dict[str, Any]]],
    targets: dict[str, Any],
    leave_out: Callable[[ProblemError], None],
) -> None:
    """Refuse references that lead back to themselves without a step into the value."""
    ends: set[int] = set()
    for path, holder in references:
        passed = set[int]()
        part: Any = holder
        while isinstance(part, dict) and id(part) not in ends and id(part) not in passed:
            passed.add(id(part))
            lists = [part[word] for word in ("allOf", "anyOf", "oneOf") if len(part.get(word, ())) == 1]
            part = targets[part["$ref"]] if "$ref" in part else lists[0][0] if lists else None
        if id(part) in passed:
            why = f"refers to '{shown(holder.pop('$ref'))}', which only leads back here"
            leave_out(refusal(path, why))
        else:
            ends.update(passed)


def rebased(schema: Any, base: str) -> Any:
    """Return a checked schema with references adjusted to its place in a larger one."""
    if not isinstance(schema, dict):
        return schema
    moved = dict(schema)
    for keyword, value in schema.items():
        if keyword == "$ref":
            moved[keyword] = base + value[1:]
        elif keyword in schema_keywords.SCHEMA_MAPS:
            moved[keyword] = {name: rebased(part, base) for name, part in value.items()}
        elif keyword in schema_keywords.SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
            moved[keyword] = [rebased(part, base) for part in value]
        elif keyword in (*schema_keywords.SINGLE_SCHEMAS, "items"):
            moved[keyword] = rebased(value, base)
    return moved


def _subschema(schema: Any, pointer: list[str]) -> tuple[Any, list[str]]:
    parts, written = iter(pointer), list[str]()
    for keyword in parts:
        if not isinstance(schema, dict) or keyword not in schema:
            return None, pointer
        written += _place_of_one_of(schema) if keyword == "oneOf" else [keyword]
        schema = schema[keyword]
        part = None
        if keyword in schema_keywords.SCHEMA_MAPS:
            part = next(parts, None)
            schema = None if part is None else schema.get(part.replace("~1", "/").replace("~0", "~"))
        elif keyword in schema_keywords.SCHEMA_LISTS or isinstance(schema, list):
            part = next(parts, "")
            schema = _item(schema, part)
        elif keyword not in (*schema_keywords.SINGLE_SCHEMAS, "items"):
            return None, pointer
        written += [part] if part is not None else []
    return schema, written


def _place_of_one_of(schema: dict[str, Any]) -> list[str]:
    """Return the place of a schema's `oneOf` as `anyOf`: in a new part of `allOf` if it has both."""
    return ["allOf", str(len(schema.get("allOf", ()))), "anyOf"] if "anyOf" in schema else ["anyOf"]


def _item(schemas: list[Any], index: str) -> Any:
    known = index.isascii() and index.isdigit() and len(index) < 9 and str(int(index)) == index
    return schemas[int(index)] if known and int(index) < len(schemas) else None
