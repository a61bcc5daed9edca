"""What the schemas of one request may cost together, counted before the work is done."""

from __future__ import annotations

from typing import Final, Literal

from greenroom.engine.grammar.cost import limits
from greenroom.schemas.problems import invalid

Resource = Literal["subschemas", "listed values", "characters", "steps of work"]

_TOTALS: Final[dict[Resource, int]] = {
    "subschemas": limits.MAX_NODES,
    "listed values": limits.MAX_VALUES,
    "characters": limits.MAX_CHARACTERS,
    "steps of work": limits.MAX_STEPS,
}


class ConstraintBudget:
    """Counts down; shared by all schemas that one request has compiled."""

    def __init__(self) -> None:
        self._left = dict(_TOTALS)

    def spend(self, resource: Resource, amount: int, param: object) -> None:
        """Spend some of it.

        Args:
            amount: May be far larger than what is left: what multiplies is counted, not done.
            param: Where the request holds the schema.

        Raises:
            ProblemError: 400: there is not as much left.
        """
        self._left[resource] -= amount
        if self._left[resource] < 0:
            total = f"{_TOTALS[resource]:,} {resource}"
            detail = f"{param} is too large: the schemas and grammars of a request may take {total} together"
            raise invalid(detail, str(param), "schema_too_large")
