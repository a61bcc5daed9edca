"""`greenroom mcp`: the servers of the settings and of other clients' files, with their tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from greenroom.http.command_line import greenroom
from greenroom.tests.support.servers.server_processes import run_greenroom

pytest.importorskip("mcp")

PLAIN = Path(__file__).parents[2] / "support/tools/plain_server.py"


def test_servers_of_the_settings_and_of_a_client_are_listed_and_tried(tmp_path: Path) -> None:
    settings, of_client = tmp_path / "settings.toml", tmp_path / "mcp.json"
    settings.write_text('[mcp.gone]\ncommand = "/no/such/program"\n', "utf-8")
    plain = {"command": sys.executable, "args": [str(PLAIN)], "env": {"A": "b"}, "type": "stdio"}
    of_client.write_text(json.dumps({"mcpServers": {"my toy": plain, "off": {"disabled": True}}}), "utf-8")
    options = ["mcp", "--config", str(settings), "--mcp-config", str(of_client)]
    listed = run_greenroom(*options, "list", "--json")
    gone, found = map(json.loads, listed.stdout.splitlines())
    assert (gone["name"], gone["tools"]) == ("gone", [])
    assert "No such file" in gone["error"]
    assert (found["name"], found["error"], found["tools"][0]["name"]) == ("my_toy", None, "add")
    tried = run_greenroom(*options, "try", "my_toy", "add", '{"a": 1, "b": 2}')
    assert (tried.returncode, tried.stdout) == (0, "3\n")
    failed = run_greenroom(*options, "try", "my_toy", "add", '{"a": 1}')
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "a number is missing\n")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[mcp.files]\ntimeout = 3", "mcp.files needs either `command` or `url`"),
        ('[mcp.files]\nurl = "ftp://x"', "url must begin with http:// or https://"),
        ('[mcp."a b"]\ncommand = "x"', "a server's name has letters, digits"),
        ('[mcp.files]\ncommand = "x"\nenv = "secret"', "an entry of env or headers must be NAME=VALUE"),
        ('[mcp.files]\ncomand = "x"', "there is no setting 'comand' of an MCP server"),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, written: str, said: str) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(written, "utf-8")
    refused = CliRunner().invoke(greenroom, ["mcp", "--config", str(settings)])
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "secret" not in refused.stderr
