"""Settings from a TOML file, `GREENROOM_*` variables and command-line flags; later ones win.

typed-settings reads its sources when its decorator runs, which would let a bad file break `--help`. So flags
are made from the defaults alone, and file and environment are read when the command is invoked.
"""

from __future__ import annotations

import difflib
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
import click
from click.core import ParameterSource
from typed_settings import cli_click, cls_utils, converters, exceptions, loaders
from typed_settings.types import LoadedSettings, OptionList

from greenroom.schemas.settings import Settings, range_of

PREFIX = "GREENROOM_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
_META = "greenroom.settings_file"

F = TypeVar("F", bound=Callable[..., Any])


class BadSettingError(click.ClickException):
    """A setting that cannot be used, told in one line."""

    exit_code = 2


def settings_options(*names: str) -> Callable[[F], F]:
    """Decorator that gives a command flags for the settings `names` and an argument `settings`.

    File and environment set every setting, also those without a flag here.
    """

    def decorate(command: F) -> F:
        with_flags = cli_click.click_options(
            Settings,
            [_read_sources],
            converter=_CONVERTER,
            argname="settings",
            decorator_factory=_Flags(names),
            reload_settings_on_invoke=True,
        )(command)
        return click.option(
            "--config",
            type=click.Path(dir_okay=False, path_type=Path),
            help=f"TOML file with settings [variable: {CONFIG_VARIABLE}; default: {default_file()}].",
            is_eager=True,
            expose_value=False,
            callback=_remember_file,
        )(with_flags)

    return decorate


def default_file() -> Path:
    """Where settings are looked for if no file is named."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base, "greenroom", "settings.toml")


def check(name: str, value: Any) -> Any:
    """The value as the setting's own type.

    Raises:
        ValueError: Says what the value must be.
    """
    attribute = attrs.fields_dict(Settings)[name]
    kind = _TYPES[name]
    try:
        if not _plausible(kind, value):
            raise TypeError
        converted = _CONVERTER.structure(value, kind)
        if attribute.validator is not None:
            attribute.validator(None, attribute, converted)
    except Exception as problem:
        raise ValueError(f"must be {_expected(kind, attribute)}") from problem
    return converted


def _remember_file(context: click.Context, _option: click.Parameter, file: Path | None) -> None:
    context.meta[_META] = file


def _read_sources(settings_cls: type, options: OptionList) -> Iterator[LoadedSettings]:
    context = click.get_current_context(silent=True)
    if context is not None and _META in context.meta:
        yield from _sources(context.meta[_META])


def _sources(file: Path | None) -> Iterator[LoadedSettings]:
    named = file or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    path = named or default_file().expanduser()
    if named or path.is_file():
        yield _checked(_read_file(path), lambda name: f"{path}: {name}")
    yield _checked(loaders.EnvLoader(PREFIX)(Settings, _OPTIONS), lambda name: f"{PREFIX}{name.upper()}")


def _read_file(path: Path) -> LoadedSettings:
    toml = loaders.TomlFormat(section=None)
    try:
        values = {name.replace("-", "_"): value for name, value in toml(path, Settings, _OPTIONS).items()}
    except (exceptions.TsError, OSError, UnicodeDecodeError) as problem:
        raise BadSettingError(f"{path}: {problem}") from problem
    unknown = [name for name in values if name not in _TYPES]
    if unknown:
        raise BadSettingError(f"{path}: {'; '.join(map(_unknown, unknown))}")
    return loaders.DictLoader(values)(Settings, _OPTIONS)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _TYPES, n=1)
    return f"there is no setting '{name}'" + (f" (did you mean '{near[0]}'?)" if near else "")


def _checked(loaded: LoadedSettings, place: Callable[[str], str]) -> LoadedSettings:
    for name, value in loaded.settings.items():
        try:
            check(name, value)
        except ValueError as problem:
            raise BadSettingError(f"{place(name)} = {value!r}: {problem}") from problem
    return loaded


class _Flags:
    """Makes typed-settings' click options for some settings only, each checked as it is read."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def get_option_decorator(self) -> Callable[..., Callable[[F], F]]:
        return self._option

    def get_group_decorator(self, settings_cls: type) -> Callable[[F], F]:
        return lambda command: command

    def _option(self, *declarations: str, callback: Callable[..., Any], **rest: Any) -> Callable[[F], F]:
        name = declarations[0].split("/")[0].removeprefix("--").replace("-", "_")
        if name not in self.names:
            return lambda command: command

        def given(context: click.Context, option: click.Parameter, value: Any) -> Any:
            # typed-settings would let an empty default hide what the file says.
            if context.get_parameter_source(option.name or "") is not ParameterSource.COMMANDLINE:
                return value
            try:
                return callback(context, option, check(name, value))
            except ValueError as problem:
                raise click.BadParameter(str(problem), context, option) from problem

        rest["show_default"] = rest.get("default") not in (None, ())
        rest["help"] += _range_note(name)
        return click.option(*declarations, cls=cli_click.TSOption, callback=given, **rest)


def _range_note(name: str) -> str:
    values = range_of(attrs.fields_dict(Settings)[name])
    return f" [{values}]" if values else ""


def _bare(kind: Any) -> Any:
    """The type without `| None`."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


def _plausible(kind: Any, value: Any) -> bool:
    """Keeps conversion from being generous: 8000.5 is no port and 1 is no host."""
    bare = _bare(kind)
    if bare is int:
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    if bare is float:
        return isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if bare is bool:
        return isinstance(value, (bool, str))
    if get_origin(bare) is tuple:
        return isinstance(value, str) or (
            isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        )
    return isinstance(value, str)


def _expected(kind: Any, attribute: attrs.Attribute[Any]) -> str:
    bare, values = _bare(kind), range_of(attribute)
    if get_origin(bare) is Literal:
        return f"one of {', '.join(get_args(bare))}"
    if get_origin(bare) is tuple:
        return "a list of strings"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[bare]
    return f"{words}, {values}" if values else words


def _make_converter() -> Any:
    converter = converters.get_default_cattrs_converter()
    converters.register_strlist_hook(
        converter, fn=lambda text: [item.strip() for item in text.split(",") if item.strip()]
    )
    return converter


_CONVERTER = _make_converter()
_TYPES: dict[str, Any] = {field.name: field.type for field in attrs.fields(attrs.resolve_types(Settings))}
_OPTIONS: OptionList = cls_utils.deep_options(Settings)
