"""Readers of `clients.toml` and `known_failures.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

HERE = Path(__file__).parent


@attrs.frozen
class Client:
    """A client to test.

    Args:
        file: Name of its test file in `clients/`; versions of a client share one.
        packages: Packages needed besides pytest, each with its version; of node, if the file is JavaScript.
        node_packages: Packages of node whose programs a test file in Python starts.
        servers: Commands of MCP servers by name, which the server under test starts.
        known_failures: Reasons of known failures, by test name.
    """

    name: str
    file: str
    packages: Sequence[str]
    node_packages: Sequence[str] = ()
    servers: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    known_failures: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def runs_on_node(self) -> bool:
        """True if its tests are JavaScript, which node's own test runner runs."""
        return self.file.endswith(".mjs")

    @property
    def is_launched(self) -> bool:
        """True if `greenroom launch` starts it."""
        return self.name.startswith("launch-")


def read_clients(folder: Path = HERE) -> tuple[Client, ...]:
    """Return all clients of the tables in a folder.

    Raises:
        ValueError: A known failure belongs to no listed client.
    """
    clients = tomllib.loads((folder / "clients.toml").read_text())
    failures = tomllib.loads((folder / "known_failures.toml").read_text())
    if unknown := failures.keys() - clients.keys():
        raise ValueError(f"known_failures.toml names no client: {sorted(unknown)}")
    return tuple(
        Client(
            name,
            row["file"],
            row.get("packages", ()),
            row.get("node_packages", ()),
            row.get("servers", {}),
            known_failures=failures.get(name, {}),
        )
        for name, row in clients.items()
    )
