"""Every reason code, made to happen on a running server, with the exact place where reuse stopped.

`test_no_reason_is_left_out` compares the codes that a server knows with those that are made to
happen here: a code without a test of its own fails it.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from test_disk import wait_for, wait_until_written

from harness import Server

PAGE = 16
TEXT = " ".join(f"Stone {n} lies on the {n + 3}rd step of the old pier." for n in range(9))
TEMPLATE = (
    "{% if style is defined %}({{ style }})\n{% endif %}{% for message in messages %}"
    "{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)
# Reads of pages that take longer than computing them would.
SLOW_READS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pread64(int file, void *bytes, size_t count, off_t offset) {
    static ssize_t (*read_at)(int, void *, size_t, off_t);
    if (!read_at) read_at = dlsym(RTLD_NEXT, "pread64");
    if (count >= 8192) usleep(60000);
    return read_at(file, bytes, count, offset);
}
"""


class Talk:
    """What is asked of a server here, and what it says."""

    def __init__(self, server: Server):
        self.server, self.http = server, server.http()

    def post(self, path: str, **body) -> dict:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def complete(self, prompt, **fields) -> dict:
        """The verdict on a text or token ids."""
        fields = {"prompt": prompt, "max_tokens": 1, "temperature": 0} | fields
        return self.post("/v1/completions", **fields)["refrain"]["verdict"]

    def chat(self, *turns: str, **fields) -> dict:
        """The verdict on a conversation: a system prompt, then turns of the user."""
        roles = ["system"] + ["user"] * len(turns)
        said = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
        fields = {"messages": said, "max_tokens": 1, "temperature": 0} | fields
        return self.post("/v1/chat/completions", **fields)["refrain"]["verdict"]

    def ids(self, text: str) -> list[int]:
        return self.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]


def stop_of(verdict: dict) -> dict:
    """The stop, after what holds for each: counts add up, and reuse stopped where it is said."""
    assert verdict["reused_tokens"] + verdict["computed_tokens"] == verdict["prompt_tokens"]
    assert verdict["stop"]["at"] == verdict["reused_tokens"]
    reused = verdict["reused_from"]
    assert reused["ram"] + reused["disk"] == verdict["reused_tokens"]
    return verdict["stop"]


def in_common(one: list[int], other: list[int]) -> int:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


