"""Composition of schemas by `allOf`, `anyOf`, `oneOf` and `$ref`.

`oneOf` becomes `anyOf` where its branches exclude one another. An object whose schema names its keys, but
does not say whether it may have others, gets the named ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from greenroom.engine.grammar import limits, schema_keywords
from greenroom.engine.grammar.limits import ConstraintBudget
from greenroom.engine.grammar.patterns import JsonPath
from greenroom.engine.grammar.schema_keywords import refusal
from greenroom.schemas.problems import ProblemError

_OF_OBJECTS: Final = frozenset(
    {
        *("properties", "patternProperties", "additionalProperties", "required"),
        "minProperties",
        "maxProperties",
    }
)
_CHOICES: Final = ("anyOf", "oneOf")
_MAX_NESTED_PROOFS: Final = 6
"""Limit on the levels of properties and alternatives that a proof of exclusion looks into."""

Parts = list[Mapping[str, Any]]
"""Schemas that hold for one value together."""


def compose(
    schema: Any,
    targets: Mapping[str, Any],
    root: JsonPath,
    budget: ConstraintBudget,
    leave_out: Callable[[ProblemError], None],
) -> None:
    """Rewrite a checked schema's `oneOf`, and close its objects with named keys.

    Args:
        schema: Checked schema, changed in place.
        targets: Target subschema of each reference, by the value of its `$ref`.
        leave_out: Function that takes the 400 for a keyword that cannot be enforced, and may raise it.
    """
    composition = _Composition(targets, lambda steps: budget.spend("steps of work", steps, root))
    while waiting := [found for found in subschemas(schema, root) if "oneOf" in found[0]]:
        for part, path in waiting:
            if "oneOf" not in part:  # Branches written inline share their parts, which may come twice.
                continue
            composition.separate(part, path.key("oneOf"), leave_out)
    for part, path in subschemas(schema, root):
        if "unevaluatedProperties" in part:
            composition.close_unevaluated(part, path.key("unevaluatedProperties"), leave_out)
    composition.close_objects([part for part, _ in subschemas(schema, root)])


def subschemas(schema: Any, path: JsonPath) -> Iterator[tuple[dict[str, Any], JsonPath]]:
    if not isinstance(schema, dict):
        return
    yield schema, path
    for word, value in schema.items():
        here = path.key(word)
        if word in schema_keywords.SCHEMA_MAPS:
            inner = [(part, here.key(name)) for name, part in value.items()]
        elif word in schema_keywords.SCHEMA_LISTS or (word == "items" and isinstance(value, list)):
            inner = [(part, here.item(index)) for index, part in enumerate(value)]
        elif word in schema_keywords.SINGLE_SCHEMAS or word == "items":
            inner = [(value, here)]
        else:
            continue
        for part, place in inner:
            yield from subschemas(part, place)


class _Composition:
    def __init__(self, targets: Mapping[str, Any], step: Callable[[int], None]) -> None:
        self._targets = targets
        self._step = step
        self._known: dict[int, bool] = {}

    def separate(
        self, schema: dict[str, Any], path: JsonPath, leave_out: Callable[[ProblemError], None]
    ) -> None:
        """Turn a schema's `oneOf` into `anyOf`, with branches that cannot match together."""
        branches: list[Any] = schema["oneOf"]
        beside = self._together({word: value for word, value in schema.items() if word != "oneOf"})
        parts = [[*self._together(branch), *beside] for branch in branches]
        if all(_types(part) == {"object"} or _is_untyped_object(part) for part in parts):
            branches = [
                self._narrowed(branch, "type", "object") if _is_untyped_object(part) else branch
                for branch, part in zip(branches, parts, strict=True)
            ]
            parts = [[{"type": "object"}, *part] for part in parts]
        needed = {name for part in beside for name in part.get("required", ())}
        without: list[dict[str, bool]] = [{} for _ in parts]
        for one, other in combinations(range(len(parts)), 2):
            if self._exclude(parts[one], parts[other], 0):
                continue
            tells = [
                self._absent(branches[pair[0]], parts[pair[1]], needed)
                for pair in ((one, other), (other, one))
            ]
            if all(tells) and _types(parts[one]) & _types(parts[other]) == {"object"}:
                without[one][tells[0]] = without[other][tells[1]] = False
                continue
            why = (
                f"has branches {one} and {other} that may both match, which cannot be excluded: give them "
                "a required property with different `const` values, or write `anyOf`"
            )
            leave_out(refusal(path, why, "unsupported_schema"))
        written = [
            self._narrowed(branch, "properties", names) if names else branch
            for branch, names in zip(branches, without, strict=True)
        ]
        if "anyOf" in schema:
            schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": written}]
        else:
            schema["anyOf"] = written
        del schema["oneOf"]

    def close_unevaluated(
        self, schema: dict[str, Any], path: JsonPath, leave_out: Callable[[ProblemError], None]
    ) -> None:
        """Write `unevaluatedProperties: false` as `additionalProperties`, beside all names of its parts."""
        del schema["unevaluatedProperties"]
        parts = self._together(schema)
        if any("additionalProperties" in part for part in parts):
            return  # which evaluates all names, or refuses all others itself
        if any("anyOf" in part for part in parts):
            why = (
                "is 'unevaluatedProperties' beside alternatives, which cannot be honoured: write "
                "`additionalProperties` in each of these"
            )
            leave_out(refusal(path, why, "unsupported_schema"))
            return
        for word in ("properties", "patternProperties"):
            if named := {name: True for part in parts for name in part.get(word, ())}:
                schema[word] = {**named, **schema.get(word, {})}
        schema["additionalProperties"] = False

    def close_objects(self, schemas: list[dict[str, Any]]) -> None:
        """Allow only named keys where a schema names some and does not mention others.

        Schemas that describe one object together are closed together, where they meet.
        """
        meeting = {id(schema): [*self._inside(schema)] for schema in schemas if self._groups(schema) > 1}
        inside = {id(part) for parts in meeting.values() for part in parts}
        for schema in schemas:
            parts = [schema, *meeting.get(id(schema), ())]
            names = {name: True for part in parts for name in part.get("properties", ())}
            patterns = {name: True for part in parts for name in part.get("patternProperties", ())}
            if id(schema) in inside or not (names or patterns):
                continue
            names |= {name: True for part in parts for name in part.get("required", ())}
            self._step(len(parts) + len(names) // 20)
            if len(names) > limits.MAX_PROPERTIES or any("additionalProperties" in part for part in parts):
                continue
            for word, named in (("properties", names), ("patternProperties", patterns)):
                if named:
                    own = schema.get(word, {})
                    schema[word] = {**own, **{name: True for name in named if name not in own}}
            schema["additionalProperties"] = False

    def _groups(self, schema: Mapping[str, Any]) -> int:
        parts = [*schema.get("allOf", ()), *self._target(schema)]
        alternatives = any(map(self._describes_objects, schema.get("anyOf", ())))
        own = not _OF_OBJECTS.isdisjoint(schema)
        return sum(map(self._describes_objects, parts)) + alternatives + own

    def _describes_objects(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return False
        if id(schema) not in self._known:
            self._known[id(schema)] = False  # Until it is known: references may lead back here.
            self._known[id(schema)] = self._groups(schema) > 0
        return self._known[id(schema)]

    def _inside(self, schema: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        found: dict[int, Mapping[str, Any]] = {}
        waiting: list[Mapping[str, Any]] = [schema]
        while waiting:
            part = waiting.pop()
            inner = [*part.get("allOf", ()), *part.get("anyOf", ()), *self._target(part)]
            new = [one for one in inner if isinstance(one, Mapping) and id(one) not in found]
            self._step(1 + len(new))
            found |= {id(one): one for one in new}
            waiting += new
        found.pop(id(schema), None)
        return found.values()

    def _target(self, schema: Mapping[str, Any]) -> tuple[Any, ...]:
        return (self._targets[schema["$ref"]],) if "$ref" in schema else ()

    def _together(self, schema: Any) -> Parts:
        found: Parts = []
        waiting = [schema]
        while waiting:
            part = waiting.pop()
            part = part if isinstance(part, Mapping) else {} if part else {"enum": []}
            if not any(part is known for known in found):
                self._step(1 + len(found))
                found.append(part)
                waiting += [*self._target(part), *part.get("allOf", ())]
        return found

    def _exclude(self, one: Parts, other: Parts, depth: int) -> bool:
        """Return whether it can be proved that no value is valid under both."""
        self._step(1)
        types = _types(one) & _types(other)
        if not types:
            return True
        if depth > _MAX_NESTED_PROOFS:
            return False
        values, others = _values(one), _values(other)
        if values is not None and others is not None:
            self._step(len(values) * len(others) // 20)
            return not any(value in others for value in values)
        if types == {"object"}:
            for name in dict.fromkeys(name for part in (*one, *other) for name in part.get("required", ())):
                mine, its = self._property(one, name), self._property(other, name)
                if self._exclude(mine, its, depth + 1):
                    return True
        return self._all_exclude(one, other, depth) or self._all_exclude(other, one, depth)

    def _all_exclude(self, one: Parts, other: Parts, depth: int) -> bool:
        """Return whether all alternatives of some part exclude the other schema."""
        for part in one:
            for word in _CHOICES:
                if word in part:
                    rest = [known for known in one if known is not part]
                    rest.append({key: value for key, value in part.items() if key != word})
                    if all(
                        self._exclude([*self._together(branch), *rest], other, depth + 1)
                        for branch in part[word]
                    ):
                        return True
        return False

    def _property(self, parts: Parts, name: str) -> Parts:
        found: Parts = []
        for part in parts:
            if name in part.get("properties", ()):
                found += self._together(part["properties"][name])
            elif not part.get("patternProperties"):
                found += self._together(part.get("additionalProperties", True))
        return found

    def _absent(self, one: Any, other: Parts, needed: set[str]) -> str:
        known = set(needed)
        for part in self._together(one):
            known.update(part.get("properties", ()), part.get("required", ()))
        return next((name for part in other for name in part.get("required", ()) if name not in known), "")

    def _narrowed(self, branch: Any, word: str, value: Any) -> Any:
        """Return an object's schema, written inline, with a type or schemas of properties."""
        while isinstance(branch, Mapping) and set(branch) == {"$ref"}:
            branch = self._targets[branch["$ref"]]
        if isinstance(branch, bool):
            return {word: value} if branch else False
        return {**branch, word: {**branch.get(word, {}), **value} if isinstance(value, dict) else value}


def _is_untyped_object(parts: Parts) -> bool:
    return _types(parts) == set(schema_keywords.TYPES) and not all(map(_OF_OBJECTS.isdisjoint, parts))


def _types(parts: Parts) -> set[str]:
    types = set(schema_keywords.TYPES)
    for part in parts:
        said = part.get("type", schema_keywords.TYPES)
        named = {said} if isinstance(said, str) else set(said)
        types &= named | {"integer"} if "number" in named else named
        listed = _values([part])
        if listed is not None:
            types &= set().union(*(schema_keywords.TYPES_OF[type(value)] for value in listed))
    return types


def _values(parts: Parts) -> list[Any] | None:
    """Return the listed values of the first part that lists some; None if none does."""
    for part in parts:
        if "const" in part:
            return [part["const"]]
        if "enum" in part:
            return list(part["enum"])
    return None
