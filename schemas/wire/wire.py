"""Structuring of wire types for every protocol: strict about types, lenient about unknown fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn
from cattrs.v import transform_error

from greenroom.schemas.problems import Problem, ProblemError, invalid

T = TypeVar("T")

_LARGEST_INTEGER = 2**53
"""The largest number with an exact JSON representation; larger ones could overflow later."""


@attrs.frozen
class AtMost:
    """The maximum length of an array on the wire: `Annotated[tuple[Item, ...], AtMost(100)]`."""

    items: int


class WireError(ValueError):
    """An invalid value on the wire; the client sees the error's text."""


def json_type(value: Any) -> str:
    """Return the name of a value's JSON type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case _:
            return "an array"


def wrong_type(expected: str, value: Any) -> WireError:
    return WireError(f"must be {expected}, but is {json_type(value)}")


def one_of(choices: tuple[str, ...], value: Any) -> str:
    """Return the value if it is one of the choices.

    Raises:
        WireError: The value is not among the choices, which the text lists.
    """
    if not isinstance(value, str) or value not in choices:
        raise WireError(f"must be one of {', '.join(map(repr, choices))}")
    return value


def _string(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type("a string", value)
    return value


def _boolean(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong_type("a boolean", value)
    return value


def _integer(value: Any, _: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type("an integer", value)
    if abs(value) > _LARGEST_INTEGER:
        raise WireError("is too large")
    return value


def _number(value: Any, _: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type("a number", value)
    if abs(value) > _LARGEST_INTEGER:
        raise WireError("is too large")
    return float(value)


def _object(value: Any, _: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong_type("an object", value)
    return value


def _array_hook(kind: Any, converter: cattrs.BaseConverter) -> Callable[[Any, Any], tuple[Any, ...]]:
    item_kind = get_args(kind)[0]
    structure_item = converter.get_structure_hook(item_kind)

    def array(value: Any, _: Any) -> tuple[Any, ...]:
        # cattrs would accept any iterable, such as a string's characters or an object's keys.
        if not isinstance(value, list):
            raise wrong_type("an array", value)
        items = []
        for index, item in enumerate(value):
            try:
                items.append(structure_item(item, item_kind))
            except Exception as error:
                # cattrs would continue and collect an error with a traceback for each of a million items.
                error.__notes__ = [IterableValidationNote("", index, item_kind)]
                raise IterableValidationError("", [error], kind) from None
        return tuple(items)

    return array


def _bounded_array_hook(kind: Any, converter: cattrs.BaseConverter) -> Callable[[Any, Any], tuple[Any, ...]]:
    array_kind, bound = get_args(kind)
    structure_array = converter.get_structure_hook(array_kind)

    def bounded_array(value: Any, _: Any) -> tuple[Any, ...]:
        if isinstance(value, list) and len(value) > bound.items:
            raise WireError(f"has {len(value)} items, but must have at most {bound.items}")
        items: tuple[Any, ...] = structure_array(value, array_kind)
        return items

    return bounded_array


def _class_hook(kind: type[Any], converter: cattrs.BaseConverter) -> Callable[[Any, Any], Any]:
    from_fields = make_dict_structure_fn(kind, converter)

    def instance(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong_type("an object", value)
        return from_fields(value, kind)

    return instance


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_dict(kind: Any) -> bool:
    return get_origin(kind) is dict


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _is_bounded(kind: Any) -> bool:
    return get_origin(kind) is Annotated and any(isinstance(bound, AtMost) for bound in get_args(kind)[1:])


class StrictConverter(cattrs.Converter):
    """A converter for bodies of which no field is ignored."""


def make_wire_converter(kind: type[cattrs.Converter] = cattrs.Converter) -> cattrs.Converter:
    """Return a converter for one protocol; its wire types register their unions on it.

    JSON types are distinct (a boolean is not a number, a string is not an array), unknown fields are ignored,
    errors contain their path, and the first invalid item of an array ends its conversion.
    """
    converter = kind()
    converter.register_structure_hook(str, _string)
    converter.register_structure_hook(bool, _boolean)
    converter.register_structure_hook(int, _integer)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(_is_literal, lambda value, kind: one_of(get_args(kind), value))
    converter.register_structure_hook_func(_is_dict, _object)
    converter.register_structure_hook_factory(_is_tuple, _array_hook)
    converter.register_structure_hook_factory(_is_bounded, _bounded_array_hook)
    converter.register_structure_hook_factory(attrs.has, _class_hook)
    return converter


def structure(body: Any, wire_type: type[T], converter: cattrs.Converter) -> T:
    """Convert a decoded JSON body to a wire type.

    Args:
        converter: Converter of the protocol (`make_wire_converter`).

    Raises:
        ProblemError: 400 that names the first invalid field (`messages[0].role`).
    """
    if not isinstance(body, dict):
        raise ProblemError(
            Problem(400, "invalid_type", f"The body must be a JSON object, but is {json_type(body)}.")
        )
    if isinstance(converter, StrictConverter):
        _refuse_unknown(body, tuple(wire_type.__annotations__))
    try:
        return converter.structure(body, wire_type)
    except (cattrs.BaseValidationError, ValueError, TypeError, KeyError) as error:
        described = transform_error(error, path="", format_exception=_describe)
        raise ProblemError(_problem(described[0])) from None


def _refuse_unknown(body: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in body:
        if name not in known:
            raise invalid(f"`{name[:100]}` is no field of this body, which has {', '.join(known)}.", name)


def _describe(error: BaseException, _: type[Any] | None) -> str:
    if isinstance(error, WireError):
        return str(error)
    if isinstance(error, KeyError):
        return "is required"
    return "is not of the type that it must be"


def _problem(described: str) -> Problem:
    complaint, _, path = described.rpartition(" @ ")
    field = path.lstrip(".")
    code = "missing_required_parameter" if complaint == "is required" else "invalid_value"
    return Problem(400, code, f"`{field}` {complaint}.", field)
