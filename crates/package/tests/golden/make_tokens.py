"""Makes tokens.json: texts and their ids by Hugging Face's `tokenizers`, the oracle of the
tokenizer tests.

    python make_tokens.py GPT2_VOCABULARY_DIRECTORY SMOLLM2.gguf

Needs `pip install tokenizers gguf`. The tokenizer.json files are put together here, by hand,
from what the models' own files on the hub say.
"""

import json
import pathlib
import sys

from gguf import GGUFReader
from tokenizers import Tokenizer

TEXTS = [
    "",
    " ",
    "The cat sat on",
    "The cat  sat on",
    "The cat sat on ",
    "The cat sat on the",
    "今天天气怎么样？",
    "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:01\nTools:",
    "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:02\nTools:",
    "I'm sure they'll say we've 'done' it; she'd don't SHE'D I'LL it's 'tis",
    'fn main() {\n    let x = 10_000;\n\n\tprintln!("{x:>8}");\n}\n',
    "def f(a, b):\n        return a ** 2 + b  # squares\n\n\n\nprint(f(3, 4))",
    "12345 1234567890 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥ 一二三",
    "   three leading, trailing   ",
    "tabs\t\tand\r\nCRLF\r\n\r\n and \u00a0nbsp\u3000ideographic\u2003em space\u200bzero width",
    " \n \n\n  x\n",
    "Ünïcödé: naïve café, Straße, ĳ, ﬁ, Å (A\u030a), ẛ̣",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดี",
    "日本語のテキスト、カタカナ・ひらがな。한국어 텍스트입니다.",
    "👋🏽 emoji 👩‍👩‍👧‍👦 family 🇺🇳 flag ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 😀😀😀",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "text <|endoftext|> more <|endoftext|>\n<|im_start |> <im_end>",
    "<repo_name>a/b<file_sep>x.py\n<jupyter_code>1+1<jupyter_output>2<empty_output>",
    "https://example.org/a?b=c&d=%20#frag user@example.org C:\\dir\\file.txt",
    '{"a": [1, 2.5e-10, null], "b": "\\u00e9"}',
    "!!!???...---===///\\\\\\***$$$ ~~~ `code` ```\nblock\n```",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit.\n" * 3,
    "x" + " " * 70 + "y" + "\n" * 9 + "z",
    "\x00\x01\x02\x07\x1b[0m\x7f\x80\x9f control",
    "\U0001f600\U00020000\U000e0100\ufffd\ufeff\U0010ffff",
    "snake_case camelCase SCREAMING_CASE kebab-case don’t “quotes” – — …",
]


def added(texts, vocabulary):
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return [
        {"id": vocabulary[text], "content": text, "normalized": False, "special": True} | flags
        for text in texts
    ]


def tokenizer(vocabulary, merges, special, digits):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    splitters = [{"type": "Digits", "individual_digits": True}] if digits else []
    return Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": added(special, vocabulary),
                "normalizer": None,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splitters, byte_level]},
                "post_processor": None,
                "decoder": byte_level,
                "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
            }
        )
    )


def gpt2(directory):
    vocabulary = json.loads((directory / "encoder.json").read_text())
    lines = (directory / "vocab.bpe").read_text().splitlines()[1:]
    merges = [line.split(" ") for line in lines if line]
    return tokenizer(vocabulary, merges, ["<|endoftext|>"], digits=False)


def smollm2(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [pair.split(" ") for pair in fields["tokenizer.ggml.merges"].contents()]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return tokenizer(vocabulary, merges, tokens[:17], digits=True)


def main():
    oracles = {"gpt2": gpt2(pathlib.Path(sys.argv[1])), "smollm2": smollm2(sys.argv[2])}
    cases = [
        {"text": text} | {name: oracle.encode(text).ids for name, oracle in oracles.items()}
        for text in TEXTS
    ]
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_name("tokens.json").write_text(f"[\n{lines}\n]\n")


main()
