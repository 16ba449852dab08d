"""An assistant that keeps notes: a conversation in the terminal, with a running Refrain server.

    python examples/assistant/assistant.py

It asks before it changes anything, and says after each answer what was reused of the prompt. A
line is a question; `/use TOOL question` makes the model call a tool, which small models seldom do
by themselves; an empty line asks again what got no answer; Ctrl-D ends, Ctrl-C stops an answer.
"""

import argparse
import os
import sys
import time
from datetime import datetime
from pathlib import Path

import openai

import reuse
from answer import Answer, Broken, stream
from conversation import Conversation
from notes import DEFINITIONS, Notes

# How often an answer may call tools before the person is asked for the next question.
ROUNDS = 4
# How often to come again when there are too many requests, and for how long to wait at most.
TRIES, WAIT_SECONDS = 5, 60


def main() -> None:
    flags = argparse.ArgumentParser(description="A conversation with a running Refrain server.")
    url = os.environ.get("REFRAIN_URL", "http://127.0.0.1:8080")
    flags.add_argument("--url", default=url, help="the server's address [REFRAIN_URL]")
    flags.add_argument("--notes", type=Path, default=Path("notes"), help="where the notes are")
    given = flags.parse_args()
    # The client would come again by itself; here the person is to see it.
    key = os.environ.get("REFRAIN_API_KEY", "none")
    client = openai.OpenAI(base_url=f"{given.url}/v1", api_key=key, max_retries=0, timeout=120)
    try:
        model = client.models.list().data[0].id
    except openai.OpenAIError as error:
        sys.exit(explain(error))
    notes, conversation = Notes(given.notes, permit), Conversation()
    while (line := read("you> ")) is not None:
        tool, question = parse(line)
        if question:
            conversation.ask(question, datetime.now())
        if not conversation.is_open():
            continue
        try:
            answer_question(client, model, conversation, notes, tool)
        except (openai.OpenAIError, Broken) as error:
            show(f"\n{explain(error)}\n(an empty line asks again)\n")
        except KeyboardInterrupt:
            show("\nstopped (an empty line asks again)\n")


def answer_question(
    client: openai.OpenAI,
    model: str,
    conversation: Conversation,
    notes: Notes,
    tool: str | None,
) -> None:
    """Lets the model answer, and call tools until it needs none.

    Only complete answers and results are added to the conversation, one after the other, so that
    it can go on from wherever an error stops it.
    """
    for _ in range(ROUNDS):
        request = {"model": model, "temperature": 0, "tools": DEFINITIONS}
        if tool is not None:
            # It leaves the prompt as it is. Sending this tool alone would not.
            request["tool_choice"] = {"type": "function", "function": {"name": tool}}
        answer = send(client, request, conversation)
        cut = " (cut off)" if answer.finish_reason == "length" else ""
        show(f"{cut}\n[{reuse.line(answer)}]\n")
        conversation.add_answer(answer.message)
        for call in answer.calls:
            result = notes.call(call["function"]["name"], call["function"]["arguments"])
            show(f"<- {result}\n")
            conversation.add_result(call, result)
        if not answer.calls:
            return
        tool = None
    show("(too many calls in one answer; an empty line lets it go on)\n")


def send(client: openai.OpenAI, request: dict, conversation: Conversation) -> Answer:
    """Gets one answer: waits where there are too many requests, and forgets where there is no
    room. Both are refusals before the first word, so nothing is answered twice."""
    for tries_left in reversed(range(TRIES)):
        try:
            return stream(client, request | {"messages": conversation.messages}, show)
        except openai.RateLimitError as error:
            wait = float(error.response.headers.get("retry-after", 1))
            if tries_left == 0 or wait > WAIT_SECONDS:
                raise
            show(f"(too many requests: waiting {wait:.0f} s)\n")
            time.sleep(wait)
        except openai.BadRequestError as error:
            is_too_long = error.code == "context_length_exceeded"
            if tries_left == 0 or not is_too_long or not conversation.forget_older_half():
                raise
            show("(the context is full: forgetting the older half of the conversation)\n")
    raise AssertionError("the last try returns or raises")


def explain(error: Exception) -> str:
    """What happened, and what to do about it."""
    match error:
        case openai.APITimeoutError():
            return "The server takes too long."
        case openai.APIConnectionError():
            return f"No server at {error.request.url}. `refrain serve` starts one."
        case Broken():
            return f"The answer broke off: {error}."
        case openai.AuthenticationError():
            return "The server does not know this key. REFRAIN_API_KEY is where it is read from."
        case openai.RateLimitError():
            return f"Still too many requests: {error.message}"
        case openai.BadRequestError(code="context_length_exceeded"):
            return f"This question alone is too long: {error.message}"
        case _:
            return f"The server says: {error}"


def permit(what: str) -> bool:
    """Asks the person. No answer is no."""
    return (read(f"allow {what}? [y/N] ") or "").lower() in ("y", "yes")


def parse(line: str) -> tuple[str | None, str]:
    """A line to the tool that must be called, if one must, and the question."""
    if not line.startswith("/use "):
        return None, line
    _, tool, question = [*line.split(maxsplit=2), "", ""][:3]
    return tool, question


def read(prompt: str) -> str | None:
    """A line, or nothing at the end of the input."""
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        show("\n")
        return None


def show(text: str) -> None:
    print(text, end="", flush=True)


if __name__ == "__main__":
    main()
