"""What the operator learns: prices, a line of the log for each miss, metrics by reason."""

import re

import pytest

from harness import Server, command

CLOCK = "The time is {}. " + "The lamp on the pier was lit again, and the boats came home. " * 6
PRICES = {"input": 2.0, "cached": 0.5, "output": 10.0}
MISS = re.compile(r"^ +Miss (request=.*)$", re.MULTILINE)
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def serve(gpt2, *arguments):
    prices = ",".join(f"{name}={price}" for name, price in PRICES.items())
    return Server(str(gpt2), "--price", prices, *arguments)


def ask(server, prompt, **options):
    options = {"max_tokens": 2, "temperature": 0} | options
    return server.client().completions.create(model="gpt2", prompt=prompt, **options)


def refrain(answer) -> dict:
    return answer.model_extra["refrain"]


def samples(server) -> dict[tuple[str, str | None], float]:
    with server.http() as http:
        lines = http.get("/metrics").text.splitlines()
    found = (SAMPLE.match(line) for line in lines if not line.startswith("#"))
    return {(match[1], match[2]): float(match[3]) for match in found}


def test_an_answer_has_its_price_and_what_it_would_have_been(gpt2):
    with serve(gpt2) as server:
        first = refrain(ask(server, CLOCK.format("10:00")))
        # Nothing is known to have been lost, and nothing is said of it.
        assert first["price"]["if_all_cached"] is None
        for prompt in [CLOCK.format("10:01"), CLOCK.format("10:01"), CLOCK.format("10:02")]:
            chunks = list(ask(server, prompt, stream=True))
            seen = refrain(chunks[-1])
            verdict, counts, price = seen["verdict"], seen["tokens"], seen["price"]
            assert price["currency"] == "USD"
            money = (
                counts["input"] * PRICES["input"]
                + counts["cached_input"] * PRICES["cached"]
                + counts["output"] * PRICES["output"]
            )
            assert price["total"] == pytest.approx(money / 1e6, abs=1e-12)
            lost = verdict["stop"]["identical_after"] or 0
            saved = lost * (PRICES["input"] - PRICES["cached"])
            assert price["if_all_cached"] == pytest.approx((money - saved) / 1e6, abs=1e-12)
            changed = verdict["stop"]["reason"] == "different_token"
            assert (lost > 16) is changed


def test_each_miss_is_a_line_of_the_log_without_the_prompts_text(gpt2):
    with serve(gpt2) as server:
        ask(server, CLOCK.format("10:00"))
        ask(server, CLOCK.format("10:00"))
        missed = ask(server, CLOCK.format("10:01"))
        # Another end is what prompts that share a prefix have: nothing was lost.
        ask(server, CLOCK.format("10:01") + "And then?")
        several = ask(server, [CLOCK.format("10:02"), CLOCK.format("10:03")])
        assert server.terminate() == 0
        said = "".join(server.said)
    lines = [dict(field.split("=") for field in line.split()) for line in MISS.findall(said)]
    assert [line["request"] for line in lines] == [missed.id, f"{several.id}-0", f"{several.id}-1"]
    seen = refrain(missed)
    stop = seen["verdict"]["stop"]
    line = lines[0]
    assert line["key"] == "-"
    assert line["reason"] == "different_token"
    assert int(line["at"]) == stop["at"]
    assert int(line["prompt_tokens"]) == seen["verdict"]["prompt_tokens"]
    assert int(line["reused_tokens"]) == seen["verdict"]["reused_tokens"]
    assert int(line["lost_tokens"]) == stop["identical_after"]
    assert float(line["lost_ms"]) == pytest.approx(seen["timings"]["lost_ms"], abs=0.05)
    price = seen["price"]
    lost = price["total"] - price["if_all_cached"]
    assert float(line["lost_price"]) == pytest.approx(lost, abs=1e-9)
    assert line["currency"] == "USD"
    assert "lamp" not in said


def test_quiet_logs_no_miss(gpt2):
    with serve(gpt2, "--quiet") as server:
        for minute in range(3):
            ask(server, CLOCK.format(f"10:0{minute}"))
        assert server.terminate() == 0
        assert not MISS.search("".join(server.said))


def test_metrics_count_requests_and_tokens_by_reason(gpt2):
    with serve(gpt2) as server:
        before = samples(server)
        reasons = {labels for name, labels in before if name == "refrain_verdicts_total"}
        assert 'reason="expired"' in reasons and len(reasons) == 13
        prompts = ["10:00", "10:00", "10:01", "10:02"]
        verdicts = [refrain(ask(server, CLOCK.format(time)))["verdict"] for time in prompts]
        ask(server, CLOCK.format("10:02"), extra_body={"cache_prompt": False})
        after = samples(server)

    def total(name, reason, label=""):
        return after[f"refrain_{name}_total", f'reason="{reason}"{label}']

    assert total("verdicts", "first_request") == 1
    assert total("verdicts", "end_of_prompt") == 1
    assert total("verdicts", "different_token") == 2
    assert total("verdicts", "disabled_by_request") == 1
    changed = verdicts[2:]
    ram = total("verdict_reused_tokens", "different_token", ',tier="ram"')
    assert ram == sum(verdict["reused_tokens"] for verdict in changed)
    computed = total("verdict_computed_tokens", "different_token")
    assert computed == sum(verdict["computed_tokens"] for verdict in changed)
    lost = total("verdict_lost_tokens", "different_token")
    assert lost == sum(verdict["stop"]["identical_after"] for verdict in changed)
    assert total("verdict_lost_seconds", "different_token") > 0
    assert total("verdict_lost_tokens", "end_of_prompt") == 0
    reused = sum(
        value for (name, _), value in after.items() if name == "refrain_verdict_reused_tokens_total"
    )
    assert reused == after["refrain_reused_tokens_total", None]
    assert after["refrain_prompt_cache_evicted_pages_total", None] == 0


def test_what_is_no_price_is_refused(gpt2):
    for wrong, problem in [
        ("input=1", "cached= is missing"),
        ("input=1,cached=1,output=cheap", "output= must be a number from 0"),
    ]:
        said = command("serve", str(gpt2), "--price", wrong, check=2).stderr
        assert problem in said
