//! Examples of every command, as `--help` and the manual show them.

/// A command by its path, `check exact`, and its examples; the program itself has the empty path.
pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    (
        "",
        "\
refrain serve                        an OpenAI-compatible server
refrain run                          a chat in the terminal
refrain run -p 'Why is the sky blue?'
refrain trace -p 'The cat sat on'    every step of the model, with its numbers
refrain why --prompt a.json --against b.json
                                     what b reuses after a, and why not more
refrain check article                the model, held to the article row by row
refrain bench -p 512 -n 128          tokens per second, as llama-bench",
    ),
    (
        "serve",
        "\
refrain serve
refrain serve ./model.gguf --port 8000 --kv-budget 2GiB
REFRAIN_PORT=8000 refrain serve
refrain serve --api-keys keys.txt    for who has a key of refrain key NAME
refrain serve --tls-cert chain.pem --tls-key key.pem
refrain serve --cors-origin http://localhost:3000
curl 127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
  -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | jq .refrain.verdict",
    ),
    (
        "run",
        "\
refrain run                          chat; Ctrl-C stops, Ctrl-D leaves
refrain run -p 'Name three rivers.' --temperature 0
refrain run --system 'Answer in French.' < question.txt
refrain run ./model.gguf --raw -p 'The cat sat on' --max-tokens 8 --json",
    ),
    (
        "trace",
        "\
refrain trace -p 'The cat sat on'
refrain trace -p 'The cat sat on' --lang zh
refrain trace -p 'The cat sat on' --layer 3 --head 1 --query 2
refrain trace -p 'The cat sat on' --decode 2 --rows --top 3
refrain trace -p 'The cat sat on' --list --decode 1
refrain trace -p 'The cat sat on' --tensor 'blocks.0.attn.hook_z[0,0,-1]'
refrain trace -p 'The cat sat on' --decode 1 --tensor decode.0.kv_cache.0.keys
refrain trace -p 'The cat sat on' --save cat.safetensors
refrain trace -p 'The cat sat on' --compare pytorch.npy --tolerance 0.01
refrain trace -p 'The cat sat on' --json | jq .attention.weights",
    ),
    (
        "pull",
        "\
refrain pull                         the default model
refrain pull hub:org/name/model.gguf",
    ),
    (
        "info",
        "\
refrain info
refrain info ./model.gguf --json | jq .memory",
    ),
    (
        "tokenize",
        "\
refrain tokenize 'The cat sat on'
refrain tokenize ./model.gguf 'The cat sat on' --json",
    ),
    (
        "why",
        "\
refrain why --prompt a.json --against b.json
refrain why ./model.gguf --prompt before.txt --against after.txt --json",
    ),
    (
        "bench",
        "\
refrain bench                        pp512 and tg128
refrain bench -p 512,2048 -n 128 -d 0,4096 -t 1,2
refrain bench --limits               beside what the machine can do at most
refrain bench --compare -r 7 --peer ../llama.cpp/build/bin/llama-bench
refrain bench --plot growth.svg",
    ),
    (
        "cache",
        "\
refrain cache ls                     the prefixes that a server holds
refrain cache stats
refrain cache replay trace.jsonl     what would have been reused of a trace
refrain cache incident               what a clock in the system prompt costs",
    ),
    (
        "cache ls",
        "\
refrain cache ls
refrain cache ls -n 100 --url http://127.0.0.1:8000 --json | jq .prefixes",
    ),
    (
        "cache show",
        "\
refrain cache show 3f0c9a51d27e",
    ),
    (
        "cache pin",
        "\
refrain cache pin 3f0c9a51d27e manual
refrain cache unpin manual",
    ),
    (
        "cache unpin",
        "\
refrain cache unpin manual",
    ),
    (
        "cache evict",
        "\
refrain cache evict 3f0c9a51d27e",
    ),
    (
        "cache clear",
        "\
refrain cache clear
refrain cache clear --cache-salt tenant-7",
    ),
    (
        "cache stats",
        "\
refrain cache stats
refrain cache stats --json | jq .disk",
    ),
    (
        "cache replay",
        "\
refrain cache replay trace.jsonl
refrain cache replay trace.jsonl --capacity 1Mi,4Mi,unbounded --plot hits.svg
refrain cache replay requests.jsonl --model ./model.gguf --json",
    ),
    (
        "cache incident",
        "\
refrain cache incident --plot incident.svg
refrain cache incident --conversations 20 --json
refrain cache incident --price input=1,cached=0.1,output=4",
    ),
    (
        "check",
        "\
refrain check exact                  reuse changes no bit
refrain check article                the article's 185 rows",
    ),
    (
        "check exact",
        "\
refrain check exact
refrain check exact ./model.gguf --json",
    ),
    (
        "check article",
        "\
refrain check article
refrain check article ./random-distilgpt2 --json
refrain check article --distilgpt2 ./distilgpt2",
    ),
    (
        "key",
        "\
refrain key alice >> keys.txt        the key is shown, its hash is kept
refrain key alice --json | jq -r .key",
    ),
    (
        "completions",
        "\
source <(refrain completions bash)   bash, in this shell; or for every one:
mkdir -p ~/.local/share/bash-completion/completions
refrain completions bash > ~/.local/share/bash-completion/completions/refrain
mkdir -p ~/.zfunc                    zsh; in ~/.zshrc, before compinit:
refrain completions zsh > ~/.zfunc/_refrain
fpath=(~/.zfunc $fpath)
mkdir -p ~/.config/fish/completions
refrain completions fish > ~/.config/fish/completions/refrain.fish",
    ),
    (
        "man",
        "\
refrain man | man -l -
refrain man trace | man -l -         the page of one command
refrain man --dir ~/.local/share/man/man1",
    ),
];

/// The examples of the command at `path`.
pub(crate) fn of(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(command, _)| *command == path).map(|(_, text)| *text)
}
