"""The choice between models, as a table that the notes show."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from greenroom.actors.pool.model_choice import Candidate, Decision, decide
from greenroom.schemas.settings.remotes import Preference, Route

NOTES = Path(__file__).resolve().parents[3] / "notes" / "models-elsewhere.md"
HERE = Candidate("small", loaded=True)
STUDIO = Candidate("studio/big", "studio", 1.0, loaded=True)
CLOUD = Candidate("cloud/huge", "cloud", 5.0, wait=0.0)


@attrs.frozen
class Wish:
    """The rule of a route, and what is known of the request."""

    prefer: Preference = "order"
    max_wait: float | None = None
    stays: str = ""
    tried: tuple[str, ...] = ()

    def decide(self, candidates: tuple[Candidate, ...]) -> Decision:
        return decide(candidates, Route((), self.prefer, self.max_wait), self.stays, self.tried)


CASES: dict[str, tuple[tuple[Candidate, ...], Wish]] = {
    "all can answer": ((HERE, STUDIO, CLOUD), Wish()),
    "the local queue is longer than `max_wait`": (
        (attrs.evolve(HERE, wait=9.0, full=True), STUDIO, CLOUD),
        Wish(max_wait=5.0),
    ),
    "the local queue is shorter than that": (
        (attrs.evolve(HERE, wait=3.0, full=True), STUDIO, CLOUD),
        Wish(max_wait=5.0),
    ),
    "the local model is full, and nothing is known of its speed": (
        (attrs.evolve(HERE, wait=None, full=True), STUDIO),
        Wish(max_wait=5.0),
    ),
    "all queues are too long": (
        (attrs.evolve(HERE, wait=9.0, full=True), attrs.evolve(STUDIO, wait=None, full=True)),
        Wish(max_wait=5.0),
    ),
    "the breaker of the first is open": ((attrs.evolve(STUDIO, fault="is away (status 500)"), HERE), Wish()),
    "the local model fails too often": (
        (attrs.evolve(HERE, fault="cannot answer (load_failed)"), STUDIO),
        Wish(),
    ),
    "the first has failed for this request": ((STUDIO, HERE), Wish(tried=("studio/big",))),
    "all have failed for this request": ((STUDIO, HERE), Wish(tried=("studio/big", "small"))),
    "the key is for this machine alone": (
        (STUDIO, HERE),
        Wish(stays="its API key keeps requests on this machine"),
    ),
    "it has come from another Greenroom": (
        (STUDIO, CLOUD),
        Wish(stays="the request has come from another Greenroom"),
    ),
    '`prefer = "cheapest"`': ((CLOUD, STUDIO), Wish("cheapest")),
    '`prefer = "loaded"`, and the first is not': ((attrs.evolve(HERE, loaded=False), STUDIO), Wish("loaded")),
    '`prefer = "loaded"`, and the loaded one is full': (
        (attrs.evolve(HERE, wait=None, full=True), STUDIO),
        Wish("loaded"),
    ),
    "the cheapest is away": ((CLOUD, attrs.evolve(STUDIO, fault="is away (status 500)")), Wish("cheapest")),
}


def table() -> str:
    """Return the decisions as a table in Markdown."""
    rows = ["| when | is asked, in this order | is not asked |", "|---|---|---|"]
    for name, (candidates, wish) in CASES.items():
        decision = wish.decide(candidates)
        order = "; ".join(f"**{model}** {why}" for model, why in decision.order)
        left_out = "; ".join(f"**{model}** {why}" for model, why in decision.left_out)
        rows.append(f"| {name} | {order} | {left_out} |")
    return "\n".join(rows)


def test_the_notes_show_the_decisions_as_they_are() -> None:
    shown = re.search(r"<!-- decisions -->\n(.*?)\n<!-- end -->", NOTES.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == table()


@pytest.mark.parametrize("name", CASES)
def test_every_model_is_named_once_with_a_reason(name: str) -> None:
    candidates, wish = CASES[name]
    decision = wish.decide(candidates)
    named = [*decision.order, *decision.left_out]
    assert sorted(model for model, _ in named) == sorted(each.model for each in candidates)
    assert all(why for _, why in named)
    assert wish.decide(candidates) == decision
