"""Python code of a template with calls that charge its budget where Jinja has no hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment, Template
from jinja2.nodes import Node
from jinja2.runtime import markup_join
from jinja2.utils import pass_context

from greenroom.engine.tokenizer.rendering.budget import CONTAINERS, Budget, current

TICK = " tick"
"""Name of a filter that no template can use; it counts the elements that a loop tests and skips."""


_SHORT = 256
"""Length in characters below which a text is counted only once it becomes part of another."""

_ESCAPED = 5
"""Largest number of HTML characters that one character is escaped to."""

_NODES_A_STEP = 16
"""Number of expression parts that are evaluated, printed or joined in one step."""


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
        """Write a tuple, or an assignment to several variables."""
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
    """A template that renders each conversation with a new budget."""

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
