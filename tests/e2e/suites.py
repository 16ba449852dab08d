"""What fails of the tests that OpenAI and Anthropic ship with their Python clients, and why.

Each line is a file, a pattern of tests' names, and the reason. Every test that a line names has to
fail, in all its variants (loose and strict validation, plain and asynchronous, each transport), and
every other one of the files has to pass.
"""

from fnmatch import fnmatchcase

STORED = "answers are not stored as OpenAI's, to be listed, changed or deleted later"
SPEECH = "asks for a spoken answer and a web search, which there are not"
INSERTION = "asks for text to be inserted before a suffix; `logit_bias` names no token"
NOTHING = "asks for an answer to nothing: the request has no input"
BACKGROUND = "asks for an answer in the background, and for the vendor's tools and templates"
UNKNOWN = "names a response that this server has not given"
COMPACTION = "conversations are compacted by clients, not here"
WEIGHTS = "the served model cannot be deleted by a client"
CONTAINER = "asks for a container with skills, to run code in"
OTHER_SERVERS = "asks this server to call others (MCP), and to edit the conversation"

# Paths begin in the folder of the tests by endpoint. Of a file with an empty pattern all pass.
OPENAI = [
    ("chat/test_completions.py", "test_method_create_with_all_params_*", SPEECH),
    ("chat/test_completions.py", "test_[mrs]*_retrieve", STORED),
    ("chat/test_completions.py", "test_[mrs]*_update", STORED),
    ("chat/test_completions.py", "test_*_list*", STORED),
    ("chat/test_completions.py", "test_[mrs]*_delete", STORED),
    ("chat/completions/test_messages.py", "test_[mrs]*_list*", STORED),
    ("test_completions.py", "test_method_create_with_all_params_*", INSERTION),
    ("test_models.py", "test_[mrs]*_delete", WEIGHTS),
    ("test_responses.py", "test_method_create_with_all_params_*", BACKGROUND),
    ("test_responses.py", "test_[mrs]*_create_overload_*", NOTHING),
    ("test_responses.py", "test_[mrs]*_retrieve_*", UNKNOWN),
    ("test_responses.py", "test_[mrs]*_delete", UNKNOWN),
    ("test_responses.py", "test_[mrs]*_cancel", UNKNOWN),
    ("test_responses.py", "test_*_compact*", COMPACTION),
    ("responses/test_input_items.py", "test_[mrs]*_list*", UNKNOWN),
    ("responses/test_input_tokens.py", "test_*_count*", NOTHING),
]
ANTHROPIC = [
    ("test_messages.py", "test_method_create_with_all_params_*", CONTAINER),
    ("beta/test_messages.py", "test_method_create_with_all_params_*", OTHER_SERVERS),
    ("test_models.py", "", ""),
    ("beta/test_models.py", "", ""),
]


def files(suite) -> list[str]:
    """The files of a suite, each once."""
    return list(dict.fromkeys(file for file, _, _ in suite))


def reason(suite, file: str, test: str) -> str | None:
    """Why a test is expected to fail; `None` where it is expected to pass."""
    found = [why for path, names, why in suite if path == file and fnmatchcase(test, names)]
    return found[0] if found else None
