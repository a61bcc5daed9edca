"""Lines to paste into the settings of other people's clients, for `greenroom connect`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from greenroom.http.clients.launched import LAUNCHED
from greenroom.http.clients.server_facts import ServerFacts

_TEXTS: Mapping[str, tuple[str, str]] = {
    "openai": ("OpenAI's SDKs", "export OPENAI_BASE_URL=$base\nexport OPENAI_API_KEY=$key\n# model: $model"),
    "anthropic": (
        "Anthropic's SDKs",
        "export ANTHROPIC_BASE_URL=$url\nexport ANTHROPIC_API_KEY=$key\n# model: $model",
    ),
    "ollama": (
        "Ollama's SDKs and programs that know only Ollama",
        "export OLLAMA_HOST=$url\n# model: $model",
    ),
    "goose": (
        "goose",
        "export GOOSE_PROVIDER=openai\nexport GOOSE_MODEL=$model\nexport OPENAI_HOST=$url\n"
        "export OPENAI_BASE_PATH=v1/chat/completions\nexport OPENAI_API_KEY=$key\n"
        "export GOOSE_CONTEXT_LIMIT=$context\ngoose session",
    ),
    "open-webui": (
        "Open WebUI",
        "export OPENAI_API_BASE_URL=$base\nexport OPENAI_API_KEY=$key\nexport ENABLE_OLLAMA_API=false\n"
        "# or: Admin Panel / Settings / Connections / OpenAI API / Add: URL $base, key $key\n"
        "# speech: Settings / Audio: engine OpenAI, URL $base\n"
        "# direct connections, from browsers: serve with --allowed-origins and the address of Open WebUI\n"
        "# from a container: host.docker.internal (Podman: host.containers.internal) instead of localhost;\n"
        "#   on Linux serve with --host 0.0.0.0 and a key, docker run with\n"
        "#   --add-host=host.docker.internal:host-gateway",
    ),
    "librechat": (
        "LibreChat",
        "# librechat.yaml\nversion: 1.2.1\nendpoints:\n  custom:\n    - name: Greenroom\n"
        "      apiKey: $key\n      baseURL: $base\n      models:\n        default: [$model]\n"
        "        fetch: true\n      titleConvo: true\n      titleModel: current_model\n"
        "      modelDisplayLabel: Greenroom",
    ),
    "zed": (
        "Zed",
        "// settings.json; the key: agent panel / settings / Greenroom, or GREENROOM_API_KEY\n{\n"
        '  "language_models": {\n    "openai_compatible": {\n      "Greenroom": {\n'
        '        "api_url": "$base",\n        "available_models": [\n          {\n'
        '            "name": "$model",\n            "max_tokens": $context,\n'
        '            "max_output_tokens": $answer,\n            "capabilities": {\n'
        '              "tools": $tools,\n              "images": $images,\n'
        '              "parallel_tool_calls": $tools,\n              "prompt_cache_key": true\n'
        "            }\n          }\n        ]\n      }\n    }\n  },\n"
        '  "agent": { "default_model": { "provider": "Greenroom", "model": "$model" } }\n}',
    ),
    "xcode": (
        "Xcode",
        "# Xcode / Settings / Intelligence / Add a Model Provider\n#   Locally Hosted: port $port\n"
        "#   or Internet Hosted: URL $url, API key $key, API key header x-api-key",
    ),
    "jetbrains": (
        "JetBrains AI Assistant",
        "# Settings / Tools / AI Assistant / Models / Third-party AI providers\n"
        "#   Provider: OpenAI-compatible\n#   URL: $base\n#   API key: $key\n#   Model: $model",
    ),
    "raycast": (
        "Raycast",
        "# ~/.config/raycast/ai/providers.yaml\nproviders:\n  - id: greenroom\n    name: Greenroom\n"
        "    base_url: $base\n    api_keys:\n      greenroom: $key\n    models:\n      - id: $model\n"
        "        name: $model\n        provider: greenroom\n        context: $context\n        abilities:\n"
        "          temperature: { supported: true }\n          vision: { supported: $images }\n"
        "          system_message: { supported: true }\n          tools: { supported: $tools }",
    ),
    "home-assistant": (
        "Home Assistant",
        "# Settings / Devices and services / Add integration / Ollama\n#   URL: $url\n#   Model: $model\n"
        "#   Context window size: $context\n#   Control Home Assistant: $assist\n"
        "# Home Assistant runs elsewhere: serve with --host 0.0.0.0 and a key, or on its own machine",
    ),
    "n8n": (
        "n8n",
        "# Credentials / New / OpenAI\n#   API key: $key\n#   Base URL: $base\n"
        "# Node OpenAI Chat Model: model $model, by expression or from the list",
    ),
    "vscode": (
        "VS Code (Copilot Chat)",
        "// Chat: Manage Language Models / OpenAI Compatible, or settings.json:\n"
        '"github.copilot.chat.customOAIModels": {\n  "$model": {\n    "name": "$model",\n'
        '    "url": "$base/chat/completions",\n    "toolCalling": $tools,\n    "vision": $images,\n'
        '    "thinking": $thinks,\n    "maxInputTokens": $prompt,\n    "maxOutputTokens": $answer,\n'
        '    "requiresAPIKey": true\n  }\n}',
    ),
    "langchain": (
        "LangChain",
        "from langchain_openai import ChatOpenAI\n"
        'ChatOpenAI(model="$model", base_url="$base", api_key="$key")',
    ),
    "litellm": (
        "LiteLLM",
        "model_list:\n  - model_name: $model\n    litellm_params:\n      model: openai/$model\n"
        "      api_base: $base\n      api_key: $key",
    ),
    "llama-index": (
        "LlamaIndex",
        "from llama_index.llms.openai_like import OpenAILike\n"
        'OpenAILike(model="$model", api_base="$base", api_key="$key", context_window=$context,\n'
        "           is_chat_model=True, is_function_calling_model=$python_tools)",
    ),
    "pydantic-ai": (
        "Pydantic AI",
        "from pydantic_ai.models.openai import OpenAIChatModel\n"
        "from pydantic_ai.providers.openai import OpenAIProvider\n"
        'OpenAIChatModel("$model", provider=OpenAIProvider(base_url="$base", api_key="$key"))',
    ),
    "openai-agents": (
        "OpenAI Agents SDK",
        "from agents import set_default_openai_client\nfrom openai import AsyncOpenAI\n"
        'set_default_openai_client(AsyncOpenAI(base_url="$base", api_key="$key"))',
    ),
    "ai-sdk": (
        "Vercel's AI SDK",
        "import { createOpenAICompatible } from '@ai-sdk/openai-compatible'\n"
        "const greenroom = createOpenAICompatible({ name: 'greenroom', baseURL: '$base', apiKey: '$key' })\n"
        "// greenroom('$model')",
    ),
    "cohere": (
        "Cohere's SDK, for reranking",
        'cohere.ClientV2(api_key="$key", base_url="$url").rerank(model="$model", query=..., documents=...)',
    ),
}

_NEEDS = {"goose": 16_000, "zed": 16_000, "xcode": 16_000, "jetbrains": 16_000, "vscode": 24_000}
"""Tokens of context that an agent's own instructions, its tools and a first answer take."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@:+-]*")
"""Ids that mean themselves in a shell, in YAML, JSON and Python; a server may send any other."""


