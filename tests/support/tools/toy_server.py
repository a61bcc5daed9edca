"""An MCP server of the SDK for tests: `python toy_server.py [PORT]`, on its streams or over HTTP."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

toy = MCPServer("toy")


@toy.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@toy.tool()
def surroundings(context: Context) -> dict[str, Any]:
    """Return the environment and the folder of this program, and what its caller tells of the call."""
    told = {**(context.request_context.meta or {})}
    return {"environment": dict(os.environ), "folder": str(Path.cwd()), "files": os.listdir(), "meta": told}


@toy.tool()
def weather(city: str) -> str:
    """Return the weather of a city."""
    script = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    return f"Rain in {city}. {script} \u202e\x1b]0;x\x07"


@toy.tool()
def picture() -> Image:
    """Return a white square."""
    import io

    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.new("RGB", (32, 32), "white").save(file, "PNG")
    return Image(data=file.getvalue(), format="png")


@toy.tool()
def repeat(text: str, times: int) -> str:
    """Return a text many times."""
    return text * times


@toy.tool()
async def hang() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return ""


@toy.tool()
def die() -> str:
    """End the program amid the call."""
    os._exit(3)


@toy.tool()
async def grow(context: Context) -> str:
    """Add a tool, and tell so."""

    def grown() -> str:
        return "new"

    toy.add_tool(grown, name="grown")
    await context.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        toy.run("streamable-http", port=int(sys.argv[1]))
    else:
        toy.run("stdio")
