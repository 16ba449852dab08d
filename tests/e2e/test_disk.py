"""The prompt cache on disk: what one server has computed, the next one reuses, bit by bit."""

import re
import time

import pytest

from harness import Server, verdict

# Some hundred tokens, so that there are full pages to keep.
SYSTEM = " ".join(
    f"Rule {n}: never answer question number {n} before question {n + 1}." for n in range(12)
)
QUESTION = "What is the capital of France?"
PAGE = 16


def ask(server: Server, system: str = SYSTEM, question: str = QUESTION, **options):
    conversation = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    options = {"temperature": 0, "max_tokens": 12, "logprobs": True} | options
    return server.client().chat.completions.create(
        model="smollm2", messages=conversation, **options
    )


def drawn(answer) -> list[tuple[str, float]]:
    """The answer's tokens and their log-probabilities, which are equal only if all bits are."""
    return [(token.token, token.logprob) for token in answer.choices[0].logprobs.content]


def metric(server: Server, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", server.http().get("/metrics").text, re.MULTILINE)
    return int(found.group(1))


def wait_for(what, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def wait_until_written(server: Server, tokens: int) -> None:
    """Waits until all full pages of so many tokens are on disk."""
    wait_for(lambda: metric(server, "refrain_disk_pages") >= tokens // PAGE)


@pytest.fixture
def disk(default_model, tmp_path):
    """The flags of servers that share one directory."""
    return ["--cache-dir", str(tmp_path / "prompts"), "--cache-disk", "1GiB"]


@pytest.fixture
def kept(disk):
    """What a first server answered, and that it was killed once its pages were on disk: also the
    page that the prompt ends in, which the answer filled."""
    with Server(*disk) as first:
        answer = ask(first)
        assert verdict(answer)["stop"]["reason"] == "first_request"
        prompt = verdict(answer)["prompt_tokens"]
        kept = prompt + answer.usage.completion_tokens - 1
        assert kept // PAGE > (prompt - 2) // PAGE, "the prompt's last page is not full"
        wait_until_written(first, kept)
    return answer


def test_a_server_that_was_killed_is_gone_on_from(disk, kept):
    with Server(*disk) as second:
        again = ask(second)
        seen = verdict(again)
        assert seen["stop"]["reason"] == "end_of_prompt"
        assert seen["computed_tokens"] == 1
        assert seen["reused_from"] == {"ram": 0, "disk": seen["prompt_tokens"] - 1}
        assert seen["compared_with"] is None, "who computed it is not on disk"
        assert again.model_extra["refrain"]["timings"]["restore_ms"] > 0
        assert drawn(again) == drawn(kept)
        # What was restored is in memory from now on.
        once_more = verdict(ask(second))
        assert once_more["reused_from"]["disk"] == 0
        assert once_more["stop"]["reason"] == "end_of_prompt"
        assert metric(second, "refrain_restored_tokens_total") == seen["reused_from"]["disk"]


def test_a_server_that_ends_in_order_has_written_all_before(disk):
    # More bytes than may wait to be written at once.
    rules = " ".join(f"{n} {SYSTEM}" for n in range(8))
    with Server(*disk) as first:
        answer = ask(first, rules, max_tokens=1)
        assert first.terminate() == 0
        assert "were not written to disk" not in "".join(first.said)
    full = verdict(answer)["prompt_tokens"] // PAGE
    with Server(*disk) as second:
        assert metric(second, "refrain_disk_pages") == full
        seen = verdict(ask(second, rules, max_tokens=1))
        assert seen["reused_from"]["disk"] > (full - 1) * PAGE - 1


def test_of_a_prompt_larger_than_the_budget_the_beginning_is_kept(default_model, tmp_path):
    flags = ["--cache-dir", str(tmp_path / "prompts"), "--cache-disk", "16MiB"]
    rules = " ".join(f"{n} {SYSTEM}" for n in range(8))
    with Server(*flags) as first:
        full = verdict(ask(first, rules, max_tokens=1))["prompt_tokens"] // PAGE
        assert first.terminate() == 0
    with Server(*flags) as second:
        held = metric(second, "refrain_disk_pages")
        assert 0 < held < full, "all of it fits"
        seen = verdict(ask(second, rules, max_tokens=1))
        assert seen["reused_from"]["disk"] == held * PAGE
        # What was not kept is refused once for each page, whoever asks how often.
        for _ in range(2):
            ask(second, rules, max_tokens=1)
            wait_for(lambda: metric(second, "refrain_disk_refused_pages_total") == full - held)


def test_only_the_first_part_in_common_is_restored(disk, kept):
    with Server(*disk) as second:
        changed = SYSTEM.replace("number 6", "number 60")
        other = ask(second, changed)
        assert 0 < verdict(other)["reused_from"]["disk"] < verdict(kept)["prompt_tokens"] // 2
        computed = ask(second, changed, extra_body={"cache_prompt": False})
        assert verdict(computed)["reused_tokens"] == 0
        assert drawn(computed) == drawn(other)


def test_a_difference_inside_a_stored_page_is_named(disk, kept):
    with Server(*disk) as second:
        changed = SYSTEM.replace("number 6 before", "number 9 before")
        other = ask(second, changed)
        seen, stop = verdict(other), verdict(other)["stop"]
        assert stop["reason"] == "different_token"
        assert (stop["cached"]["text"], stop["request"]["text"]) == ("6", "9")
        assert (stop["message"], stop["role"]) == (0, "system")
        assert changed[slice(*stop["chars"])] == "9"
        assert stop["identical_after"] == seen["prompt_tokens"] - stop["at"] - 1
        assert stop["at"] % PAGE > 0, "it is to lie inside a page"
        assert seen["reused_from"] == {"ram": 0, "disk": stop["at"]}
        computed = ask(second, changed, extra_body={"cache_prompt": False})
        assert verdict(computed)["reused_tokens"] == 0
        assert drawn(computed) == drawn(other)
        # The page that it reused in part is there for whoever has all of it.
        whole = ask(second)
        assert verdict(whole)["reused_from"]["ram"] > stop["at"]
        assert verdict(whole)["reused_from"]["disk"] > 0
        assert verdict(whole)["stop"]["reason"] == "end_of_prompt"
        assert drawn(whole) == drawn(kept)


def test_what_was_computed_otherwise_is_not_reused(disk, kept):
    with Server(*disk, REFRAIN_ISA="scalar") as second:
        seen = verdict(ask(second, max_tokens=1))
        assert seen["reused_tokens"] == 0
        assert seen["stop"]["reason"] == "different_model"
        assert seen["stop"]["held_tokens"] >= verdict(kept)["prompt_tokens"] // PAGE * PAGE


def test_a_request_may_stay_off_the_disk(disk):
    off = [{"store": False}, {"prompt_cache_retention": "in_memory"}]
    with Server(*disk) as server:
        for index, fields in enumerate(off):
            ask(server, f"{index} {SYSTEM}", extra_body=fields)
        kept = ask(server, f"2 {SYSTEM}")
        full = (verdict(kept)["prompt_tokens"] + kept.usage.completion_tokens - 1) // PAGE
        wait_until_written(server, full * PAGE)
        time.sleep(0.2)
        assert metric(server, "refrain_disk_pages") == full


def test_damaged_pages_are_computed_again(disk, kept, tmp_path):
    for segment in (tmp_path / "prompts").glob("*.segment"):
        content = bytearray(segment.read_bytes())
        # Past the table of the pages, one byte in a thousand.
        for at in range(len(content) // 2, len(content), 1000):
            content[at] ^= 1
        segment.write_bytes(content)
    with Server(*disk) as second:
        again = ask(second)
        assert drawn(again) == drawn(kept)
        seen = verdict(again)
        assert seen["reused_tokens"] < seen["prompt_tokens"] - PAGE
        assert seen["stop"]["reason"] == "damaged"
        assert seen["stop"]["held_tokens"] >= seen["prompt_tokens"] - 1
        assert seen["reused_from"] == {"ram": 0, "disk": seen["reused_tokens"]}


def test_what_is_no_page_is_let_be(disk, kept, tmp_path):
    folder = tmp_path / "prompts"
    (folder / "notes.txt").write_text("not mine")
    (folder / ("0" * 32 + ".segment")).write_bytes(b"REFRAIN" * 1000)
    for segment in list(folder.glob("*.segment")):
        (folder / ("f" * 31 + segment.name[0] + ".segment")).write_bytes(
            segment.read_bytes()[:5000]
        )
    with Server(*disk) as second:
        again = ask(second)
        assert drawn(again) == drawn(kept)
        assert verdict(again)["reused_from"]["disk"] > 0
    assert (folder / "notes.txt").read_text() == "not mine"


def test_two_servers_share_what_they_write(disk):
    with Server(*disk) as first, Server(*disk) as second:
        of_first = ask(first)
        prompt = verdict(of_first)["prompt_tokens"]
        wait_until_written(first, prompt)
        wait_until_written(second, prompt)
        from_first = ask(second)
        assert verdict(from_first)["reused_from"]["disk"] > 0
        assert drawn(from_first) == drawn(of_first)
        of_second = ask(second, f"Another. {SYSTEM}")
        before = metric(first, "refrain_disk_pages")
        wait_for(lambda: metric(first, "refrain_disk_pages") > before)
        first.process.kill()
        first.process.wait()
        again = ask(second, f"Another. {SYSTEM}")
        assert drawn(again) == drawn(of_second)


def test_the_directory_is_private_and_need_not_be_there(disk, kept, tmp_path):
    folder = tmp_path / "prompts"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Server("--cache-dir", str(blocked), "--cache-disk", "1GiB") as server:
        assert verdict(ask(server))["stop"]["reason"] == "first_request"
        wait_for(lambda: any("in memory only" in line for line in server.said))
    nowhere = tmp_path / "nowhere"
    with Server("--cache-dir", str(nowhere), "--cache-disk", "0") as server:
        ask(server)
    assert not nowhere.exists()