def connected_names() -> dict[str, str]:
    """Return the titles of all clients whose settings are known, by name."""
    launched = {name: client.title for name, client in LAUNCHED.items()}
    return launched | {name: title for name, (title, _) in _TEXTS.items()}


def lines_for(name: str, server: ServerFacts) -> str:
    """Return the lines to paste for a client. Raises ValueError: the model's id has characters that a shell
    or a settings file would interpret.
    """
    if _PLAIN.fullmatch(server.model) is None:
        raise ValueError(f"the id {server.model!r} cannot be pasted as it is: give the model an alias")
    if name in LAUNCHED:
        folder = Path(f"$HOME/.greenroom-{name}")
        lines = LAUNCHED[name].make(server, folder, ()).lines(folder)
        return "\n".join([f"# greenroom launch {name} does this by itself", *lines])
    return Template(_TEXTS[name][1]).substitute(_values(server))


def needed_tokens(name: str) -> int:
    """Return the context length in tokens below which a client cannot work; 0 if any will do."""
    return LAUNCHED[name].needs if name in LAUNCHED else _NEEDS.get(name, 0)


def _values(server: ServerFacts) -> dict[str, str]:
    def truth(value: bool) -> str:
        return "true" if value else "false"

    parts = urlsplit(server.url)
    return {
        "url": server.url,
        "base": server.base,
        "port": str(parts.port or (443 if parts.scheme == "https" else 80)),
        "key": server.key,
        "model": server.model,
        "context": str(server.tokens),
        "answer": str(server.longest_answer),
        "prompt": str(server.tokens - server.longest_answer),
        "tools": truth(server.takes_tools),
        "images": truth(server.sees),
        "thinks": truth(server.thinks),
        "python_tools": str(server.takes_tools),
        "assist": "Assist" if server.takes_tools else "No control",
    }
