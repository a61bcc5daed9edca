"""Option groups of `greenroom serve --help`."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import attrs
from click.testing import CliRunner

from greenroom.http.command_line import EngineModels
from greenroom.http.commands.serve import FLAGS, command
from greenroom.schemas.settings.settings import GROUPS


def test_every_flag_of_serve_stands_in_one_group() -> None:
    groups = chain.from_iterable(GROUPS.values())
    grouped = Counter(field.name for group in groups for field in attrs.fields(group))
    assert set(grouped) == {*FLAGS, "models"}
    assert set(grouped.values()) == {1}


def test_the_help_lists_the_groups_and_shows_sizes_as_people_write_them() -> None:
    shown = CliRunner().invoke(command, ["--help"], obj=EngineModels(), terminal_width=100).output
    titles = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":") and line[0].isupper()]
    assert [title for title in titles if title in GROUPS] == list(GROUPS)
    assert "default: 1GiB" in shown
    assert "--config" in shown[shown.index("Other options:") :]
