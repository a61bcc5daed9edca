"""The command `greenroom completion`: completion scripts for shells."""

from __future__ import annotations

import click

from greenroom.http.process.exit_status import NAME

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GREENROOM_COMPLETE"  # Environment variable by which Click's completion scripts call this program


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and models in a shell.

    `greenroom` must be on the shell's path.

    \b
    Examples:
      echo 'eval "$(greenroom completion bash)"' >> ~/.bashrc
      echo 'eval "$(greenroom completion zsh)"' >> ~/.zshrc    # below compinit
      greenroom completion fish > ~/.config/fish/completions/greenroom.fish
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(context.find_root().command, {}, NAME, VARIABLE).source())
