"""LlamaIndex's models: by OpenAI's protocol, and by Ollama's."""

import asyncio
import os

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

URL = os.environ["GREENROOM_URL"]
HELLO = [ChatMessage("Hello!")]
PARIS = "What is the weather in Paris?"


class Report(BaseModel):
    """The schema of a structured answer."""

    rain: bool
    degrees: int


def get_weather(city: str) -> str:
    """Get the weather for a city."""
    return "18 degrees"


@pytest.fixture(params=["openai", "ollama"])
def model(request):
    if request.param == "ollama":
        return Ollama(model="default", base_url=URL, request_timeout=120)
    options = {"is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(model="default", api_base=f"{URL}/v1", api_key="none", **options)


def test_chat(model):
    assert "Greenroom" in model.chat(HELLO).message.content


def test_stream(model):
    parts = list(model.stream_chat(HELLO))
    assert len(parts) > 3
    assert parts[-1].message.content == model.chat(HELLO).message.content


def test_tools(model):
    tool = FunctionTool.from_defaults(get_weather, name="get_weather")
    answer = model.chat_with_tools([tool], user_msg=PARIS)
    [call] = model.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"})


def test_structured_answers(model):
    assert isinstance(model.as_structured_llm(Report).complete("Hello!").raw, Report)


def test_async_chat(model):
    assert "Greenroom" in asyncio.run(model.achat(HELLO)).message.content
