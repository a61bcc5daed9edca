"""LangChain's standard integration tests, over OpenAI's chat completions."""

import os

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestChat(ChatModelIntegrationTests):
    """The test suite, without features that a small text model lacks."""

    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {
            "model": "default",
            "base_url": f"{os.environ['GREENROOM_URL']}/v1",
            "api_key": "none",
            "max_retries": 0,
            "stream_usage": True,
        }

    @property
    def supports_json_mode(self):
        return True
