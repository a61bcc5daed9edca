"""A format of tool calls: the one place that knows how models write them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from greenroom.engine.grammar.calls.call_syntax import CallSyntax
from greenroom.engine.parsers.tool_call_parser import ToolCallParser


@attrs.frozen
class TemplateWords:
    """Words by which a chat template shows a format.

    Args:
        present: Words that the template contains.
        absent: Words that it does not contain.
        distinctive: False if other formats' templates have the words too, so that mlx-lm's inference is asked
            first.
    """

    present: tuple[str, ...]
    absent: tuple[str, ...] = ()
    distinctive: bool = True

    def are_in(self, template: str) -> bool:
        """Return whether a template shows the format."""
        return all(word in template for word in self.present) and not any(
            word in template for word in self.absent
        )


@attrs.frozen
class CallFormat:
    """A format of tool calls.

    Args:
        parser_id: Name in capability records (document 000, section 5.2).
        new_parser: Factory of the parser, which has the markers and reads and renders calls.
        syntax: Syntax to which a grammar holds calls; None if calls cannot be required or strict.
        example: The call `get_weather(city="Paris", days=2)` as models write it, on which tests are based.
        templates: Words of the templates of models that use the format; the first words that match decide.
        mlx_lm_names: mlx-lm's names of the format, which records may use too.
    """

    parser_id: str
    new_parser: Callable[[], ToolCallParser]
    syntax: CallSyntax | None
    example: str
    templates: tuple[TemplateWords, ...] = attrs.field(default=(), kw_only=True)
    mlx_lm_names: tuple[str, ...] = attrs.field(default=(), kw_only=True)
