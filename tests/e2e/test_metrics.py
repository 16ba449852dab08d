"""`GET /metrics`: every line is one that Prometheus reads, and the figures are right."""

import math
import re
import time

import pytest
from test_reasons import TEXT, Talk, disk, model, talk

from harness import Server

__all__ = ["disk", "model", "talk"]
PAGE = 16
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'^({NAME})(?:\{{((?:{NAME}="[^"\\\n]*",?)*)\}})? (\S+)$')
PARTS = {"histogram": ("_bucket", "_sum", "_count")}


def read(server: Server) -> dict[str, dict[str, float]]:
    """All samples by family and by the rest of their names; each family is described first, once,
    and its samples follow (https://prometheus.io/docs/instrumenting/exposition_formats)."""
    families, kinds, helped, family = {}, {}, set(), None
    for line in server.http().get("/metrics").text.splitlines():
        if line.startswith("# HELP "):
            family, text = line.removeprefix("# HELP ").split(" ", 1)
            assert family not in helped and text.strip()
            helped.add(family)
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == family and kind in ("counter", "gauge", "histogram")
            kinds[name], families[name] = kind, {}
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            parts = PARTS.get(kinds[family], ("",))
            assert name in [family + part for part in parts], line
            key = name.removeprefix(family) + (f"{{{labels}}}" if labels else "")
            assert key not in families[family], line
            families[family][key] = float(value)
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter")
        if kind == "histogram":
            check_histogram(families[name])
    return families


def check_histogram(samples: dict[str, float]) -> None:
    buckets = [
        (float(re.search(r'le="([^"]+)"', key).group(1)), value)
        for key, value in samples.items()
        if key.startswith("_bucket")
    ]
    assert buckets == sorted(buckets) and buckets[-1][0] == math.inf
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert buckets[-1][1] == samples["_count"] and samples["_sum"] >= 0


def test_each_line_is_one_that_prometheus_reads(talk):
    assert read(talk.server)
    talk.complete(TEXT)
    families = read(talk.server)
    assert len(families) > 35
    assert families["refrain_verdicts_total"]['{reason="first_request"}'] == 1


def test_pages_are_aged_when_they_are_reused_and_when_they_make_room(model):
    with Server(str(model), "--context", "256", "--kv-budget", "192KiB") as server:
        talk = Talk(server)
        tokens = talk.complete(TEXT)["prompt_tokens"]
        time.sleep(1.1)
        talk.complete(TEXT)
        talk.complete(TEXT)
        families = read(server)
        pages = math.ceil((tokens - 1) / PAGE)
        age = families["refrain_prompt_cache_reused_page_age_seconds"]
        gap = families["refrain_prompt_cache_reuse_gap_seconds"]
        assert age["_count"] == gap["_count"] == 2 * pages
        # The first time all were at least a second old and unused, the second time just used.
        assert age['_bucket{le="1"}'] == 0
        assert pages <= gap['_bucket{le="1"}'] < 2 * pages
        assert age["_sum"] >= 2 * pages * 1.1 > gap["_sum"] >= (pages - 1) * 1.1
        assert families["refrain_prompt_cache_evicted_page_age_seconds"]["_count"] == 0
        for n in range(5):
            talk.complete(f"{n} " * 100)
        families = read(server)
        evicted = families["refrain_prompt_cache_evicted_pages_total"][""]
        aged = families["refrain_prompt_cache_evicted_page_age_seconds"]
        assert aged["_count"] == evicted > 0


def test_the_time_to_read_from_disk_is_counted(default_model, tmp_path):
    flags = ["--cache-dir", str(tmp_path / "prompts"), "--cache-disk", "1GiB"]
    with Server(*flags) as server:
        talk = Talk(server)
        pages = talk.complete(TEXT)["prompt_tokens"] // PAGE
        end = time.monotonic() + 20
        while read(server)["refrain_disk_pages"][""] < pages:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert server.terminate() == 0
    with Server(*flags) as server:
        talk = Talk(server)
        disk = talk.complete(TEXT)["reused_from"]["disk"]
        talk.complete("Something else.")
        families = read(server)
    assert families["refrain_restore_seconds"]["_count"] == 1
    assert families["refrain_restore_seconds"]["_sum"] > 0
    reused = families["refrain_verdict_reused_tokens_total"]
    restored = sum(value for key, value in reused.items() if 'tier="disk"' in key)
    assert restored == disk == families["refrain_restored_tokens_total"][""] > 0


@pytest.mark.parametrize("warm", [True, False])
def test_ready_is_said_when_the_prompts_are_warm(model, tmp_path, warm):
    """`/health` says that the server answers; `/ready` that it should be asked."""
    prompts = tmp_path / "prompts.jsonl"
    lines = [f'{{"prompt": "{number} {TEXT}"}}' for number in range(400)]
    prompts.write_text("\n".join(lines))
    flags = ["--warm", str(prompts)] if warm else []
    with Server(str(model), *flags) as server:
        http = server.http()
        ready = http.get("/ready")
        assert http.get("/health").status_code == 200
        if not warm:
            assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
            return
        assert (ready.status_code, ready.json()) == (503, {"status": "warming"})
        end = time.monotonic() + 60
        while http.get("/ready").status_code == 503:
            assert http.get("/health").status_code == 200
            assert time.monotonic() < end
            time.sleep(0.05)
        assert "400 of 400 prompts" in "".join(server.said)
        assert http.get("/ready").json() == {"status": "ready"}
