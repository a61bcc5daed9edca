"""The table of commands: their summaries, and the modules that have them."""

from __future__ import annotations

COMMANDS = {
    "serve": "Serve models over HTTP to any client of OpenAI, Anthropic or Ollama.",
    "chat": "Talk to a model in the terminal, or pipe a prompt through it.",
    "setup": "Choose a model, a folder of models, and whether the server starts at login.",
    "speak": "Speak a text into an audio file.",
    "embed": "Print the vectors of texts.",
    "rerank": "Rank documents by how well they answer a query.",
    "transcribe": "Transcribe a recording.",
    "probe": "Find out what a model can do, and remember it.",
    "ps": "List the models and the requests of a running server.",
    "load": "Load a model of a running server.",
    "unload": "Unload a model of a running server.",
    "pin": "Keep a model of a running server in memory.",
    "unpin": "Let a pinned model of a running server be unloaded again.",
    "cancel": "Cancel a request of a running server.",
    "adapters": "List, load and unload the LoRA adapters of a running server.",
    "inspect": "Show the last requests of a server, with their prompts and answers.",
    "audit": "List the requests that a server has answered, refused or lost.",
    "usage": "Sum up the requests and tokens of each key and day.",
    "keys": "Make, list and revoke API keys, without which nobody gets in.",
    "mcp": "List the MCP servers of the settings with their tools, or try one.",
    "launch": "Start a client, such as Claude Code or Codex, on a server of this machine.",
    "connect": "Print the lines that connect a program to a server.",
    "models": "List the models that requests can name.",
    "pull": "Fetch a model of the hub.",
    "search": "Search the hub for models that MLX reads.",
    "rm": "Delete a model's files.",
    "show": "Show what is known about a model, and where its settings come from.",
    "reload": "Have a running server take in changed settings, without a restart.",
    "service": "Run the server in the background, from login on and again after crashes.",
    "hosts": "Examine the machines that share a model, and the links between them.",
    "doctor": "Examine this machine for a server, and say what is wrong.",
    "completion": "Print a script that completes commands, options and models in bash, zsh or fish.",
}

PLACES = {
    **{name: ("answers", name) for name in ("embed", "rerank", "speak", "transcribe")},
    **{name: ("models", f"{name}_command") for name in ("show", "search", "rm", "pull")},
    **{name: ("operate", f"{name}_command") for name in ("inspect", "reload")},
    **{name: ("operate", name) for name in ("load", "unload", "pin", "unpin", "cancel")},
    **{name: ("keys", f"{name}_command") for name in ("audit", "usage")},
    "ps": ("operate", "command"),
    "connect": ("launch", "connect_command"),
}
"""Modules and names of commands that are not `command` of the module of their name."""
