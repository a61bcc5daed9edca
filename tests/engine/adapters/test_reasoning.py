"""The lines in notes/thinking.md match each template's prompts, for all client settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.tests.support.templates.reasoning_templates import (
    REASONING_TEMPLATES,
    ReasoningTemplate,
    rendered_line,
)

PAGE = Path(__file__).parents[3] / "notes" / "thinking.md"


@pytest.mark.parametrize("template", REASONING_TEMPLATES, ids=lambda template: template.way[:40])
def test_the_page_says_what_is_rendered(tmp_path: Path, template: ReasoningTemplate) -> None:
    assert rendered_line(template, tmp_path / "model") in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_has_no_other_lines() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## What is rendered\n")[2]
    lines = [line for line in section.splitlines() if line.startswith("- ")]
    assert len(lines) == len(REASONING_TEMPLATES)
