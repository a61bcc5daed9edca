"""The cost budget of all schemas in one request, charged before the work is done."""

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
    """Remaining resources of one request, shared by all its schemas."""

    def __init__(self) -> None:
        self._left = dict(_TOTALS)

    def spend(self, resource: Resource, amount: int, param: object) -> None:
        """Charge an amount of a resource.

        Args:
            resource: Resource to charge.
            amount: Amount to charge; it is charged before the work begins, so it may far exceed the rest.
            param: Path of the schema in the request.

        Raises:
            ProblemError: 400 if the budget is exceeded.
        """
        self._left[resource] -= amount
        if self._left[resource] < 0:
            total = f"{_TOTALS[resource]:,} {resource}"
            detail = (
                f"{param} is too large: a request's schemas and grammars may take at most {total} together"
            )
            raise invalid(detail, str(param), "schema_too_large")
