"""Servers of tools, really started: their tools on every protocol, asked for by the official clients."""

import os

import anthropic
import openai
import pytest

URL = os.environ["GREENROOM_URL"]
SERVER = os.environ["GREENROOM_CLIENT"].removeprefix("mcp-")
MODEL = "tools"
CASES = {
    "everything": ("get-sum", "What is 2 plus 3?", "The sum of"),
    "filesystem": ("list_allowed_directories", "Which folders are there?", "Allowed directories"),
    "memory": ("search_nodes", "Search for nodes with 'tide'.", "entities"),
    # Tokens drawn at random close its texts; some are no thoughts that it takes.
    "sequential-thinking": ("sequentialthinking", "What is 2 plus 3?", "hought"),
    "time": ("get_current_time", "What is the time in UTC?", "day_of_week"),
    "fetch": ("fetch", "Fetch http://127.0.0.1:1/", "Error executing tool fetch"),
}
TOOL, QUESTION, SAID = CASES[SERVER]
IS_DRAWN = SERVER == "sequential-thinking"
OPTIONS = {"temperature": 1 if IS_DRAWN else 0}
MOST = 1_500 if IS_DRAWN else 60
TRIES = 6 if IS_DRAWN else 1
RESPONSE = {
    **OPTIONS,
    "model": MODEL,
    "input": QUESTION,
    "max_output_tokens": MOST,
    "tools": [{"type": "mcp", "server_label": SERVER, "allowed_tools": [TOOL]}],
    "tool_choice": {"type": "mcp", "server_label": SERVER},
}
ASKED = [{"role": "user", "content": QUESTION}]
TOOLSET = {
    "type": "mcp_toolset",
    "mcp_server_name": SERVER,
    "default_config": {"enabled": False},
    "configs": {TOOL: {"enabled": True}},
}
MESSAGE = {
    "model": MODEL,
    "max_tokens": MOST,
    "messages": ASKED,
    "extra_body": {"tools": [TOOLSET], "tool_choice": {"type": "any"}, **OPTIONS},
}
CHAT = {
    **OPTIONS,
    "model": MODEL,
    "messages": ASKED,
    "max_tokens": MOST,
    "metadata": {"mcp_servers": SERVER},
    "tool_choice": {"type": "function", "function": {"name": TOOL}},
}


@pytest.fixture
def client():
    with openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def messages():
    with anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0) as client:
        yield client.beta.messages


def until_called(ask, calls):
    """Ask until the model has written a whole call, and return the answer; for most models at once."""
    for _ in range(TRIES):
        if calls(answer := ask()):
            return answer
    raise AssertionError(f"no call in {answer}")


def response_calls(response):
    return [item for item in response.output if item.type == "mcp_call"]


def check_response(response):
    listed = next(item for item in response.output if item.type == "mcp_list_tools")
    assert ([tool.name for tool in listed.tools], listed.error) == ([TOOL], None)
    call = response_calls(response)[0]
    assert (call.server_label, call.name) == (SERVER, TOOL)
    assert call.status == ("completed" if call.error is None else "failed")
    assert SAID in str(call.output or call.error)


def test_a_response(client):
    check_response(until_called(lambda: client.responses.create(**RESPONSE), response_calls))


def test_a_streamed_response(client):
    kinds = set()

    def ask():
        with client.responses.stream(**RESPONSE) as events:
            seen = list(events)
        kinds.update(event.type.removeprefix("response.") for event in seen)
        return seen[-1].response  # complete, or cut by the limit of tokens

    check_response(until_called(ask, response_calls))
    assert {"mcp_list_tools.completed", "mcp_call_arguments.done", "mcp_call.in_progress"} <= kinds
    assert kinds & {"mcp_call.completed", "mcp_call.failed"}


def message_calls(message):
    return [block for block in message.content if block.type == "mcp_tool_result"]


def check_message(message):
    use = next(block for block in message.content if block.type == "mcp_tool_use")
    result = message_calls(message)[0]
    assert (use.server_name, use.name, result.tool_use_id) == (SERVER, TOOL, use.id)
    assert SAID in "".join(block.text for block in result.content if block.type == "text")


def test_a_message(messages):
    check_message(until_called(lambda: messages.create(**MESSAGE), message_calls))


def test_a_streamed_message(messages):
    def ask():
        with messages.stream(**MESSAGE) as stream:
            return stream.get_final_message()

    check_message(until_called(ask, message_calls))


def check_steps(steps):
    listed, call, result = steps[:3]
    assert TOOL in listed["tools"]
    assert (call["server"], call["name"], result["id"]) == (SERVER, TOOL, call["id"])
    assert SAID in result["output"]


def test_a_chat(client):
    def ask():
        return client.chat.completions.create(**CHAT).choices[0].message.greenroom_steps

    check_steps(until_called(ask, lambda steps: len(steps) > 2))


def test_a_streamed_chat(client):
    def ask():
        chunks = client.chat.completions.create(**CHAT, stream=True)
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        return [step for delta in deltas for step in getattr(delta, "greenroom_steps", None) or ()]

    check_steps(until_called(ask, lambda steps: len(steps) > 2))
