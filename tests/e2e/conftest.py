"""Fixtures: one server on the default model for all tests that do not need their own."""

import os
import subprocess
from pathlib import Path

import pytest

from harness import ROOT, Server, command
from models import gpt2_folder


@pytest.fixture(scope="session")
def default_model() -> None:
    """The default model, in the cache directory, as `refrain pull` leaves it."""
    command("pull")


@pytest.fixture(scope="session")
def server(default_model):
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def client(server):
    return server.client()


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory) -> Path:
    """A folder with a very small random GPT-2 model that has GPT-2's real vocabulary."""
    vocabulary = Path(os.environ["REFRAIN_GPT2_VOCAB"])
    return gpt2_folder(tmp_path_factory.mktemp("gpt2"), vocabulary)


@pytest.fixture(scope="session")
def distilgpt2(tmp_path_factory) -> Path:
    """A random model of DistilGPT-2's shape: the project's own chore writes it, as for a user."""
    folder = tmp_path_factory.mktemp("distilgpt2")
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "xtask", "random-distilgpt2", folder], cwd=ROOT, check=True)
    return folder
