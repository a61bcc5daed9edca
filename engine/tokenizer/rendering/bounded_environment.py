"""Jinja environment of chat templates as in transformers, with the size limits of `budget.py`."""

from __future__ import annotations

from functools import cache, update_wrapper
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from greenroom.engine.tokenizer.rendering.bounded_code import (
    TICK,
    BoundedCode,
    BoundedTemplate,
    count_what_loops_leave_out,
    join_pieces,
    tick_once,
)
from greenroom.engine.tokenizer.rendering.bounded_filters import add_up, bound_filter
from greenroom.engine.tokenizer.rendering.budget import CONTAINERS, TemplateLimitError, current
from greenroom.engine.tokenizer.rendering.growth import format_size, listed, method_size, operator_size

_LOOKING = frozenset({"count", "endswith", "find", "get", "index", "items", "keys", "startswith", "values"})
"""Methods that create no new text or container."""

_CALL = 256
"""Bytes charged for a call's namespace and other overhead."""

_LONGEST_DATE_FORMAT = 1_000
_LONGEST_PARAGRAPH, _MOST_WORDS = 100, 10_000


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with counted operators, filters, methods and loops.

    It renders exactly what the sandbox would, or raises `TemplateLimitError`.
    """

    code_generator_class = BoundedCode
    template_class = BoundedTemplate
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    concat = staticmethod(join_pieces)

    def from_string(self, source: str | nodes.Template, *arguments: Any, **named: Any) -> Template:
        """Return a template, with all its available filters and functions bounded."""
        bound = {name: bound_filter(name, unbound) for name, unbound in self.filters.items()}
        self.filters = {**bound, "sum": bound_filter("sum", add_up), TICK: tick_once}
        self.globals["lipsum"] = _bound_lipsum(self.globals["lipsum"])
        if "strftime_now" in self.globals:
            self.globals["strftime_now"] = _bound_date(self.globals["strftime_now"])
        # A namespace may contain others: its text may be longer than all of them together.
        namespace: Any = self.globals["namespace"]
        self.globals["namespace"] = type("Namespace", (namespace,), {"__repr__": _name_only})
        return super().from_string(source, *arguments, **named)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        count_what_loops_leave_out(template, self)
        return template

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return `left operator right`, charged to the budget.

        Raises:
            TemplateLimitError: The result would be too large.
        """
        if operator != "+":
            current.budget.expect(operator_size(operator, left, right))
        return current.budget.keep(self.binop_table[operator](left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method, a macro or a function, and charge its result to the budget.

        Raises:
            TemplateLimitError: The result would be too large.
        """
        owner = getattr(__obj, "__self__", None)
        if not isinstance(owner, str | bytes | int | dict | list | tuple):
            return _keep_called(super().call(__context, __obj, *args, **kwargs))
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        name = __obj.__name__
        if name in _LOOKING:
            return __obj(*args, **kwargs)
        if name == "join" and args:
            args = (listed(args[0]), *args[1:])
        if size := method_size(owner, name, args, kwargs):
            current.budget.expect(size)
        return current.budget.keep(__obj(*args, **kwargs))

    def wrap_str_format(self, value: Any) -> Any:
        """Return a bounded, sandboxed `format` function if `value` is such a method; else None."""
        unbound = super().wrap_str_format(value)
        if unbound is None:
            return None
        text = value.__self__

        def bounded(*arguments: Any, **named: Any) -> Any:
            current.budget.expect(format_size(text, arguments, named))
            return current.budget.keep(unbound(*arguments, **named))

        return update_wrapper(bounded, unbound)


def _keep_called(value: Any) -> Any:
    budget = current.budget
    budget.make(_CALL)
    return budget.hold(value) if value.__class__ in CONTAINERS else value


def _name_only(self: Any) -> str:
    return "<Namespace>"


def _bound_date(unbound: Any) -> Any:
    def strftime_now(form: str) -> str:
        if len(form) > _LONGEST_DATE_FORMAT:
            raise TemplateLimitError("it writes a date that is too long")
        return str(unbound(form))

    return strftime_now


def _bound_lipsum(unbound: Any) -> Any:
    def lipsum(n: int = 5, html: bool = True, *lengths: int, **named: int) -> Any:
        longest = max((_LONGEST_PARAGRAPH, *lengths, *named.values()))
        if n * longest > _MOST_WORDS:
            raise TemplateLimitError("it makes up a text that is too long")
        return unbound(n, html, *lengths, **named)

    return lipsum


@cache
def bound_templates() -> None:
    """Patch transformers to render chat templates in a bounded environment.

    Imports transformers, so it must be called under the import lock.
    """
    from transformers.utils import chat_template_utils

    if not issubclass(BoundedEnvironment, chat_template_utils.ImmutableSandboxedEnvironment):
        raise ImportError("transformers renders chat templates with something that Greenroom does not know")
    chat_template_utils.ImmutableSandboxedEnvironment = BoundedEnvironment
    chat_template_utils._compile_jinja_template.cache_clear()
