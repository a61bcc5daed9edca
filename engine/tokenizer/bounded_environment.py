"""Jinja environment of chat templates as in transformers, with the limits of `template_budget.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, update_wrapper
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment, Template
from jinja2.nodes import Node
from jinja2.runtime import markup_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context

from greenroom.engine.tokenizer.bounded_filters import add_up, bound_filter
from greenroom.engine.tokenizer.template_budget import (
    CONTAINERS,
    Budget,
    TemplateLimitError,
    current,
    format_size,
    listed,
    method_size,
    operator_size,
)

TICK = " tick"
"""Name of a filter that no template can use; it counts the elements that a loop tests and skips."""


_SHORT = 256  # Length in characters below which a text is counted only once it becomes part of another

_ESCAPED = 5  # Largest number of HTML characters that one character is escaped to

_NODES_A_STEP = 16  # Number of expression parts that are evaluated, printed or joined in one step


class BoundedCode(CodeGenerator):
    """Generates a template's code; blocks charge steps on entry, lists and slices their size."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Write a block: the body of a loop, a branch or a macro."""
        if not frame.soft_frame:
            parts = sum(1 for node in nodes for _ in node.find_all(Node))
            self.writeline(f"tick({1 + parts // _NODES_A_STEP})")
        super().blockvisit(nodes, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        """Write a sum or a concatenation of two texts."""
        self.write("add(")
        self.visit(node.left, frame)
        self.write(", ")
        self.visit(node.right, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Write an access by name or index, or a slice."""
        sliced = isinstance(node.arg, nodes.Slice)
        self._write_within("keep(" if sliced else "", super().visit_Getitem, node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._write_within(_holder(node.items), super().visit_List, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        made = node.ctx == "load"
        self._write_within(_holder(node.items) if made else "", super().visit_Tuple, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        values = [part for item in node.items for part in (item.key, item.value)]
        self._write_within(_holder(values), super().visit_Dict, node, frame)

    def _make_finalize(self) -> Any:
        default = self._default_finalize
        return self._FinalizeInfo(lambda value: default(_show(value)), "show(")

    def _write_within(self, opening: str, write: Callable[..., None], node: nodes.Node, frame: Frame) -> None:
        self.write(opening)
        write(node, frame)
        self.write(")" if opening else "")


def _holder(items: Iterable[nodes.Node]) -> str:
    return "" if all(isinstance(item, nodes.Const) for item in items) else "hold("


def count_what_loops_leave_out(template: nodes.Template, environment: Environment) -> None:
    """Make every loop with a condition count the elements that it tests."""
    for loop in template.find_all(nodes.For):
        if loop.test is not None:
            ticking = nodes.Filter(nodes.Const(True), TICK, [], [], None, None)
            test = nodes.And(ticking, loop.test, lineno=loop.lineno)
            test.set_environment(environment)
            loop.test = test


@pass_context
def tick_once(context: Any, value: Any) -> Any:
    """Count one element of a loop."""
    current.budget.step()
    return value


class BoundedTemplate(Template):
    @classmethod
    def _from_namespace(cls, environment: Any, namespace: Any, *others: Any) -> Template:
        namespace.update(
            tick=_tick,
            add=_add,
            show=_show,
            keep=_keep,
            hold=_hold,
            str_join=_join_texts,
            markup_join=_join_marked,
        )
        return super()._from_namespace(environment, namespace, *others)

    def new_context(self, vars: Any = None, *arguments: Any, **named: Any) -> Any:  # noqa: A002
        """Start a rendering with a new budget, and return the context of its variables."""
        current.budget = Budget(vars or {})
        return super().new_context(vars, *arguments, **named)


def join_pieces(pieces: Iterable[str]) -> str:
    """Return the pieces of a block, a macro or the whole template as one text."""
    pieces = pieces if isinstance(pieces, list) else list(pieces)
    size = sum(map(len, pieces))
    if size > _SHORT:
        current.budget.make(size)
    return "".join(pieces)


def _tick(steps: int) -> None:
    budget = current.budget
    budget.steps -= steps
    if budget.steps < 0:
        budget.step(0)


def _add(left: Any, right: Any) -> Any:
    result = left + right
    if result.__class__ is str and len(result) < _SHORT:
        return result
    return current.budget.keep(result)


def _show(value: Any) -> Any:
    """Return a printed value, after counting the text that it is converted to."""
    if value.__class__ is not str and value.__class__ in CONTAINERS:
        budget = current.budget
        budget.make(2 * budget.weigh(value))
    return value


def _keep(value: Any) -> Any:
    current.budget.make(len(value))
    return value


def _hold(value: Any) -> Any:
    return current.budget.hold(value)


def _join_texts(values: Iterable[Any]) -> str:
    pieces = []
    for value in values:
        if value.__class__ is not str:
            value = str(_show(value))
        pieces.append(value)
    return join_pieces(pieces)


def _join_marked(values: Iterable[Any]) -> str:
    budget = current.budget
    values = [_show(value) for value in values]
    budget.expect(_ESCAPED * sum(len(value) for value in values if isinstance(value, str)))
    joined = markup_join(values)
    budget.make(len(joined))
    return joined


_LOOKING = frozenset({"count", "endswith", "find", "get", "index", "items", "keys", "startswith", "values"})
"""Methods that create no new text or container."""

_CALL = 256  # Bytes charged for a call's namespace and other overhead

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
        """Return `left operator right`, charged to the budget. Raises TemplateLimitError: the result would be
        too large.
        """
        if operator != "+":
            current.budget.expect(operator_size(operator, left, right))
        return current.budget.keep(self.binop_table[operator](left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method, a macro or a function, and charge its result to the budget. Raises
        TemplateLimitError: the result would be too large.
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
