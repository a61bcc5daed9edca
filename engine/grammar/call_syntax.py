"""The syntax of a format's tool calls, from which the grammar of a request is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


Body: TypeAlias = "Callable[[GrammarBuilder, tuple[ConstrainedTool, ...], bool], str]"
"""Builder of the expression behind a marker, up to and including the end of a call.

Its last argument is True if the block may hold several calls.
"""


@attrs.frozen
class CallSyntax:
    """The syntax of a format's tool calls.

    Args:
        triggers: Start markers of a call, each with the body behind it; a required call uses the first. An
            empty marker means that a call is a whole answer and starts at once.
        single_block: True if all calls of an answer follow one marker, with nothing after them.
        lead: Optional text before the marker at the start of an answer.
        plain: Terminal of an answer without calls, where no marker separates the two.
        behind_plain: Text between such an answer and the calls behind it; empty if none may follow.
    """

    triggers: tuple[tuple[str, Body], ...]
    single_block: bool = False
    lead: str = ""
    plain: str = ""
    behind_plain: str = ""


def no_call(starts: str, *markers: str) -> str:
    inside = "|".join(re.escape(marker) for marker in markers)
    return rf"/[ \n\r\t]*[^{re.escape(starts)} \n\r\t](?s:.*)/ & ~/(?s:.*)(?:{inside})(?s:.*)/"


def single_trigger(trigger: str, body: Body, single_block: bool = False) -> CallSyntax:
    """Return the syntax of calls that start with one marker only."""
    return CallSyntax(((trigger, body),), single_block)


_INDEX = "/[0-9]{1,3}/"


def call_head(text: GrammarBuilder, head: str, name: str) -> str:
    """Return the expression of a call's head. `head`: template of the head; `{}` is the name, `{index}` the
    number of the call.
    """
    before, numbered, after = head.format(name, index="\0").partition("\0")
    written = text.fixed_text(before)
    return f"{written} {text.terminal(_INDEX)} {text.fixed_text(after)}" if numbered else written
