"""`llm`, the command: its file of other servers' models, its log, its conversations."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def llm(url, tmp_path):
    """Runs `llm` with this server as a model called `here`."""
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: here\n  model_name: smollm2\n  api_base: {url}\n  supports_schema: true\n"
        "  supports_tools: true\n"
    )
    environment = os.environ | {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def logged(llm) -> dict:
    [entry] = json.loads(llm("logs", "--json", "-n", "1"))
    return entry


LIMITS = ("-o", "max_tokens", "16", "-o", "temperature", "0")


def test_a_prompt_is_answered_and_logged_with_its_tokens(llm):
    said = llm("-m", "here", *LIMITS, "Name one river.")
    entry = logged(llm)
    assert said.strip() == entry["response"].strip() != ""
    assert entry["input_tokens"] > 0
    assert 0 < entry["output_tokens"] <= 16
    whole = llm("-m", "here", *LIMITS, "--no-stream", "Name one river.")
    assert whole == said


def test_a_conversation_goes_on_and_reuses_its_beginning(llm):
    llm("-m", "here", *LIMITS, "Name one river. " * 40)
    llm("-c", *LIMITS, "And another?")
    entry = logged(llm)
    details = entry["token_details"]
    details = json.loads(details) if isinstance(details, str) else details
    assert details["prompt_tokens_details"]["cached_tokens"] > 150


def test_an_answer_has_the_schema_that_is_asked_for(llm):
    limits = ("-o", "max_tokens", "200", "-o", "temperature", "0")
    said = llm("-m", "here", *limits, "--schema", "large bool", "Paris has 2000000 inhabitants.")
    assert isinstance(json.loads(said)["large"], bool)
