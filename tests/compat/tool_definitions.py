"""Tools of other people's MCP servers, really listed, and what calls are held to, as a table to paste.

python -m greenroom.tests.compat.tool_definitions
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import trio

from greenroom.actors.tools.tools import Tools
from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.schemas.events.result_events import ToolsListed
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import CallConstraint, Constraint
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.tools_protocol import ListTools, ToolSource
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer
from greenroom.tests.compat.client_table import Client, read_clients
from greenroom.tests.compat.environments import search_path
from greenroom.tests.support.models.tiny_models import make_tokenizer

FEWEST = 200
NAMED = "Calls are not held to these parts of schemas: "
# Without a browser, a cluster or an account no call of theirs would work.
OTHERS = Client(
    "mcp-tools",
    "",
    (),
    (
        *("@playwright/mcp@0.0.83", "chrome-devtools-mcp@1.11.0", "firecrawl-mcp@3.26.0"),
        *("@notionhq/notion-mcp-server@2.5.2", "@modelcontextprotocol/server-github@2025.4.8"),
        *("@modelcontextprotocol/server-gitlab@2025.4.25", "mcp-server-kubernetes@4.1.7"),
        *("@antv/mcp-server-chart@0.9.10", "mongodb-mcp-server@3.0.4"),
    ),
    {
        "playwright": ["playwright-mcp"],
        "chrome-devtools": ["chrome-devtools-mcp"],
        "firecrawl": ["env", "FIRECRAWL_API_KEY=none", "firecrawl-mcp"],
        "notion": ["env", "NOTION_TOKEN=none", "notion-mcp-server"],
        "github": ["mcp-server-github"],
        "gitlab": ["env", "GITLAB_PERSONAL_ACCESS_TOKEN=none", "mcp-server-gitlab"],
        "kubernetes": ["mcp-server-kubernetes"],
        "chart": ["mcp-server-chart"],
        "mongodb": ["mongodb-mcp-server"],
    },
)


async def list_all(clients: Sequence[Client]) -> list[ToolsListed]:
    """List the tools of all servers through the tools actor, one server after another."""
    lists = []
    async with trio.open_nursery() as nursery:
        actor = Tools(Settings())
        nursery.start_soon(actor.run)
        for client in clients:
            for name, (program, *arguments) in client.servers.items():
                source = ToolSource(name, ToolServer(program, tuple(arguments), timeout=120), name)
                listed = await actor.ref.ask(ListTools(source), ToolsListed)
                assert isinstance(listed, ToolsListed)
                lists.append(listed)
        nursery.cancel_scope.cancel("all are listed")
    return lists


def held_by(compiler: GrammarCompiler, tool: Tool, call_format: str) -> str:
    """Describe the parts of a tool's schema that calls in a format need not match; empty for none."""
    calls = CallConstraint((tool,), ToolChoice("required"), call_format)
    try:
        matcher = compiler.compile(Constraint(calls=calls))
    except ProblemError as error:
        return f"refused: {error.problem.detail}"
    assert matcher is not None
    return matcher.constraint.notice.removeprefix(NAMED)


def main() -> None:
    """Print the table; exit with 1 if a server is not listed, or if there are too few tools."""
    clients = [*(client for client in read_clients() if client.servers), OTHERS]
    for client in clients:
        os.environ["PATH"] += os.pathsep + search_path(client, "")
    lists = trio.run(list_all, clients)
    with tempfile.TemporaryDirectory() as scratch:
        from tokenizers import Tokenizer

        make_tokenizer(Path(scratch))
        tokenizer = GrammarTokenizer(Tokenizer.from_file(f"{scratch}/tokenizer.json"), [0])
    compiler = GrammarCompiler(tokenizer, CALL_SYNTAXES)
    click.echo(
        "| server | tools | held to their whole schemas | not held to, and in how many formats of calls |"
    )
    click.echo("|---|---|---|---|")
    for listed in lists:
        named = Counter(
            (tool.name, what)
            for tool in listed.tools
            for call_format in CALL_SYNTAXES
            if (what := held_by(compiler, tool, call_format))
        )
        whole = len(listed.tools) - len({name for name, _ in named})
        told = "; ".join(f"{name}: {what} ({count})" for (name, what), count in named.items())
        click.echo(f"| {listed.server} | {len(listed.tools)} | {whole} | {listed.error or told} |")
    total = sum(len(listed.tools) for listed in lists)
    click.echo(f"{total} tools, {len(CALL_SYNTAXES)} formats of calls")
    sys.exit(1 if total < FEWEST or any(listed.error for listed in lists) else 0)


if __name__ == "__main__":
    main()
