"""LangChain's standard integration tests, over Anthropic's messages."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestMessages(ChatModelIntegrationTests):
    """The test suite, without features that a small text model lacks."""

    @property
    def chat_model_class(self):
        return ChatAnthropic

    @property
    def chat_model_params(self):
        return {
            "model": "default",
            "base_url": os.environ["GREENROOM_URL"],
            "api_key": "none",
            "max_retries": 0,
            "max_tokens": 1_000,
        }
