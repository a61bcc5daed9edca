"""Tools of other people's MCP servers: each compiles, or the answer says what its calls are not held to."""

import os

import openai
import pytest

SERVERS = os.environ["GREENROOM_SERVERS"].split(",")
FEWEST = 200
counted = {}


@pytest.fixture(scope="module")
def client():
    with openai.OpenAI(base_url=f"{os.environ['GREENROOM_URL']}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("server", SERVERS)
def test_tools_compile_or_are_named(client, server):
    asked = {"model": "tools", "input": "Hello", "max_output_tokens": 16}
    listing = client.responses.create(**asked, tools=[{"type": "mcp", "server_label": server}])
    listed = next(item for item in listing.output if item.type == "mcp_list_tools")
    assert listed.error is None
    named = {}
    for tool in listed.tools:
        function = {"type": "function", "name": tool.name, "parameters": tool.input_schema, "strict": False}
        answer = client.responses.with_raw_response.create(**asked, tools=[function], tool_choice="required")
        if notice := answer.headers.get("x-greenroom-notice"):
            named[tool.name] = notice.partition(": ")[2]
    counted[server] = len(listed.tools)
    print(f"\n| {server} | {len(listed.tools)} | {len(listed.tools) - len(named)} | {named or ''} |")


def test_they_are_many():
    assert sum(counted.values()) >= FEWEST, counted
