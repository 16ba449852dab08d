"""Two coding agents: a turn, the next one, and the same from another folder, whose name is in the
prompt. What they say is of no matter: the model is a random one with room for their prompts.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness import Server
from models import gpt2_folder
from recorder import Exchange, Recorder

PROGRAMS = Path(__file__).parent / "js" / "node_modules" / ".bin"
CONTEXT = 32768
ANSWER_TOKENS = 24
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
QUESTIONS = ["What is in this folder?", "And what is missing?"]


@pytest.fixture(scope="module")
def agents_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    gpt2_folder(folder, Path(os.environ["REFRAIN_GPT2_VOCAB"]), CONTEXT)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with Server(str(folder), "--model-name", "tiny") as running:
        yield running


class Pi:
    """Pi, by a file of its own that names the server."""

    def __init__(self, url: str, home: Path):
        model = {"id": "tiny", "contextWindow": 131072, "maxTokens": ANSWER_TOKENS}
        provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "none"}
        models = {"providers": {"here": provider | {"models": [model]}}}
        (home / "models.json").write_text(json.dumps(models))
        self.environment = {"PI_CODING_AGENT_DIR": str(home), "PI_OFFLINE": "1"}

    def command(self, question: str, *, goes_on: bool) -> list[str]:
        again = ["--continue"] if goes_on else []
        return ["pi", "--provider", "here", "--model", "tiny", "--print", *again, question]


class QwenCode:
    """Qwen Code, by the variables that OpenAI's clients read."""

    def __init__(self, url: str, _home: Path):
        self.environment = {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_MODEL": "tiny",
            "QWEN_CODE_MAX_OUTPUT_TOKENS": str(ANSWER_TOKENS),
        }

    def command(self, question: str, *, goes_on: bool) -> list[str]:
        again = ["--continue"] if goes_on else []
        return ["qwen", "--bare", "--auth-type", "openai", *again, "--prompt", question]


@pytest.mark.parametrize("agent", [Pi, QwenCode])
def test_the_second_turn_reuses_the_first_and_the_verdict_names_what_changed(
    agents_server, tmp_path, agent
):
    home, here, elsewhere = (tmp_path / name for name in ("home", "apples", "pears"))
    for folder in (home, here, elsewhere):
        folder.mkdir()
    with Recorder(agents_server.url) as recorder:
        started = agent(recorder.url, home)

        def turn(question: str, folder: Path, *, goes_on: bool = False) -> Exchange:
            """One turn; the longest prompt of it is the conversation's."""
            before = len(recorder.exchanges)
            program, *arguments = started.command(question, goes_on=goes_on)
            done = subprocess.run(
                ["node", PROGRAMS / program, *arguments],
                cwd=folder,
                env=os.environ | {"HOME": str(home)} | started.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            exchanges = recorder.exchanges[before:]
            assert not [one for one in exchanges if one.status != 200]
            return max(exchanges, key=lambda one: one.verdict["prompt_tokens"])

        first = turn(QUESTIONS[0], here).verdict
        second = turn(QUESTIONS[1], here, goes_on=True).verdict
        assert first["prompt_tokens"] > 1000
        assert second["prompt_tokens"] > first["prompt_tokens"]
        # Qwen Code leaves out of earlier messages what it reminds the model of in the last one.
        assert second["reused_tokens"] > 0.98 * first["prompt_tokens"], second["stop"]

        stop = turn(QUESTIONS[0], elsewhere).verdict["stop"]
        assert stop["reason"] == "different_token"
        assert "apples" in stop["cached_text"]
        assert "pears" in stop["request_text"]
