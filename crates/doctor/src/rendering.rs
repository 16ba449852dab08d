//! The same messages, rendered in another way than now: with other variables of the chat template,
//! or by the template of an earlier start.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cache::{Namespace, Reason, Stop, TokenText, Verdict};
use package::{ChatTemplate, PromptMap, Tokenizer};
use serde_json::{Map, Value};

use crate::conversation::PromptMaker;
use crate::difference::difference;
use crate::verdict::{Compared, locate, text};

/// Variables that are remembered of a namespace.
const VARIABLES_MAX: usize = 4;
/// Bytes of JSON in them; larger ones are not remembered.
const VARIABLES_BYTES_MAX: usize = 1_024;
/// Namespaces whose variables are remembered.
const NAMESPACES_MAX: usize = 1_024;

/// What a chat template makes a prompt of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Messages that [`check_messages`](crate::check_messages) gave back.
    pub messages: Vec<Value>,
    /// Tools that [`check_tools`](crate::check_tools) gave back.
    pub tools: Option<Value>,
    /// Further variables of the template (`chat_template_kwargs`).
    pub variables: Map<String, Value>,
}

/// A conversation as it may have been rendered.
#[derive(Debug, Clone)]
pub struct Rendering {
    /// Its token ids.
    pub tokens: Vec<u32>,
    /// Which message each came from.
    pub map: PromptMap,
}

/// The ways in which conversations were rendered: chat templates of earlier starts, and the
/// variables of each namespace's last requests. Nobody is told of another namespace's.
#[derive(Debug, Default)]
pub struct Renderings {
    earlier: Vec<ChatTemplate>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The last used first.
    variables: HashMap<Namespace, VecDeque<Map<String, Value>>>,
    /// Those that came first, first.
    namespaces: VecDeque<Namespace>,
}

impl Renderings {
    /// With the chat templates that rendered before the one that renders now.
    pub fn new(earlier: Vec<ChatTemplate>) -> Self {
        Self { earlier, seen: Mutex::default() }
    }

    /// Remembers the variables of a request; whether conversations of the namespace may have been
    /// rendered otherwise.
    pub fn note(&self, namespace: Namespace, variables: &Map<String, Value>) -> bool {
        let mut seen = self.lock();
        let others = seen.others(namespace, variables).next().is_some();
        seen.note(namespace, variables);
        others || !self.earlier.is_empty()
    }

    /// A conversation in the ways in which the namespace's may have been rendered, other than
    /// `maker` renders this one.
    pub fn others(
        &self,
        namespace: Namespace,
        conversation: &Conversation,
        maker: PromptMaker<'_>,
    ) -> Vec<Rendering> {
        let Conversation { messages, tools, variables } = conversation;
        let others: Vec<_> = self.lock().others(namespace, variables).collect();
        let render = |maker: PromptMaker<'_>, variables| {
            let rendered = maker.chat(messages, tools.as_ref(), variables).ok();
            rendered.map(|(encoding, map)| Rendering { tokens: encoding.ids, map })
        };
        let by_earlier = self.earlier.iter().map(|template| {
            render(PromptMaker { chat_template: Some(template), ..maker }, variables)
        });
        others.iter().map(|other| render(maker, other)).chain(by_earlier).flatten().collect()
    }

    /// Each change is whole after one statement, so that a lock which a panic poisoned is as good
    /// as another.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Other variables than these; none at all are always among those that may have been used.
    fn others(
        &self,
        namespace: Namespace,
        variables: &Map<String, Value>,
    ) -> impl Iterator<Item = Map<String, Value>> {
        let seen = self.variables.get(&namespace).into_iter().flatten().cloned();
        let all = seen.chain((!variables.is_empty()).then(Map::new));
        all.filter(move |other| other != variables)
    }

    fn note(&mut self, namespace: Namespace, variables: &Map<String, Value>) {
        let bytes = || Value::from(variables.clone()).to_string().len();
        if variables.is_empty() || bytes() > VARIABLES_BYTES_MAX {
            return;
        }
        if !self.variables.contains_key(&namespace) {
            if self.namespaces.len() >= NAMESPACES_MAX
                && let Some(first) = self.namespaces.pop_front()
            {
                self.variables.remove(&first);
            }
            self.namespaces.push_back(namespace);
        }
        let seen = self.variables.entry(namespace).or_default();
        seen.retain(|one| one != variables);
        seen.push_front(variables.clone());
        seen.truncate(VARIABLES_MAX);
    }
}

