"""A program that speaks MCP well, or badly: `python plain_server.py [FAULT]`.

It starts in a tenth of the seconds that `toy_server.py` takes, which imports the SDK.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOL = {"name": "strike", "description": "Do it.", "inputSchema": {"type": "object", "properties": {}}}
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
TOOLS = [
    {
        "name": "add",
        "description": "Add two whole numbers.",
        "inputSchema": {"type": "object", "properties": NUMBERS, "required": ["a", "b"]},
    },
    *({**TOOL, "name": name} for name in ("repeat", "hang", "die")),
]
FLOOD = b"x" * 65_536


def send(message: dict[str, Any]) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(ident: Any, name: str, arguments: dict[str, Any]) -> None:
    """Answer a call as it should be, never, or by the end of the program."""
    if name == "die":
        os._exit(3)
    if name == "add":
        failed = not arguments.keys() >= NUMBERS.keys()
        text = "a number is missing" if failed else str(arguments["a"] + arguments["b"])
        send({"id": ident, "result": {"content": [{"type": "text", "text": text}], "isError": failed}})


def strike(fault: str, ident: Any) -> None:
    """Answer a call in the manner of a fault."""
    match fault:
        case "line":
            for _ in range(1600):
                sys.stdout.buffer.write(FLOOD)
            sys.stdout.buffer.flush()
        case "lines":
            note = {"jsonrpc": "2.0", "method": "notifications/message"}
            lines = (json.dumps({**note, "params": {"level": "info", "data": "x" * 1000}}) + "\n") * 100
            for _ in range(1000):
                sys.stdout.write(lines)
            sys.stdout.flush()
        case "id":
            send({"id": 99_999, "result": {"content": [{"type": "text", "text": "another's"}]}})
        case "json":
            sys.stdout.write('{"jsonrpc": "2.0", "id": \n{]\nnot json\n')
            sys.stdout.flush()
        case "change":
            TOOL["name"] = "struck"
            send({"method": "notifications/tools/list_changed"})
            send({"id": ident, "result": {"content": [{"type": "text", "text": "changed"}]}})
        case "shape":
            send({"id": ident, "result": {"content": "no list"}})
        case "asks":
            for number, method in enumerate(("sampling/createMessage", "roots/list", "elicitation/create")):
                params: dict[str, Any] = {
                    "message": "?",
                    "requestedSchema": {"type": "object", "properties": {}},
                }
                if method.startswith("sampling"):
                    text = {"role": "user", "content": {"type": "text", "text": "secrets?"}}
                    params = {"messages": [text], "maxTokens": 9}
                send({"id": f"ask{number}", "method": method, "params": params})
            answers = [json.loads(sys.stdin.readline()) for _ in range(3)]
            refused = [answer["error"]["message"] for answer in answers]
            send({"id": ident, "result": {"content": [{"type": "text", "text": json.dumps(refused)}]}})


def main() -> None:
    """Serve until the input ends; a deaf server stays."""
    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    for line in sys.stdin:
        message = json.loads(line)
        ident, method = message.get("id"), message.get("method")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"protocolVersion": version, "capabilities": {"tools": {}}}
            send({"id": ident, "result": {**info, "serverInfo": {"name": "plain", "version": "1"}}})
        elif method == "tools/list" and fault == "list":
            send({"id": ident, "error": {"code": -32603, "message": "the list is lost"}})
        elif method == "tools/list" and not fault:
            send({"id": ident, "result": {"tools": TOOLS}})
        elif method == "tools/call" and not fault:
            answer(ident, message["params"]["name"], message["params"]["arguments"])
        elif method == "tools/list":
            schema = {"type": "wrong", "properties": 3} if fault == "schema" else TOOL["inputSchema"]
            send({"id": ident, "result": {"tools": [{**TOOL, "inputSchema": schema}]}})
        elif method == "tools/call":
            strike(fault, ident)
        elif ident is not None and method is not None:
            send({"id": ident, "error": {"code": -32601, "message": "no such method"}})
    while fault == "deaf":
        import time

        time.sleep(1)


if __name__ == "__main__":
    main()
