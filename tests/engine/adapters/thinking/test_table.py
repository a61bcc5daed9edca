"""The table in notes/thinking.md matches each template's prompts, for all client requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.tests.support.templates.thinking_templates import (
    SETTINGS,
    THINKING_TEMPLATES,
    ThinkingTemplate,
    table_row,
)

PAGE = Path(__file__).parents[4] / "notes" / "thinking.md"


@pytest.mark.parametrize("template", THINKING_TEMPLATES, ids=lambda template: template.way[:40])
def test_the_page_says_what_is_rendered(tmp_path: Path, template: ThinkingTemplate) -> None:
    assert table_row(template, tmp_path / "model") in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_table_has_no_other_rows() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("| what the template has |"))
    assert lines[head] == f"| what the template has | {' | '.join(SETTINGS)} |"
    rows = [line for line in lines[head + 2 :] if line.startswith("|")]
    assert len(rows) == len(THINKING_TEMPLATES)
