"""The tests that OpenAI and Anthropic ship with their Python clients, on this server."""

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import anthropic
import openai
import pytest

import suites
from harness import Server

FOLDER = Path(os.environ.get("REFRAIN_SUITES", ""))
TESTS = "tests/api_resources"
# What the tests call the models that they look up.
NAMES = "gpt-6-astra,model_id"
# What each package's own configuration asks for, without several processes of it.
OPTIONS = {openai: "addopts=", anthropic: "addopts=-p tests._alias_httpx"}


def start(module, suite, base_url: str, report: Path) -> subprocess.Popen:
    """Starts the tests of a suite; what they find goes to `report`."""
    package = FOLDER / f"{module.__name__}-{module.__version__}"
    assert package.is_dir(), f"{package} is not there; `cargo xtask e2e` fetches it"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-o", OPTIONS[module], f"--junitxml={report}", "-o", "junit_family=xunit1"]
    command += [f"{TESTS}/{file}" for file in suites.files(suite)]
    environment = os.environ | {"TEST_API_BASE_URL": base_url, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command,
        cwd=package,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def reports(default_model, tmp_path_factory) -> dict[str, Path]:
    """What the tests of both clients found, which run side by side."""
    folder = tmp_path_factory.mktemp("suites")
    # Answers are short where nobody limits them, since the context is.
    with Server("smollm2", "--context", "128", "--model-name", NAMES) as server:
        runs = {
            "openai": start(openai, suites.OPENAI, f"{server.url}/v1", folder / "openai.xml"),
            "anthropic": start(anthropic, suites.ANTHROPIC, server.url, folder / "anthropic.xml"),
        }
        for name, run in runs.items():
            said, _ = run.communicate(timeout=400)
            assert (folder / f"{name}.xml").exists(), said
    return {name: folder / f"{name}.xml" for name in runs}


@pytest.mark.parametrize(
    ("name", "suite"), [("openai", suites.OPENAI), ("anthropic", suites.ANTHROPIC)]
)
def test_just_what_is_listed_fails(reports, name, suite):
    reasons, surprises, passed = set(), [], 0
    for case in xml.parse(reports[name]).iter("testcase"):
        file = case.attrib["file"].removeprefix(f"{TESTS}/")
        why = suites.reason(suite, file, case.attrib["name"].split("[")[0])
        failed = bool(list(case))
        passed += not failed
        reasons |= {why} if why else set()
        if failed != bool(why):
            test = f"{file}::{case.attrib['classname']}::{case.attrib['name']}"
            surprises.append(f"{test} {'failed' if failed else 'passed'}")
    assert not surprises
    assert passed > 100
    assert reasons == {why for _, _, why in suite if why}, "a reason that no test has"
