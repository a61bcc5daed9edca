"""Conversations under real chat templates: those of installed packages and this project's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.tests.support.templates.chat_tokenizers import TEMPLATES
from greenroom.tests.support.templates.real_templates import packaged_templates
from greenroom.tests.support.templates.template_table import documented_cells, try_template

ROOT = Path(__file__).resolve().parents[4]
OWN = ROOT / "tests" / "support" / "templates" / "chat_templates"
PACKAGED = packaged_templates()


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_template_does_what_the_table_says(name: str, tmp_path: Path) -> None:
    import_text_libraries()
    row = try_template(name, PACKAGED[name], tmp_path)
    assert row.faults == ()
    page = (ROOT / "tests/support/templates/parsers_of_templates.md").read_text(encoding="utf-8")
    assert row.cells() == documented_cells(page)[name]


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "strict_system"])
def test_no_conversation_is_lost_in_a_template_of_ours(name: str, tmp_path: Path) -> None:
    import_text_libraries()
    template = (OWN / f"{name}.jinja").read_text(encoding="utf-8")
    assert try_template(name, template, tmp_path).faults == ()
