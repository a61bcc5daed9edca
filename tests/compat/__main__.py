"""`make compat`: run other projects' clients against a real server of the built-in model.

python -m greenroom.tests.compat --only openai-2 --only ollama
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from greenroom.engine.catalog.folders import DEMO_FOLDER, DEMO_ID
from greenroom.tests.compat.client_table import HERE, Client, read_clients
from greenroom.tests.compat.environments import command_of, search_path
from greenroom.tests.compat.served_model import served_model
from greenroom.tests.compat.verdict import Verdict, read_verdict
from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder
from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub
from greenroom.tests.support.servers.server_processes import GREENROOM

SUITES = HERE / "clients"
LONGEST = 1_200
"""Time limit of one client's tests, in seconds."""


@click.command()
@click.option("--only", multiple=True, help="A client of clients.toml; default: all.")
@click.option("--url", help="A server that runs already, without /v1.")
@click.option("--select", default="", help="Only tests whose names match, as pytest's -k has it.")
def main(only: tuple[str, ...], url: str | None, select: str) -> None:
    """Run every client's tests; exit with 1 if one failed that is not known to fail."""
    clients = [client for client in read_clients() if not only or client.name in only]
    if missing := set(only) - {client.name for client in clients}:
        raise click.BadParameter(f"clients.toml has no {', '.join(sorted(missing))}.")
    with tempfile.TemporaryDirectory(prefix="greenroom-compat-") as scratch:
        folder = Path(scratch)
        if url is not None:
            verdicts = _try_all(clients, url, select, folder)
        else:
            ranks = make_tiny_encoder("bert-rerank", folder / "bert-rerank")
            models = (DEMO_ID, str(ranks), *_agents(clients, folder), *_tool_users(clients, folder))
            with (
                _open_hub(folder) as hub,
                served_model(
                    folder / "server.log",
                    "--db",
                    ":memory:",
                    *_tool_servers(clients, folder),
                    *models,
                    variables={
                        **_programs(clients),
                        "HF_ENDPOINT": hub.address,
                        "HF_HUB_CACHE": str(folder / "hub"),
                    },
                ) as address,
            ):
                verdicts = _try_all(clients, address, select, folder)
            _show_errors(folder / "server.log")
    click.echo(table(clients, verdicts))
    sys.exit(0 if all(verdict.good for verdict in verdicts) else 1)


@contextmanager
def _open_hub(scratch: Path) -> Iterator[Hub]:
    """Run a hub with a model that can be fetched, and one whose transfer stands still half-way."""
    folder = make_tiny_model("qwen3", scratch / "chat", _make_tokenizer(scratch))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    weights = "model.safetensors"
    with open_hub({"org/chat": files, "org/slow": {**files, weights: files[weights][::-1]}}) as hub:
        hub.faults[f"org/slow/{weights}"] = Fault(len(files[weights]) // 2, "hold", times=1_000)
        yield hub


def _make_tokenizer(scratch: Path) -> Path:
    folder = scratch / "tokenizer"
    folder.mkdir(exist_ok=True)
    make_tokenizer(folder)
    return folder


def _agents(clients: Sequence[Client], scratch: Path) -> list[str]:
    """Return the models for clients of `greenroom launch`: one whose context holds an agent's prompt."""
    if not any(client.is_launched for client in clients):
        return []
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    sizes = {"max_position_embeddings": 131_072, "num_hidden_layers": 1, **heads}
    return [str(make_tiny_model("qwen3", scratch / "agent", _make_tokenizer(scratch), **sizes))]


def _tool_users(clients: Sequence[Client], scratch: Path) -> list[str]:
    """Return the built-in model with more context, for the definitions of tools."""
    if not any(client.servers for client in clients):
        return []
    folder = shutil.copytree(DEMO_FOLDER, scratch / "tools")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131_072}))
    return [str(folder)]


def _tool_servers(clients: Sequence[Client], scratch: Path) -> list[str]:
    """Return options with a file of settings that names the servers of all clients."""
    servers = {name: command for client in clients for name, command in client.servers.items()}
    lines = [
        f"[mcp.{name}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\ntimeout = 120"
        for name, (program, *arguments) in servers.items()
    ]
    file = scratch / "servers.toml"
    file.write_text("\n".join(lines))
    return ["--config", str(file)] if servers else []


def _programs(clients: Sequence[Client]) -> dict[str, str]:
    """Return a PATH with the programs of all servers, which are installed if needed."""
    path = os.environ["PATH"]
    for client in clients:
        if client.servers:
            path = os.pathsep.join([path, search_path(client, "")])
    return {"PATH": path}


def _try_all(clients: Sequence[Client], address: str, select: str, folder: Path) -> list[Verdict]:
    return [_try(client, address, select, folder) for client in clients]


def _try(client: Client, address: str, select: str, folder: Path) -> Verdict:
    click.echo(f"{client.name} ...")
    report = folder / f"{client.name}.xml"
    command = command_of(client, SUITES, report, select)
    log = folder / f"{client.name}.log"
    with log.open("w") as output:
        try:
            subprocess.run(
                command,
                stdout=output,
                stderr=output,
                env=_surroundings(client, address),
                timeout=LONGEST,
                check=False,
            )
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
    if not report.exists():
        click.echo(log.read_text())
        return Verdict({}, ended=False)
    verdict = read_verdict(report.read_text(), {} if select else client.known_failures, ended=ended)
    for name in verdict.unexpected:
        click.echo(f"  failed: {name}: {verdict.details[name]}")
    if verdict.unexpected and client.is_launched:
        click.echo(log.read_text()[-20_000:])  # what the client printed
    for name in verdict.outdated:
        click.echo(f"  no failure any more: {name}")
    return verdict


def _surroundings(client: Client, address: str) -> dict[str, str]:
    """Return an environment without the caller's API keys, proxies and tracing."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    silent = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "DO_NOT_TRACK": "1"}
    own = {"GREENROOM_URL": address, "GREENROOM_CLIENT": client.name}
    if client.is_launched:
        own |= {
            "PATH": search_path(client, os.environ["PATH"]),
            "GREENROOM_COMMAND": shlex.join(GREENROOM),
            "GREENROOM_PATH": os.environ.get("PYTHONPATH", ""),
        }
    return {**kept, **silent, **own}


def _show_errors(log: Path) -> None:
    lines = [
        line for line in log.read_text().splitlines() if '"level": "error"' in line or "Traceback" in line
    ]
    for line in lines:
        click.echo(f"  the server logged: {line[:1_000]}")


def table(clients: Sequence[Client], verdicts: Sequence[Verdict]) -> str:
    """Return the results as a table in Markdown."""
    rows = ["| client | versions | passed | known failures | skipped | failed |", "|---|---|---|---|---|---|"]
    for client, verdict in zip(clients, verdicts, strict=True):
        failed = len(verdict.unexpected)
        known = verdict.count("failed") - failed
        counts = (verdict.count("passed"), known, verdict.count("skipped"), failed)
        shown = "did not end" if not verdict.ended else " | ".join(map(str, counts))
        rows.append(f"| {client.name} | {', '.join((*client.packages, *client.node_packages))} | {shown} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
