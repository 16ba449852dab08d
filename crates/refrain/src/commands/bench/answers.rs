//! What guessing an answer's tokens brings: three questions whose answers copy, and three whose
//! answers do not, asked of an engine that guesses and of one that does not.

use engine::{Engine, Event, Request, Sampling};
use package::Package;
use serde_json::json;

use super::run::Question;
use crate::commands::answer::conversation;
use crate::failure::Failure;

/// Longest answer in tokens.
const ANSWER_TOKENS: usize = 256;

/// What is asked.
fn text(question: Question) -> String {
    match question {
        Question::Repeat => format!("Repeat this text word for word:\n\n{TEXT}"),
        Question::Edit => {
            format!("Add a comment at the top of this file:\n\n```python\n{FILE}```")
        }
        Question::Extract => format!(
            "Read this document:\n\n{DOCUMENT}\n\nExtract the full text of Article 2 and \
             Article 3."
        ),
        Question::Story => "Tell me a short story about a lighthouse.".to_owned(),
        Question::Explanation => "Explain how bread rises when it is baked.".to_owned(),
        Question::Advice => "How can I learn to play the piano as an adult?".to_owned(),
    }
}

/// The question as the model's chat template asks it.
pub(super) fn prompt(package: &Package, question: Question) -> Result<Vec<u32>, Failure> {
    let messages = [json!({"role": "user", "content": text(question)})];
    let (_, encoding) = conversation(package, &messages, "--speculation needs one")?;
    Ok(encoding.ids)
}

/// The answer of the likeliest tokens: its tokens, and how many were decoded in a second. Nothing
/// is kept for the next, which would only have to be copied.
pub(super) fn ask(engine: &Engine, prompt: &[u32]) -> Result<(Vec<u32>, f64), Failure> {
    let request = Request {
        max_tokens: Some(ANSWER_TOKENS),
        sampling: Sampling::greedy(),
        use_cache: false,
        ..Request::new("bench", prompt.to_vec(), cache::Namespace::default())
    };
    let mut events = engine.submit(request).map_err(Failure::new)?;
    let mut answer = Vec::new();
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Delta { tokens, .. } => answer.extend(tokens.iter().map(|token| token.id)),
            Event::Done { timings, tokens, .. } => {
                let rate =
                    super::engine::per_second(tokens.output.saturating_sub(1), timings.decode_ms)?;
                return Ok((answer, rate));
            }
            Event::Failed(error) => return Err(Failure::new(error)),
            _ => {}
        }
    }
    Err(Failure::new("the engine stopped"))
}

const TEXT: &str = "\
The harbour town of Brannick lies between two hills and the sea. In spring, the fishing boats \
leave before sunrise, and the gulls follow them out past the old stone pier. Children gather \
mussels on the flat rocks when the tide is low, while their grandparents mend nets in the shade \
of the chapel wall. On market days, the square fills with carts of onions, barrels of salted \
herring, baskets of brown eggs, and bolts of grey wool. A brass band plays near the fountain \
until noon, when everyone goes home to eat. In the evening, the lamps along the quay are lit one \
by one, and the keeper of the inn reads the newspaper aloud to those who have come in from the \
cold.";

const FILE: &str = "\
class Account:
    \"\"\"Money that belongs to one customer.\"\"\"

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError(\"the amount must be positive\")
        self.balance += amount
        self.history.append((\"deposit\", amount))

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError(\"there is not enough money\")
        self.balance -= amount
        self.history.append((\"withdraw\", amount))

    def report(self):
        for kind, amount in self.history:
            print(f\"{self.owner}: {kind} {amount}\")
        print(f\"{self.owner}: balance {self.balance}\")
";

const DOCUMENT: &str = "\
Article 1. The association is called the Friends of the Old Mill and has its seat in \
Hartwell.\n\n\
Article 2. The purpose of the association is to preserve the mill, to keep its wheel and its \
stones in working order, and to open it to visitors on at least forty days of every year.\n\n\
Article 3. Members pay a yearly contribution of twelve pounds, which is due on the first of \
March. Members who have not paid by the end of June lose their right to vote at the general \
meeting.\n\n\
Article 4. The general meeting takes place once a year in the month of September. It elects \
a chair, a treasurer and a secretary, who together form the board and serve for two years.";
