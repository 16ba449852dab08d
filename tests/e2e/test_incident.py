"""The incident: what a clock in the system prompt does, and what moving it does."""

from harness import command, document

COURSES = ["first", "last"]


def test_the_clock_is_found_and_moving_it_pays(default_model, tmp_path):
    plot = tmp_path / "incident.svg"
    prices = "input=2,cached=0.2,output=8,currency=EUR"
    flags = ["--conversations", "6", "--price", prices, "--plot", str(plot)]
    found = document("cache", "incident", *flags)
    assert [course["clock"] for course in found["courses"]] == COURSES
    first, last = found["courses"]
    assert first["prompt_tokens"] == last["prompt_tokens"]
    assert first["hit_rate"] < 0.1
    # All but the first conversation reuse the instructions.
    assert last["hit_rate"] > 0.75
    assert last["ttft_ms"] * 2 < first["ttft_ms"]
    # By hand: what was reused costs a tenth, and both courses have answers of the same length.
    moved = last["reused_tokens"] - first["reused_tokens"]
    assert abs(first["price"] - last["price"] - moved * 1.8e-6) < 8 * 6 * 8e-6
    blamed, left = found["verdicts"]
    assert (blamed["stop"]["role"], blamed["stop"]["kind"], blamed["hint"]) == (
        "system",
        "time",
        "number",
    )
    assert blamed["stop"]["identical_after"] > 500
    assert left["stop"]["role"] == "user"
    assert "Time to the first token" in plot.read_text()


def test_it_is_told_in_words(default_model):
    said = command("cache", "incident", "--conversations", "2").stdout
    assert "different_token in message 0 (system)" in said
    assert '"09:00:00" was held and "09:00:37" was asked' in said
    assert "move it behind what stays the same" in said
