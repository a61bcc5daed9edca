"""LangChain's standard integration tests, over OpenAI's Responses."""

import os

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestResponses(ChatModelIntegrationTests):
    """What the model cannot do, because it is a small one that reads text, is said here."""

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
            "use_responses_api": True,
        }

    @property
    def supports_json_mode(self):
        return True
