"""LiteLLM as a proxy between the server and OpenAI's client, or Anthropic's requests."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest

URL = os.environ["GREENROOM_URL"]
PARIS = {"role": "user", "content": "What is the weather in Paris?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city.",
        "parameters": PARAMETERS,
    },
}
KEY = "sk-any"
ROUTES = {
    "chat": ("openai/default", f"{URL}/v1"),
    "vllm": ("hosted_vllm/default", f"{URL}/v1"),
    "messages": ("anthropic/default", URL),
    "ollama": ("ollama_chat/default", URL),
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    models = [
        {"model_name": name, "litellm_params": {"model": model, "api_base": base, "api_key": "none"}}
        for name, (model, base) in ROUTES.items()
    ]
    config = {"model_list": models, "general_settings": {"master_key": KEY}}
    (folder / "config.yaml").write_text(json.dumps(config))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [Path(sys.executable).with_name("litellm"), "--config", folder / "config.yaml"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address, process, folder / "log")
            yield address
        finally:
            process.terminate()
            process.wait()


def wait_for(address, process, log):
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{address}/health/liveliness", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise TimeoutError(log.read_text())


@pytest.fixture
def client(proxy):
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(params=ROUTES)
def model(request):
    return request.param


def test_a_stream_is_the_whole_answer(client, model):
    asked = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content != ""
    assert whole.usage.completion_tokens > 0


def test_a_tool_loop(client, model):
    asked = client.chat.completions.create(model=model, messages=[PARIS], tools=[WEATHER])
    message = asked.choices[0].message
    [call] = message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "Cloudy, 12°C"}
    answer = client.chat.completions.create(
        model=model, messages=[PARIS, message.model_dump(exclude_none=True), result], tools=[WEATHER]
    )
    assert "12" in answer.choices[0].message.content


def test_streamed_tool_calls(client, model):
    stream = client.chat.completions.create(model=model, messages=[PARIS], tools=[WEATHER], stream=True)
    calls = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert json.loads("".join(call.function.arguments or "" for call in calls)) == {"city": "Paris"}


def test_anthropics_requests(proxy, model):
    body = {"model": model, "max_tokens": 100, "messages": [PARIS]}
    tool = {"name": "get_weather", "description": "Get the weather.", "input_schema": PARAMETERS}
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    answer = httpx.post(f"{proxy}/v1/messages", json={**body, "tools": [tool]}, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    [call] = [block for block in answer.json()["content"] if block["type"] == "tool_use"]
    assert call["input"] == {"city": "Paris"}
