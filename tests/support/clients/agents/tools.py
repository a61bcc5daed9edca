"""Tools that coding agents offer: recorded names and schemas, with texts cut to a length."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import attrs
from tokenizers import Tokenizer

from greenroom.tests.support.models.tiny_models import TOKENIZER

Json = dict[str, Any]

TOOL_TOKENS = 4_000
"""Token budget for all tools of one agent, with names, schemas and texts."""

_NOTES = """\
Prefer this tool to a command in the shell that does the same. Paths must be absolute, never relative to the
folder of the project. Several independent calls go into one message, so that they run at the same time. If
the result is longer than thirty thousand characters it is cut, and says so at its end. Ask the user before
anything is done that cannot be undone.
"""


@attrs.frozen
class AgentTool:
    """A tool that an agent offers.

    Args:
        purpose: First sentence of its description.
        properties: JSON Schemas of its arguments.
    """

    name: str
    purpose: str
    properties: Mapping[str, Json]
    required: Sequence[str] = ()

    @property
    def description(self) -> str:
        """Description as long as agents' own ones, before `cut` shortens it."""
        return f"{self.purpose}\n\nUsage notes:\n{_NOTES * 8}"

    @property
    def schema(self) -> Json:
        """JSON Schema of the arguments."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }

    def for_chat(self) -> Json:
        """Return the tool's JSON for OpenAI's chat completions."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}

    def for_responses(self) -> Json:
        """Return the tool's JSON for Responses."""
        parameters = {"description": self.description, "parameters": self.schema}
        return {"type": "function", "name": self.name, "strict": False, **parameters}

    def for_messages(self, **more: Any) -> Json:
        """Return the tool's JSON for Anthropic's messages."""
        return {"name": self.name, "description": self.description, "input_schema": self.schema, **more}


def string(description: str, **more: Any) -> Json:
    """Return the JSON Schema of a string."""
    return {"type": "string", "description": description, **more}


_PATH = string("The absolute path to the file")
_TODO = {
    "type": "object",
    "properties": {
        "content": {"type": "string", "minLength": 1},
        "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
        "activeForm": {"type": "string"},
    },
    "required": ["content", "status"],
}

BASH = AgentTool(
    "Bash",
    "Executes a given bash command and returns its output.",
    {
        "command": string("The command to execute"),
        "timeout": {"type": "number", "description": "Optional timeout in milliseconds (max 600000)"},
        "description": string("Clear, concise description of what this command does"),
        "run_in_background": {"type": "boolean"},
    },
    ("command",),
)
READ = AgentTool(
    "Read",
    "Reads a file from the local filesystem.",
    {"file_path": _PATH, "offset": {"type": "integer", "minimum": 0}, "limit": {"type": "integer"}},
    ("file_path",),
)
EDIT = AgentTool(
    "Edit",
    "Performs exact string replacements in files.",
    {
        "file_path": _PATH,
        "old_string": string("The text to replace"),
        "new_string": string("The text to replace it with"),
        "replace_all": {"type": "boolean", "default": False},
    },
    ("file_path", "old_string", "new_string"),
)
WRITE = AgentTool(
    "Write",
    "Writes a file to the local filesystem.",
    {"file_path": _PATH, "content": string("The content to write")},
    ("file_path", "content"),
)
GLOB = AgentTool(
    "Glob",
    "Fast file pattern matching that works with any codebase size.",
    {"pattern": string("The glob pattern"), "path": string("The directory to search in")},
    ("pattern",),
)
GREP = AgentTool(
    "Grep",
    "A search tool built on ripgrep.",
    {
        "pattern": string("The regular expression to search for"),
        "path": string("File or directory to search in"),
        "output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"]},
        "-n": {"type": "boolean"},
        "head_limit": {"type": "number"},
    },
    ("pattern",),
)
TODO_WRITE = AgentTool(
    "TodoWrite",
    "Creates and manages a structured task list for the current session.",
    {"todos": {"type": "array", "items": _TODO, "description": "The updated todo list"}},
    ("todos",),
)
WEB_FETCH = AgentTool(
    "WebFetch",
    "Fetches content from a specified URL.",
    {"url": {"type": "string", "format": "uri"}, "prompt": string("What to look for on the page")},
    ("url", "prompt"),
)
TASK = AgentTool(
    "Task",
    "Launches a new agent that handles a complex task autonomously.",
    {"description": string("Three to five words"), "prompt": string("The task"), "model": string("Which")},
    ("description", "prompt"),
)
COMMON = (BASH, READ, EDIT, WRITE, GLOB, GREP, TODO_WRITE, WEB_FETCH, TASK)


def further(count: int) -> list[AgentTool]:
    """Return `count` tools, such as servers of the Model Context Protocol offer."""
    nested = {"type": "object", "properties": {"labels": {"type": "array", "items": {"type": "string"}}}}
    return [
        AgentTool(
            f"mcp__tracker__action_{i}",
            f"Does the {i}th thing that the tracker can do.",
            {"id": {"type": ["string", "integer"]}, "filter": nested, "cursor": {"type": ["string", "null"]}},
            ("id",),
        )
        for i in range(count)
    ]


def cut(tools: Sequence[Json], tokens: int = TOOL_TOKENS) -> list[Json]:
    """Return tools with descriptions cut to one common length, so that all fit into `tokens` tokens."""
    short, long = 0, max(len(text) for tool in tools for text in _descriptions(tool))
    while short < long:
        middle = (short + long + 1) // 2
        if _count([_cut(tool, middle) for tool in tools]) <= tokens:
            short = middle
        else:
            long = middle - 1
    return [_cut(tool, short) for tool in tools]


def _cut(tool: Json, length: int) -> Json:
    """Return a tool, or a namespace of tools, with descriptions of at most `length` characters."""
    made = copy.deepcopy(tool)
    for place in _described(made):
        place["description"] = place["description"][:length]
    return made


def _described(tool: Json) -> list[Json]:
    inner = [place for member in tool.get("tools", ()) for place in _described(member)]
    return [place for place in (tool, tool.get("function", {})) if "description" in place] + inner


def _descriptions(tool: Json) -> list[str]:
    return [place["description"] for place in _described(tool)]


def _count(tools: Sequence[Json]) -> int:
    return len(_tokenizer().encode(json.dumps(tools)).ids)


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))
