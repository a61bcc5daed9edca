"""Click parameter types of the commands."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class _Model(click.types.StringParamType):
    """A model, as a folder or by its hub id."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return folders, and matching ids of models in the hub's cache."""
        ids = [hub_id for hub_id in ctx.obj.cached_ids() if hub_id.startswith(incomplete)]
        return [CompletionItem(incomplete, type="dir"), *map(CompletionItem, ids)]


MODEL = _Model()


class _Utf8Text(click.types.StringParamType):
    """Text in UTF-8; other bytes from the command line would reach a model as lone surrogates."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError as error:
            self.fail(f"not UTF-8 from character {error.start} on", param, ctx)
        return text


UTF8_TEXT = _Utf8Text()


class NumberRange(click.FloatRange):
    """A number within a range, without NaN, which click accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if math.isnan(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class _Recording(click.Path):
    """A seekable file: a pipe or device might never end."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_file():
            self.fail(f"'{path}' is not a regular file: save its content to one first.", param, ctx)
        return path


RECORDING = _Recording()
