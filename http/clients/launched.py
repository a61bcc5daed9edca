"""Clients that `greenroom launch` starts, each with the settings that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from greenroom.http.clients.server_facts import Launch, ServerFacts

Make = Callable[[ServerFacts, Path, Sequence[str]], Launch]


@attrs.frozen
class LaunchedClient:
    """A client that can be started.

    Args:
        make: Function of the server, the client's own folder and the user's arguments.
        needs: Tokens of context that its instructions, its tools and a first answer take; 0 if any will do.
        takes_self_signed: True if it trusts a server's own certificate that no authority has signed.
    """

    title: str
    program: str
    install: str
    make: Make
    needs: int = 0
    takes_self_signed: bool = True


def _claude(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    # Each of Claude Code's names for a model means this one; without a length it assumes a million tokens.
    models = (
        "MODEL",
        "DEFAULT_OPUS_MODEL",
        "DEFAULT_SONNET_MODEL",
        "DEFAULT_HAIKU_MODEL",
        "SMALL_FAST_MODEL",
    )
    environment = {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": server.key,
        **{f"ANTHROPIC_{name}": server.model for name in models},
        "CLAUDE_CODE_SUBAGENT_MODEL": server.model,
        "CLAUDE_CONFIG_DIR": str(folder),
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(server.tokens),
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(server.tokens),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(server.longest_answer),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "API_TIMEOUT_MS": "3000000",
    }
    if not server.thinks:
        environment["MAX_THINKING_TOKENS"] = "0"
    return Launch(("claude", *arguments), environment, removed=("ANTHROPIC_API_KEY",))


def _codex(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    settings = {
        "model": server.model,
        "model_provider": "greenroom",
        "model_context_window": server.tokens,
        "model_auto_compact_token_limit": server.tokens * 4 // 5,
        "model_reasoning_summary": "auto" if server.thinks else "none",
        "check_for_update_on_startup": False,
    }
    provider = {
        "name": "Greenroom",
        "base_url": server.base,
        "wire_api": "responses",
        "env_key": "GREENROOM_API_KEY",
        "stream_idle_timeout_ms": 3_000_000,
    }
    environment = {"CODEX_HOME": str(folder), "GREENROOM_API_KEY": server.key}
    # As options: Codex writes trusted folders into its config.toml, which must stay.
    options = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    options += [f"model_providers.greenroom.{name}={json.dumps(value)}" for name, value in provider.items()]
    given = [word for option in options for word in ("-c", option)]
    return Launch(("codex", *given, *arguments), environment, removed=("OPENAI_API_KEY", "OPENAI_BASE_URL"))


def _opencode(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    model = {
        "name": server.model,
        "limit": {"context": server.tokens, "output": server.longest_answer},
        "tool_call": server.takes_tools,
        "reasoning": server.thinks,
        "attachment": server.sees,
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Greenroom",
        "options": {"baseURL": server.base, "apiKey": "{env:GREENROOM_API_KEY}"},
        "models": {server.model: model},
    }
    named = f"greenroom/{server.model}"
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "model": named,
        "small_model": named,
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["greenroom"],
        "provider": {"greenroom": provider},
    }
    environment = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "GREENROOM_API_KEY": server.key,
        # It installs its connection to OpenAI's API by npm.
        "npm_config_cache": str(folder / "npm"),
        **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")},
    }
    return Launch(("opencode", *arguments), environment)


def _aider(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    named = f"openai/{server.model}"
    known: Mapping[str, Any] = {
        named: {
            "max_input_tokens": server.tokens,
            "max_output_tokens": server.longest_answer,
            "max_tokens": server.longest_answer,
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
            "litellm_provider": "openai",
            "mode": "chat",
            "supports_vision": server.sees,
        }
    }
    options = {
        "--model": named,
        "--weak-model": named,
        "--editor-model": named,
        "--model-metadata-file": folder / "models.json",
        "--input-history-file": folder / "input.history",
        "--chat-history-file": folder / "chat.history.md",
        "--llm-history-file": folder / "llm.history",
    }
    given = [str(word) for pair in options.items() for word in pair]
    fixed = ("--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-gitignore")
    environment = {
        "OPENAI_API_BASE": server.base,
        "OPENAI_API_KEY": server.key,
        "AIDER_ANALYTICS": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # It keeps files in the home folder, and git's settings come from there.
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": str(Path.home() / ".gitconfig"),
    }
    return Launch(
        ("aider", *given, *fixed, *arguments), environment, {"models.json": json.dumps(known, indent=1)}
    )


def _cn(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    abilities = [
        name for name, has in (("tool_use", server.takes_tools), ("image_input", server.sees)) if has
    ]
    # JSON is YAML, too.
    settings = {
        "name": "Greenroom",
        "version": "1.0.0",
        "schema": "v1",
        "models": [
            {
                "name": server.model,
                "provider": "openai",
                "model": server.model,
                "apiBase": server.base,
                "apiKey": server.key,
                "roles": ["chat", "edit", "apply"],
                "capabilities": abilities,
                "defaultCompletionOptions": {
                    "contextLength": server.tokens,
                    "maxTokens": server.longest_answer,
                },
            }
        ],
    }
    environment = {
        "CONTINUE_GLOBAL_DIR": str(folder),
        "CONTINUE_TELEMETRY_ENABLED": "0",
        "OTEL_SDK_DISABLED": "true",
    }
    command = ("cn", "--config", str(folder / "greenroom.yaml"), *arguments)
    return Launch(command, environment, {"greenroom.yaml": json.dumps(settings, indent=1)})


def _cline(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    data = folder / "data"
    entry = {
        "settings": {
            "provider": "openai-compatible",
            "model": server.model,
            "apiKey": server.key,
            "baseUrl": server.base,
            "reasoning": {"enabled": server.thinks},
        },
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tokenSource": "manual",
    }
    providers = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "providers": {"openai-compatible": entry},
    }
    environment = {
        "CLINE_DIR": str(folder),
        "CLINE_DATA_DIR": str(data),
        "CLINE_TELEMETRY_DISABLED": "1",
        "CLINE_NO_AUTO_UPDATE": "1",
    }
    return Launch(
        ("cline", *arguments), environment, {"data/settings/providers.json": json.dumps(providers, indent=1)}
    )


def _llm(server: ServerFacts, folder: Path, arguments: Sequence[str]) -> Launch:
    model = {
        "model_id": server.model,
        "model_name": server.model,
        "api_base": server.base,
        "api_key_name": "greenroom",
        "supports_tools": server.takes_tools,
        "supports_schema": True,
        "vision": server.sees,
        "reasoning": server.thinks,
    }
    files = {
        "extra-openai-models.yaml": json.dumps([model], indent=1),
        "keys.json": json.dumps({"greenroom": server.key}),
        "default_model.txt": server.model,
    }
    return Launch(("llm", *arguments), {"LLM_USER_PATH": str(folder)}, files)


LAUNCHED: Mapping[str, LaunchedClient] = {
    "claude": LaunchedClient(
        "Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", _claude, 32_000
    ),
    "codex": LaunchedClient(
        "Codex", "codex", "npm install -g @openai/codex", _codex, 32_000, takes_self_signed=False
    ),
    "opencode": LaunchedClient("OpenCode", "opencode", "npm install -g opencode-ai", _opencode, 24_000),
    "aider": LaunchedClient("Aider", "aider", "uv tool install aider-chat", _aider, 8_000),
    "cn": LaunchedClient(
        "Continue", "cn", "npm install -g @continuedev/cli", _cn, 16_000, takes_self_signed=False
    ),
    "cline": LaunchedClient("Cline", "cline", "npm install -g cline", _cline, 24_000),
    "llm": LaunchedClient("llm", "llm", "uv tool install llm", _llm),
}
"""Clients by the name that `greenroom launch` takes."""
