"""The prompt, put together so that as much of it as possible is never computed twice.

A server can reuse what it computed for an earlier request as far as both begin with the same
tokens, and not one token further. So what never changes comes first, and what always does, last:

1. the tools and the instructions, which are the same for every conversation;
2. the history, which is only appended to, and is sent again exactly as it was sent and received;
3. the newest message, and at its very end what is new each time, as the date.
"""

from datetime import datetime

# No name, date, user or setting is filled in here: it would be another text for each of them.
INSTRUCTIONS = """\
You are an assistant that keeps short notes for a person. Read a note before you say what is in \
it, and write one only when you are asked to. Answer in a few sentences."""


class Conversation:
    """The messages so far. They are appended to, and never edited."""

    def __init__(self) -> None:
        self.messages: list[dict] = [{"role": "system", "content": INSTRUCTIONS}]

    def ask(self, question: str, now: datetime) -> None:
        """Appends a question, and the date behind it.

        The date stays in the history: taking it out of the last question before the next one is
        asked would change what was computed already.
        """
        if self.is_open() and self.messages[-1]["role"] == "user":
            self.messages.pop()  # It got no answer, and at the end nothing is lost by that.
        content = f"{question}\n\n(It is {now:%A, %Y-%m-%d, %H:%M}.)"
        self.messages.append({"role": "user", "content": content})

    def add_answer(self, message: dict) -> None:
        """Appends what the model said, as it came: not trimmed, no JSON written anew."""
        self.messages.append(message)

    def add_result(self, call: dict, result: str) -> None:
        """Appends what came of a call."""
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def is_open(self) -> bool:
        """Whether the model is to say something next."""
        return self.messages[-1]["role"] in ("user", "tool")

    def forget_older_half(self) -> bool:
        """Makes room in the context, if there is a question to be given up besides the last.

        Half of it goes at once. With the oldest question alone, every request from then on would
        begin otherwise than the one before it, and compute the whole history again.
        """
        asked = [at for at, message in enumerate(self.messages) if message["role"] == "user"]
        if len(asked) < 2:
            return False
        # From a question on, so that no result is left without its call.
        del self.messages[1 : asked[len(asked) // 2]]
        return True