@pytest.fixture(scope="module")
def model(gpt2, tmp_path_factory) -> Path:
    """The small model with a chat template."""
    folder = tmp_path_factory.mktemp("chatty")
    shutil.copytree(gpt2, folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def talk(model):
    with Server(str(model)) as server:
        yield Talk(server)


@pytest.fixture
def disk(model, tmp_path) -> list[str]:
    folder = str(tmp_path / "prompts")
    return [str(model), "--cache-dir", folder, "--cache-disk", "64MiB"]


def keep(disk: list[str], *prompts: str) -> int:
    """Lets a server compute prompts and leave them on disk; the full pages of the last one."""
    with Server(*disk) as server:
        talk = Talk(server)
        tokens = [talk.complete(prompt)["prompt_tokens"] for prompt in prompts]
        wait_until_written(server, sum(count // PAGE * PAGE for count in tokens))
        # A server that ends does not wait for what it has not begun to write.
        assert server.terminate() == 0
    return tokens[-1] // PAGE


def first_request(talk):
    begun = time.time()
    talk.complete("Other words.")
    stop = stop_of(talk.complete(TEXT))
    assert stop["at"] == 0
    assert (begun - 60) * 1000 < stop["since"] < time.time() * 1000
    return stop


def end_of_prompt(talk):
    talk.complete(TEXT)
    stop = stop_of(talk.complete(TEXT))
    assert stop["at"] == len(talk.ids(TEXT)) - 1
    return stop


def end_of_cached(talk):
    talk.complete(TEXT)
    stop = stop_of(talk.complete(TEXT + " Then night fell."))
    assert stop["at"] == len(talk.ids(TEXT))
    return stop


def different_token(talk):
    changed = TEXT.replace("Stone 4", "Stone 7")
    talk.chat(TEXT, "Which stone?")
    stop = stop_of(talk.chat(changed, "Which stone?"))
    begin = "system: "
    at = in_common(talk.ids(begin + TEXT), talk.ids(begin + changed))
    assert stop["at"] == at
    assert (stop["cached"]["text"], stop["request"]["text"]) == (" 4", " 7")
    assert (stop["message"], stop["role"], stop["kind"]) == (0, "system", "counter")
    assert changed[slice(*stop["chars"])] == " 7"
    assert stop["identical_after"] >= len(talk.ids(TEXT)) - at - 1
    return stop


def evicted(model):
    # As many pages as one prompt of the whole context takes, and some more.
    budget = ["--context", "256", "--kv-budget", "192KiB"]
    with Server(str(model), *budget) as server:
        talk = Talk(server)
        talk.complete(TEXT)
        others = [talk.complete(f"{n} " * 100) for n in range(5)]
        assert others
        stop = stop_of(talk.complete(TEXT))
        assert stop["at"] % PAGE == 0 and stop["at"] < stop["held_tokens"]
        assert stop["held_tokens"] == len(talk.ids(TEXT))
        assert stop["last_used"] <= stop["evicted_at"] <= time.time() * 1000
        return stop


def expired(talk):
    asked = time.time()
    talk.complete(TEXT, prompt_cache_options={"ttl": "1s"})
    time.sleep(1.2)
    stop = stop_of(talk.complete(TEXT))
    assert (stop["at"], stop["held_tokens"]) == (0, len(talk.ids(TEXT)))
    assert (asked + 1) * 1000 <= stop["expired_at"] <= time.time() * 1000
    return stop


def damaged(disk):
    pages = keep(disk, TEXT)
    folder = Path(disk[disk.index("--cache-dir") + 1])
    for segment in folder.glob("*.segment"):
        content = bytearray(segment.read_bytes())
        used = max(at for at, byte in enumerate(content) if byte)
        # The end of the last page that was written.
        content[used - 100] ^= 1
        segment.write_bytes(content)
    with Server(*disk) as server:
        stop = stop_of(Talk(server).complete(TEXT))
    assert (stop["at"], stop["held_tokens"]) == ((pages - 1) * PAGE, pages * PAGE)
    assert stop["damaged_at"] <= time.time() * 1000
    return stop


def cheaper_to_compute(disk, tmp_path):
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_READS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    pages = keep(disk, TEXT)
    with Server(*disk, LD_PRELOAD=str(library)) as server:
        talk = Talk(server)
        # What computing takes; what reading takes is measured at the start.
        talk.complete("Unknown to the disk. " + TEXT)
        seen = talk.complete(TEXT)
        stop = stop_of(seen)
        assert (stop["at"], stop["held_tokens"]) == (0, pages * PAGE)
        assert seen["reused_from"] == {"ram": 0, "disk": 0}
        # It is in memory now, and read from there.
        assert talk.complete(TEXT)["stop"]["reason"] == "end_of_prompt"
    return stop


def different_model(disk):
    pages = keep(disk, TEXT)
    with Server(*disk, REFRAIN_ISA="scalar") as server:
        stop = stop_of(Talk(server).complete(TEXT))
    assert (stop["at"], stop["held_tokens"]) == (0, pages * PAGE)
    return stop


def template_changed(talk):
    """By a variable of the template; for one by another template see below."""
    style = {"chat_template_kwargs": {"style": "short"}}
    talk.chat(TEXT, "Which stone?", **style)
    first = talk.ids(f"(short)\nsystem: {TEXT}\nuser: Which stone?\nassistant:")
    style = {"chat_template_kwargs": {"style": "long"}}
    verdict = talk.chat(TEXT, "Which stone?", **style)
    stop = stop_of(verdict)
    assert stop["at"] == in_common(first, talk.ids("(long)\nsystem:"))
    assert first[stop["at"]] == stop["cached"]["id"]
    assert (stop["message"], stop["role"], stop["chars"]) == (None, "template", None)
    assert (stop["cached_text"], stop["request_text"]) == ("short", "long")
    assert stop["held_tokens"] >= len(first) - 1
    assert verdict["compared_with"] is None
    # As it was, it is still held; and without the variable it is another rendering again.
    style = {"chat_template_kwargs": {"style": "short"}}
    assert talk.chat(TEXT, "Which stone?", **style)["stop"]["reason"] == "end_of_prompt"
    plain = stop_of(talk.chat(TEXT, "Which stone?"))
    assert (plain["reason"], plain["at"]) == ("template_changed", 0)
    # Other messages are no other rendering.
    other = stop_of(talk.chat("Be brief.", "Which stone?"))
    assert other["reason"] == "different_token"
    return stop


def retokenized(talk):
    begin, end = TEXT[:200], TEXT[200:]
    whole = talk.ids(TEXT)
    split = talk.ids(begin) + talk.ids(end[0]) + talk.ids(end[1:])
    assert split != whole, "the text is to be cut inside a token"
    talk.complete(split)
    stop = stop_of(talk.complete(TEXT))
    at = in_common(split, whole)
    assert (stop["at"], stop["held_tokens"]) == (at, len(whole))
    assert (stop["cached"]["id"], stop["request"]["id"]) == (split[at], whole[at])
    assert "kind" not in stop
    return stop


def rows_requested(talk):
    talk.complete(TEXT)
    stop = stop_of(talk.complete(TEXT, echo=True, logprobs=1))
    assert stop["at"] == 0
    return stop


def disabled_by_request(talk):
    talk.complete(TEXT)
    stop = stop_of(talk.complete(TEXT, cache_prompt=False))
    assert stop["at"] == 0
    return stop


REASONS = [
    end_of_prompt,
    end_of_cached,
    different_token,
    first_request,
    evicted,
    expired,
    damaged,
    cheaper_to_compute,
    different_model,
    template_changed,
    retokenized,
    rows_requested,
    disabled_by_request,
]


@pytest.mark.parametrize("produce", REASONS, ids=lambda produce: produce.__name__)
def test_the_reason_is_given_with_its_place(produce, request):
    names = produce.__code__.co_varnames[: produce.__code__.co_argcount]
    stop = produce(*(request.getfixturevalue(name) for name in names))
    assert stop["reason"] == produce.__name__


def test_no_reason_is_left_out(talk):
    metrics = talk.http.get("/metrics").text
    known = re.findall(r'^refrain_verdicts_total\{reason="(\w+)"\}', metrics, re.MULTILINE)
    assert known == [produce.__name__ for produce in REASONS]


def test_another_template_at_the_next_start_is_the_reason(disk, model, tmp_path):
    """What the disk has was rendered by the template of an earlier start."""
    changed = tmp_path / "changed"
    shutil.copytree(model, changed)
    template = TEMPLATE.replace("{{ message.role }}: ", "[{{ message.role }}] ")
    (changed / "chat_template.jinja").write_text(template)
    again = [str(changed), *disk[1:]]
    with Server(*disk) as server:
        talk = Talk(server)
        tokens = talk.chat(TEXT, "Which stone?")["prompt_tokens"]
        wait_until_written(server, tokens)
        assert server.terminate() == 0
    with Server(*again) as server:
        talk = Talk(server)
        verdict = talk.chat(TEXT, "Which stone?")
        stop = stop_of(verdict)
        assert stop["reason"] == "template_changed"
        assert (stop["at"], stop["held_tokens"]) == (0, tokens // PAGE * PAGE)
        assert (stop["message"], stop["role"]) == (None, "template")
        assert (stop["cached"]["text"], stop["request"]["text"]) == ("system", "[")
        assert talk.chat(TEXT, "Which stone?")["stop"]["reason"] == "end_of_prompt"
        assert talk.chat("Be brief.", "Which one?")["stop"]["reason"] != "template_changed"
        wait_for(lambda: "template_changed" in "".join(server.said))


def test_nobody_is_told_how_another_caller_renders(talk):
    style = {"chat_template_kwargs": {"style": "short"}}
    talk.chat(TEXT, "Which stone?", cache_salt="one", **style)
    assert talk.chat(TEXT, "Which stone?", cache_salt="two")["stop"]["reason"] == "first_request"
    seen = talk.chat(TEXT, "Which stone?", cache_salt="one")["stop"]["reason"]
    assert seen == "template_changed"


def test_the_stream_says_so_too(talk):
    style = {"chat_template_kwargs": {"style": "short"}}
    messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": "Which stone?"}]
    talk.post("/v1/chat/completions", messages=messages, max_tokens=1, **style)
    chunks = list(
        talk.server.client().chat.completions.create(
            model="gpt2", messages=messages, max_tokens=2, stream=True
        )
    )
    refrain = chunks[-1].model_extra["refrain"]
    assert refrain["verdict"]["stop"]["reason"] == "template_changed"
    assert refrain["timings"]["lost_ms"] > 0
