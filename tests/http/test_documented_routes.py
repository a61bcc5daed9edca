"""The reference tables in notes/ agree with the program; `make reference` rewrites them."""

from __future__ import annotations

import re

import pytest

from greenroom.http.command_table import COMMANDS
from greenroom.tests.support.reference.reference_tables import (
    METRICS_HEAD,
    MODELS_HEAD,
    NOTES,
    PAGES,
    PARAMETERS_HEAD,
    ROUTES_HEAD,
    SETTINGS_HEAD,
    documented_routes,
    rewritten,
    served_routes,
)


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_as_make_reference_writes_them(page: str) -> None:
    text = (NOTES / page).read_text(encoding="utf-8")
    assert text == rewritten(text), "run `make reference`"


def test_each_table_is_on_a_page() -> None:
    pages = "".join((NOTES / page).read_text(encoding="utf-8") for page in PAGES)
    for head in (MODELS_HEAD, SETTINGS_HEAD, PARAMETERS_HEAD, METRICS_HEAD, ROUTES_HEAD):
        assert pages.count(head) == 1


def test_the_guide_lists_every_route_and_its_methods() -> None:
    guide = (NOTES / "guide.md").read_text(encoding="utf-8")
    assert documented_routes(guide) == served_routes()
    for path, methods in documented_routes((NOTES / "messages.md").read_text(encoding="utf-8")).items():
        assert methods <= served_routes()[path]


def test_a_new_route_gets_a_row_and_an_old_one_loses_its_own() -> None:
    text = f"{ROUTES_HEAD}| `POST /livez`, `GET /gone` | alive |\n| `GET /gone/too` | old |\n\nMore.\n"
    table, found, rest = rewritten(text).partition("\n\n")
    assert "| `GET /livez` | alive |" in table.splitlines()
    assert "gone" not in table
    assert documented_routes(table) == served_routes()
    assert all(re.fullmatch(r"\| `.+` \| .+ \|", row) for row in table.splitlines()[2:])
    assert (found, rest) == ("\n\n", "More.\n")


def test_the_guide_names_every_command() -> None:
    guide = (NOTES / "guide.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(?:\S+/)?greenroom (\w+)`", guide)) == COMMANDS.keys()
