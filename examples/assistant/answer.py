"""One request, and its answer piece by piece."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from openai import APIConnectionError, OpenAI
from openai.types import CompletionUsage

ANSWER_TOKENS = 400


class Broken(Exception):
    """The stream ended before the answer did."""


@dataclass
class Answer:
    """What an answer is when it is complete."""

    message: dict
    # `stop`, `tool_calls`, or `length` where it was cut off.
    finish_reason: str
    usage: CompletionUsage | None
    # Refrain's account of the request; another server has none.
    refrain: dict = field(default_factory=dict)

    @property
    def calls(self) -> list[dict]:
        return self.message.get("tool_calls", [])


def stream(client: OpenAI, request: dict, show: Callable[[str], None]) -> Answer:
    """Sends `request`, and shows text and calls as they come.

    Raises what the client raises, and `Broken`. What was shown until then is no part of any
    history: half an answer is not what the model would have said.
    """
    text, reasoning, calls = [], [], []
    finish_reason, usage, refrain = None, None, {}
    chunks = client.chat.completions.create(
        **request,
        max_completion_tokens=ANSWER_TOKENS,
        stream=True,
        # Or else a stream does not say how much came from the cache.
        stream_options={"include_usage": True},
    )
    with chunks:  # Closed in any case, so that the server stops when nobody listens any more.
        for chunk in _unbroken(chunks):
            usage = chunk.usage or usage
            refrain = (chunk.model_extra or {}).get("refrain") or refrain
            for choice in chunk.choices:
                delta = choice.delta
                text.append(delta.content or "")
                reasoning.append((delta.model_extra or {}).get("reasoning_content") or "")
                show(delta.content or "")
                for part in delta.tool_calls or []:
                    show(_add(calls, part))
                finish_reason = choice.finish_reason or finish_reason
    if finish_reason is None:
        raise Broken("the answer ended without a reason")
    message = {"role": "assistant", "content": "".join(text) or (None if calls else "")}
    # Sent again too: some chat templates show a model what it thought before its last call.
    message |= {"reasoning_content": "".join(reasoning)} if any(reasoning) else {}
    message |= {"tool_calls": calls} if calls else {}
    return Answer(message, finish_reason, usage, refrain)


def _unbroken(chunks: Iterable) -> Iterator:
    """A connection that is lost midway is not the same as one that cannot be made."""
    try:
        yield from chunks
    except APIConnectionError as error:
        raise Broken("the connection was lost") from error


def _add(calls: list[dict], part) -> str:
    """Adds a piece of a call to what there is of it, and says what to show of it."""
    if part.index == len(calls):
        function = {"name": part.function.name, "arguments": ""}
        calls.append({"id": part.id, "type": "function", "function": function})
        start = f"-> {part.function.name} "
    else:
        start = ""
    fragment = part.function.arguments or ""
    calls[part.index]["function"]["arguments"] += fragment
    return start + fragment
