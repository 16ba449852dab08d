"""What was reused of a prompt, and why not more: one line after each answer."""

from answer import Answer

# Why reuse stopped where it did. The first two are what a conversation should see.
REASONS = {
    "end_of_cached": "the conversation went on from there",
    "end_of_prompt": "nothing was new",
    "first_request": "nothing that begins like this is held",
    "evicted": "the rest had to make room",
    "expired": "the rest was kept no longer",
    "retokenized": "the same text has other tokens",
    "template_changed": "the chat template wrote the same messages otherwise",
    "different_model": "the rest is held of another model",
}


def line(answer: Answer) -> str:
    """`reused 200 of 230 prompt tokens (87 %), computed 30: the conversation went on from there`"""
    if answer.usage is None:
        return "the server does not say what was reused"
    tokens, details = answer.usage.prompt_tokens, answer.usage.prompt_tokens_details
    reused = details and details.cached_tokens or 0
    share = 100 * reused // max(tokens, 1)
    said = f"reused {reused} of {tokens} prompt tokens ({share} %), computed {tokens - reused}"
    stop = answer.refrain.get("verdict", {}).get("stop")
    return f"{said}: {_why(answer.refrain['verdict'])}" if stop else said


def _why(verdict: dict) -> str:
    stop = verdict["stop"]
    if stop["reason"] != "different_token":
        return REASONS.get(stop["reason"], stop["reason"])
    # Where the prompt and what is held part: this is how a clock in the instructions is found.
    before, now = (_short(stop.get(name)) for name in ("cached_text", "request_text"))
    place = f"message {stop['message']} ({stop['role']})" if stop.get("role") else "the prompt"
    why = f"{place} had {before} and has {now}"
    lost = stop.get("identical_after")
    why += f", {lost} tokens after it were the same" if lost else ""
    return why + (f"; {verdict['advice']}" if verdict.get("advice") else "")


def _short(text: str | None) -> str:
    text = text or ""
    return repr(text if len(text) <= 30 else f"{text[:30]}…")
