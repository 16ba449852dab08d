//! What each step is for, in a sentence or two, in English and Chinese.

use clap::ValueEnum;
use package::{Architecture, LayerPart, Package, Part, Suffix};

/// The language of explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    #[value(aliases = ["en-US", "en_US", "en-GB", "en_GB", "english"])]
    En,
    #[value(aliases = ["zh-CN", "zh_CN", "zh-Hans", "zh-TW", "zh_TW", "zh-Hant", "chinese"])]
    Zh,
}

impl Language {
    /// The language of the environment; English where it is not Chinese.
    pub(crate) fn detect() -> Self {
        let names = ["LC_ALL", "LC_MESSAGES", "LANG"];
        Self::of(names.map(|name| std::env::var(name).ok()))
    }

    /// The language of the first variable that is set.
    fn of(variables: [Option<String>; 3]) -> Self {
        match variables.into_iter().flatten().find(|value| !value.is_empty()) {
            Some(value) if value.starts_with("zh") => Self::Zh,
            _ => Self::En,
        }
    }
}

/// What an explanation depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    gpt2: bool,
    /// Whether several query heads share keys and values.
    shared_keys: bool,
    /// Whether the products that give q, k and v add a bias.
    biased: bool,
    /// Whether the head is the embedding table.
    tied: bool,
}

impl Kind {
    pub(crate) fn of(package: &Package) -> Self {
        let config = &package.config;
        let gpt2 = config.architecture == Architecture::Gpt2;
        let part = Part::Layer(0, if gpt2 { LayerPart::Qkv } else { LayerPart::Q });
        Self {
            gpt2,
            shared_keys: config.heads > config.kv_heads,
            biased: matches!(package.weights.vector(part, Suffix::Bias), Ok(Some(_))),
            tied: config.tied_head,
        }
    }

    /// What the step called `name` is for in such a model, in `language`; nothing for a step
    /// without an explanation.
    pub(crate) fn explain(self, name: &str, language: Language) -> &'static str {
        let applies = |models: &Models| match models {
            Models::All => true,
            Models::Gpt2 => self.gpt2,
            Models::Llama => !self.gpt2,
            Models::OwnKeys => !self.shared_keys,
            Models::SharedKeys => self.shared_keys,
            Models::Biased => self.biased,
            Models::Unbiased => !self.biased,
            Models::Tied => self.tied,
            Models::Untied => !self.tied,
        };
        let found = EXPLANATIONS.iter().find(|entry| entry.0 == name && applies(&entry.1));
        match (found, language) {
            (Some((_, _, english, _)), Language::En) => english,
            (Some((_, _, _, chinese)), Language::Zh) => chinese,
            (None, _) => "",
        }
    }
}

/// Which models an explanation is true of.
enum Models {
    All,
    Gpt2,
    Llama,
    OwnKeys,
    SharedKeys,
    Biased,
    Unbiased,
    Tied,
    Untied,
}

