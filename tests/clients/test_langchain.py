"""LangChain's standard tests of chat models, for its clients of OpenAI's and of Anthropic's API."""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

# They hang on what the model says: which tools it calls, and when it stops.
TOO_HARD = {
    "test_agent_loop",
    "test_structured_output_optional_param",
    "test_structured_output_pydantic_2_v1",
    "test_structured_output[typeddict]",
    "test_structured_output_async[typeddict]",
    "test_tool_calling",
    "test_tool_calling_async",
    "test_tool_calling_with_no_arguments",
}
LIMITS = {"model": "smollm2", "api_key": "none", "temperature": 0, "max_retries": 0}


class OnThisServer(ChatModelIntegrationTests):
    """What LangChain asks of any chat model, as it is served here."""

    too_hard = TOO_HARD
    supports_image_inputs = False
    supports_pdf_inputs = False
    supports_audio_inputs = False
    has_tool_choice = True

    @pytest.fixture(autouse=True)
    def _use(self, server):
        self.url = server.url


class TestOpenAI(OnThisServer):
    chat_model_class = ChatOpenAI

    @property
    def chat_model_params(self):
        # The penalty keeps so small a model from saying the same for ever.
        penalty = {"frequency_penalty": 0.5, "stream_usage": True}
        return LIMITS | penalty | {"base_url": f"{self.url}/v1", "max_tokens": 192}


class TestAnthropic(OnThisServer):
    chat_model_class = ChatAnthropic

    @property
    def chat_model_params(self):
        return LIMITS | {"base_url": self.url, "max_tokens": 192}