/// Makes the verdict say `template_changed` where the same messages, rendered otherwise, are held
/// for `held` tokens, and more of the messages is in those than in what was reused.
pub fn note_rendering(
    verdict: &mut Verdict,
    compared: Compared<'_>,
    rendering: &Rendering,
    held: usize,
    tokenizer: &Tokenizer,
) {
    let Compared { prompt, map: Some(map), .. } = compared else { return };
    let rendered = rendering.tokens.as_slice();
    let at = verdict.stop.at;
    let parted = prompt.iter().zip(rendered).take_while(|(own, other)| own == other).count();
    let explained = !matches!(
        verdict.stop.reason,
        Reason::FirstRequest
            | Reason::EndOfCached
            | Reason::DifferentToken
            | Reason::Retokenized
            | Reason::TemplateChanged
    );
    let further = held > at.max(verdict.stop.held_tokens.unwrap_or(0))
        && read_until(&rendering.map, held.min(rendered.len())) > read_until(map, at);
    // Where they part only behind the stop, it is no rendering that made it.
    if explained || !further || parted > at || parted >= prompt.len() || parted >= rendered.len() {
        return;
    }
    let token = |id| {
        let token = TokenText::from(id);
        Some(TokenText { text: text(tokenizer, &token), ..token })
    };
    let mut stop = Stop::new(Reason::TemplateChanged, at);
    stop.held_tokens = Some(held);
    stop.cached = token(rendered[parted]);
    stop.request = token(prompt[parted]);
    locate(&mut stop, Some(map), parted);
    stop.difference = Some(difference(parted, &rendered[parted..], prompt, true, tokenizer));
    verdict.stop = stop;
    verdict.compared_with = None;
}

/// How far the messages are in the first `tokens`: the last message of which something is, and its
/// characters up to there.
fn read_until(map: &PromptMap, tokens: usize) -> Option<(usize, usize)> {
    (0..tokens).rev().find_map(|at| {
        let location = map.locate(at..at + 1);
        location.message.zip(location.chars.map(|chars| chars[1]))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables(value: &str) -> Map<String, Value> {
        Map::from_iter([("style".to_owned(), json!(value))])
    }

    #[test]
    fn what_was_rendered_otherwise_is_remembered_for_its_namespace_alone() {
        let renderings = Renderings::default();
        let (one, other) = (Namespace::from_salt("a"), Namespace::from_salt("b"));
        assert!(!renderings.note(one, &Map::new()), "all are rendered alike");
        assert!(renderings.note(one, &variables("x")), "or without variables");
        assert!(renderings.note(one, &Map::new()));
        assert!(!renderings.note(other, &Map::new()));
        for number in 0..10 {
            renderings.note(one, &variables(&number.to_string()));
        }
        let seen: Vec<_> = renderings.lock().others(one, &variables("9")).collect();
        let wanted = [variables("8"), variables("7"), variables("6"), Map::new()];
        assert_eq!(seen, wanted);
        renderings.note(one, &variables(&"long".repeat(300)));
        assert_eq!(renderings.lock().others(one, &variables("9")).count(), wanted.len());
    }

    #[test]
    fn only_so_many_namespaces_are_remembered() {
        let renderings = Renderings::default();
        let namespace = |number: usize| Namespace::from_salt(&number.to_string());
        for number in 0..=NAMESPACES_MAX {
            renderings.note(namespace(number), &variables("x"));
        }
        assert!(!renderings.note(namespace(0), &Map::new()));
        assert!(renderings.note(namespace(1), &Map::new()));
        let seen = renderings.lock();
        assert_eq!((seen.variables.len(), seen.namespaces.len()), (NAMESPACES_MAX, NAMESPACES_MAX));
    }
}
