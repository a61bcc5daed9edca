"""One-line error messages of commands."""

from __future__ import annotations

import click


def print_problem(problem: click.ClickException) -> None:
    """Print an error to stderr on one line."""
    message = " ".join(problem.format_message().split())
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    click.echo(f"greenroom: {message}{hint}", err=True)
