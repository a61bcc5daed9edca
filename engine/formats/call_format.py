"""The description of a tool-call format: its parser, grammar syntax, template words and an example."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from greenroom.engine.grammar.call_syntax import CallSyntax
from greenroom.engine.parsers.parser import ToolCallParser


@attrs.frozen
class TemplateWords:
    """Words that identify a tool-call format in a chat template.

    Args:
        present: Words that the template must contain.
        absent: Words that it must not contain.
        distinctive: False if templates of other formats have the words too; mlx-lm's detection then comes
            first.
    """

    present: tuple[str, ...]
    absent: tuple[str, ...] = ()
    distinctive: bool = True

    def are_in(self, template: str) -> bool:
        return all(word in template for word in self.present) and not any(
            word in template for word in self.absent
        )


@attrs.frozen
class CallFormat:
    """A format of tool calls.

    Args:
        syntax: Syntax for constrained decoding; None if calls cannot be required or strict.
        example: The call `get_weather(city="Paris", days=2)` as models write it, for tests.
        templates: Words of the templates of models that use the format; the first words that match decide.
        mlx_lm_names: mlx-lm's names of the format, which records may use too.
    """

    parser_id: str
    new_parser: Callable[[], ToolCallParser]
    syntax: CallSyntax | None
    example: str
    templates: tuple[TemplateWords, ...] = attrs.field(default=(), kw_only=True)
    mlx_lm_names: tuple[str, ...] = attrs.field(default=(), kw_only=True)