/// Step, models, English, Chinese.
const EXPLANATIONS: [(&str, Models, &str, &str); 27] = [
    (
        "tokens",
        Models::All,
        "The tokenizer's rules cut the text into pieces and number them. The model has done \
         nothing yet.",
        "tokenizer 按规则把文本切成 token，每个 token 对应一个编号（ID）。到这里，模型还什么都没\
         做。",
    ),
    (
        "embedding",
        Models::All,
        "Each id picks one row of a trained table: a lookup, no arithmetic. The same id gives \
         the same row wherever it stands.",
        "每个 ID 从训练好的表里取出一行：只是查表，没有计算。同一个 ID 无论在哪里，取到的都是同一\
         行。",
    ),
    (
        "position",
        Models::Gpt2,
        "A second trained table has a row for each place, so that order can matter. It is as \
         long as the longest context; only this prompt's rows are read.",
        "第二张训练好的表给每个位置备了一行，这样顺序才有意义。表的长度是上下文的上限，这里只读提\
         示词用到的几行。",
    ),
    (
        "position",
        Models::Llama,
        "GPT-2 would add a row of a position table here. This model has no such table: places \
         come in later, as rotations of q and k.",
        "GPT-2 会在这里加上位置表的一行。这个模型没有位置表：位置要到后面才进来，体现为 q 和 k 的\
         旋转。",
    ),
    (
        "input",
        Models::All,
        "What goes into the layer: one vector for each token. From here on only vectors are \
         processed, no text.",
        "送进这一层的是：每个 token 一个向量。从这里起，处理的只有向量，没有文字。",
    ),
    (
        "norm",
        Models::Gpt2,
        "Each token's vector is brought to mean 0 and variance 1 on its own, then scaled and \
         shifted by trained numbers. Nothing passes between tokens.",
        "每个 token 的向量各自归一到均值 0、方差 1，再按训练好的数缩放、平移。token 之间没有信息\
         传递。",
    ),
    (
        "norm",
        Models::Llama,
        "Each token's vector is divided by its own root mean square and scaled by trained \
         numbers. Unlike in GPT-2's norm, no mean is taken off and nothing is added. Nothing \
         passes between tokens.",
        "每个 token 的向量除以自己的均方根，再按训练好的数缩放。与 GPT-2 的归一化不同，不减均值，\
         也不加偏置。token 之间没有信息传递。",
    ),
    (
        "q k v",
        Models::Biased,
        "One product with trained weights, and a bias added, gives each token a query (what \
         it looks for), a key (what it offers) and a value (what is read from it).",
        "与训练好的权重做一次矩阵乘法，再加上偏置，每个 token 就得到 Query（要找什么）、Key（提供\
         什么线索）和 Value（被读走的内容）。",
    ),
    (
        "q k v",
        Models::Unbiased,
        "One product with trained weights gives each token a query (what it looks for), a key \
         (what it offers) and a value (what is read from it). GPT-2 would add a bias; this \
         model has none.",
        "与训练好的权重做一次矩阵乘法，每个 token 就得到 Query（要找什么）、Key（提供什么线索）和 \
         Value（被读走的内容）。GPT-2 还会加偏置，这个模型没有。",
    ),
    (
        "heads",
        Models::OwnKeys,
        "The numbers are only regrouped: each head works on its own part, side by side with \
         the others.",
        "只是把这些数重新分组：每个 head 处理自己的那一段，各个 head 并行。",
    ),
    (
        "heads",
        Models::SharedKeys,
        "The numbers are only regrouped. In GPT-2 each head has its own k and v; here several \
         query heads share them (grouped-query attention), so the KV cache is smaller.",
        "只是把这些数重新分组。GPT-2 的每个 head 有自己的 Key 和 Value；这里几个 Query head 共用\
         一组（grouped-query attention），KV 缓存因此更小。",
    ),
    (
        "rope",
        Models::All,
        "Pairs of numbers turn by an angle that grows with the position, so that a score \
         depends on how far apart two tokens are. v is not turned.",
        "数字两两成对，按随位置增大的角度旋转，于是分数取决于两个 token 相隔多远。v 不旋转。",
    ),
    (
        "scores",
        Models::All,
        "How well the query fits each key: a dot product, divided by the root of the head's \
         width, so that it does not grow with it. Values take no part in this.",
        "Query 与每个 Key 有多匹配：先做点积，再除以 head 宽度的平方根，免得分数随宽度变大。Value \
         不参与这一步。",
    ),
    (
        "mask",
        Models::All,
        "Keys of later tokens exist already, but they are hidden before the softmax: no token \
         may see what comes after it.",
        "后面 token 的 Key 已经算出来了，但在 softmax 之前就被遮住：谁也不能看到自己后面的内容。",
    ),
    (
        "weights",
        Models::All,
        "The scores become shares that sum to 1: what this head of this layer reads, and no \
         more. They are not probabilities of the next token, and not how important a token \
         is.",
        "分数变成总和为 1 的份额，只说明这一层的这个 head 从哪里读了多少。它们不是下一个 token 的\
         概率，也不代表哪个 token 有多重要。",
    ),
    (
        "values",
        Models::All,
        "Each head adds up the values of what it reads, by these shares.",
        "每个 head 按这些份额，把读到的 Value 加在一起。",
    ),
    (
        "output",
        Models::All,
        "The heads' results stand side by side; one more product with trained weights mixes \
         them.",
        "各个 head 的结果并排拼起来，再与训练好的权重相乘，混合到一起。",
    ),
    (
        "residual",
        Models::All,
        "The result is added to what was there; nothing is overwritten.",
        "结果加到原来的向量上，而不是覆盖它。",
    ),
    (
        "MLP",
        Models::Gpt2,
        "Each token alone: widened, bent by a curve, narrowed again. No other token is read.",
        "每个 token 单独处理：先变宽，经过一条曲线，再变窄。不读别的 token。",
    ),
    (
        "MLP",
        Models::Llama,
        "Each token alone; no other is read. Where GPT-2 widens once, this model widens \
         twice: one result, bent by a curve, is the other's gate (SwiGLU).",
        "每个 token 单独处理，不读别的 token。GPT-2 只变宽一次，这个模型变宽两次：一份经过曲线，\
         作为另一份的门（SwiGLU）。",
    ),
    (
        "logits",
        Models::Tied,
        "Once, after the last layer, each row gets a raw score for every id of the \
         vocabulary. The table is the embedding's own (tied), so it is stored once.",
        "只在最后一层之后做一次：每一行给词表里的每个 ID 打一个原始分。用的就是 embedding 表本身（\
         共享权重），所以只存一份。",
    ),
    (
        "logits",
        Models::Untied,
        "Once, after the last layer, each row gets a raw score for every id of the \
         vocabulary. GPT-2 takes the embedding table for this; this model has a table of its \
         own.",
        "只在最后一层之后做一次：每一行给词表里的每个 ID 打一个原始分。GPT-2 直接用 embedding 表，\
         这个模型另有一张表。",
    ),
    (
        "next",
        Models::All,
        "Softmax makes the last row's scores probabilities. Greedy takes the first; \
         temperature and top-p draw from the same row.",
        "softmax 把最后一行的分数变成概率。贪心法取第一名；temperature 和 top-p 也是从这一行里抽。",
    ),
    (
        "every row",
        Models::All,
        "Every row predicts what follows its token. Training uses them all, generation only \
         the last.",
        "每一行都预测自己后面的那个 token。训练时全都用上，生成时只用最后一行。",
    ),
    (
        "KV cache",
        Models::All,
        "The prompt was computed in one pass (prefill). Its keys and values are kept, since \
         later tokens will read them; old queries are never needed again.",
        "整段提示词一次算完（Prefill）。Key 和 Value 留下来，因为后面的 token 还要读；旧的 Query \
         再也用不着。",
    ),
    (
        "decode",
        Models::All,
        "Only the new token passes through the layers. It reads the kept keys and values, and \
         adds its own. The cache saves computing the history again, not reading it.",
        "只有新 token 走过所有的层。它读缓存里的 Key 和 Value，并把自己的加进去。缓存省下的是重算\
         历史，而不是读历史。",
    ),
    (
        "prompt cache",
        Models::All,
        "The KV cache serves one answer. A server's prompt cache lends it to other requests, \
         as far as their ids are the same from the very first one. It holds no answer and no \
         summary.",
        "KV 缓存只服务于一次回答。服务器的提示词缓存把它借给别的请求：从第一个 ID 起，相同到哪里\
         就用到哪里。它存的不是答案，也不是摘要。",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: Kind = Kind { gpt2: true, shared_keys: false, biased: true, tied: true };
    const LLAMA: Kind = Kind { gpt2: false, shared_keys: true, biased: false, tied: false };

    #[test]
    fn both_languages_explain_the_same_steps() {
        for (name, _, english, chinese) in &EXPLANATIONS {
            assert!(english.is_ascii() && english.ends_with('.'), "{name}");
            assert!(chinese.ends_with('。'), "{name}");
            for kind in [GPT2, LLAMA] {
                assert_ne!(kind.explain(name, Language::En), "", "{name}");
            }
        }
    }

    #[test]
    fn what_differs_from_gpt2_is_said_of_other_models_only() {
        for (name, _, _, _) in &EXPLANATIONS {
            let english = GPT2.explain(name, Language::En);
            assert!(!english.contains("GPT-2"), "{name}");
            assert!(!GPT2.explain(name, Language::Zh).contains("GPT-2"), "{name}");
        }
        for name in ["position", "norm", "q k v", "heads", "MLP", "logits"] {
            assert!(LLAMA.explain(name, Language::En).contains("GPT-2"), "{name}");
            assert!(LLAMA.explain(name, Language::Zh).contains("GPT-2"), "{name}");
        }
    }

    #[test]
    fn the_language_is_the_environments() {
        let set = |value: &str| Some(value.to_owned());
        assert_eq!(Language::of([None, None, set("zh_CN.UTF-8")]), Language::Zh);
        assert_eq!(Language::of([set(""), None, set("zh_TW")]), Language::Zh);
        assert_eq!(Language::of([set("C.UTF-8"), None, set("zh_CN.UTF-8")]), Language::En);
        assert_eq!(Language::of([None, None, None]), Language::En);
    }
}
