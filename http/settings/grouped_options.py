"""Command options in groups by topic."""

from __future__ import annotations

import attrs
import click

from greenroom.schemas.settings.settings import GROUPS


class GroupedCommand(click.Command):
    """A command whose help lists options by group; options that are not settings come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx)) is not None
        }
        for title, classes in GROUPS.items():
            names = [field.name for group in classes for field in attrs.fields(group)]
            if found := [records.pop(name) for name in names if name in records]:
                with formatter.section(title):
                    formatter.write_dl(found)
        with formatter.section("Other options"):
            formatter.write_dl([*records.values()])
