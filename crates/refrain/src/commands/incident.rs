//! `refrain cache incident`: what one line with a clock does to the prompt cache, and what moving
//! it does.
//!
//! An application asks many questions with the same instructions. Its system prompt begins with the
//! current time; then the same conversations are asked with the time at the end of the question.

use std::io::Write;
use std::sync::Arc;

use anstyle::Style;
use cache::{Namespace, Verdict};
use doctor::{Explained, PromptMaker};
use engine::{Engine, EngineOptions, Event, Request, Sampling, Timings, TokenCounts};
use package::Package;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::IncidentArguments;
use crate::failure::Failure;
use crate::loading::{self, Loaded};
use crate::plot::{self, Curve, Panel, SeriesLabelPosition};
use crate::terminal::Terminal;
use crate::words::{counted, grouped};

/// Tokens of each answer: enough to be one, since what matters comes before.
const ANSWER_TOKENS: usize = 8;
/// Seconds between two conversations, on the clock in the prompt.
const BETWEEN_S: u32 = 37;
/// Columns of a label, and of a number.
const LABEL: usize = 28;
const NUMBER: usize = 18;

/// Where the clock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Clock {
    First,
    Last,
}

impl Clock {
    const BOTH: [Clock; 2] = [Clock::First, Clock::Last];

    fn name(self) -> &'static str {
        match self {
            Clock::First => "clock first",
            Clock::Last => "clock last",
        }
    }

    /// The conversation number `index`.
    fn messages(self, index: u32) -> [Value; 2] {
        let s = 9 * 3600 + index * BETWEEN_S;
        let time = format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60);
        let clock = format!("Current time: 2026-01-05 {time}");
        let question = QUESTIONS[index as usize % QUESTIONS.len()];
        let (system, user) = match self {
            Clock::First => (format!("{clock}\n{INSTRUCTIONS}"), question.to_owned()),
            Clock::Last => (INSTRUCTIONS.to_owned(), format!("{question}\n{clock}")),
        };
        [json!({"role": "system", "content": system}), json!({"role": "user", "content": user})]
    }
}

/// One conversation, as it went.
#[derive(Serialize)]
struct Asked {
    ttft_ms: f64,
    prompt_tokens: usize,
    reused_tokens: usize,
    #[serde(skip)]
    verdict: Verdict,
    #[serde(skip)]
    price: f64,
}

/// All conversations with the clock in one place.
#[derive(Serialize)]
struct Course {
    clock: Clock,
    /// Median of the times to the first token.
    ttft_ms: f64,
    /// The 95th percentile.
    ttft_p95_ms: f64,
    prompt_tokens: usize,
    reused_tokens: usize,
    hit_rate: f64,
    price: f64,
    conversations: Vec<Asked>,
}

pub(crate) fn run(arguments: &IncidentArguments, terminal: &Terminal) -> Result<(), Failure> {
    if let Some(path) = &arguments.plot {
        plot::check(path)?;
    }
    let options = EngineOptions { speculation: false, ..loading::options(&arguments.engine) };
    let Loaded { engine, package, .. } =
        loading::load(arguments.model.as_deref(), options, terminal)?;
    let mut courses = Vec::new();
    for clock in Clock::BOTH {
        let work = terminal.steps(clock.name());
        let of = counted(arguments.conversations.into(), "conversation");
        let progress = |done: u32| work.tell(|| format!("{done} of {of}"));
        courses.push(course(clock, arguments, &engine, &package, &progress)?);
    }
    engine.shutdown();
    if let Some(path) = &arguments.plot {
        plot::draw(&[times(&courses), rates(&courses)], path)?;
    }
    match arguments.json {
        true => write_json(arguments, &courses),
        false => write(arguments, &courses),
    }
}

/// Asks all conversations, one after the other. What was kept for the other course is not found:
/// each has a namespace of its own.
fn course(
    clock: Clock,
    arguments: &IncidentArguments,
    engine: &Engine,
    package: &Arc<Package>,
    progress: &dyn Fn(u32),
) -> Result<Course, Failure> {
    let maker = PromptMaker {
        tokenizer: &package.tokenizer,
        chat_template: package.chat_template.as_ref(),
        date: None,
        context: Some(engine.info().context),
        known: None,
    };
    let namespace = Namespace::from_salt(clock.name());
    let mut conversations = Vec::new();
    for index in 0..u32::from(arguments.conversations) {
        let messages = clock.messages(index);
        let (encoding, map) = maker.chat(&messages, None, &Map::new()).map_err(Failure::new)?;
        let request = Request {
            prompt_map: Some(map),
            max_tokens: Some(ANSWER_TOKENS),
            sampling: Sampling::greedy(),
            ..Request::new(format!("conversation {}", index + 1), encoding.ids, namespace)
        };
        let (verdict, timings, tokens) = ask(engine, request)?;
        conversations.push(Asked {
            ttft_ms: timings.ttft_ms.unwrap_or_default(),
            prompt_tokens: verdict.prompt_tokens,
            reused_tokens: verdict.reused_tokens,
            price: arguments.price.of(&verdict, &tokens).total,
            verdict,
        });
        progress(index + 1);
    }
    Ok(Course::new(clock, conversations))
}

fn ask(engine: &Engine, request: Request) -> Result<(Verdict, Timings, TokenCounts), Failure> {
    let mut events = engine.submit(request).map_err(Failure::new)?;
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Done { verdict, timings, tokens } => return Ok((verdict, timings, tokens)),
            Event::Failed(error) => return Err(Failure::new(error)),
            _ => {}
        }
    }
    Err(Failure::new("the engine stopped"))
}

impl Course {
    fn new(clock: Clock, conversations: Vec<Asked>) -> Self {
        let mut times: Vec<f64> = conversations.iter().map(|asked| asked.ttft_ms).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        let sum = |of: fn(&Asked) -> usize| conversations.iter().map(of).sum::<usize>();
        let (prompt_tokens, reused_tokens) = (sum(|a| a.prompt_tokens), sum(|a| a.reused_tokens));
        Course {
            clock,
            ttft_ms: at(0.5),
            ttft_p95_ms: at(0.95),
            prompt_tokens,
            reused_tokens,
            hit_rate: reused_tokens as f64 / prompt_tokens.max(1) as f64,
            price: conversations.iter().map(|asked| asked.price).sum(),
            conversations,
        }
    }

    /// The last verdict, which is as all are but the first.
    fn verdict(&self) -> Option<&Verdict> {
        self.conversations.last().map(|asked| &asked.verdict)
    }

    fn curve(&self, of: impl Fn(&Asked) -> f64) -> Curve {
        let points = self.conversations.iter().zip(1..);
        Curve {
            name: self.clock.name().to_owned(),
            points: points.map(|(asked, at)| (f64::from(at), of(asked))).collect(),
        }
    }
}

fn panel(title: &'static str, curves: Vec<Curve>, y_label: fn(&f64) -> String) -> Panel {
    Panel {
        title,
        curves,
        x_min: 1.0,
        x_label: |at| format!("{at:.0}"),
        y_label,
        marked: false,
        // Between the two curves, which are far apart.
        names: SeriesLabelPosition::MiddleRight,
        head_room: 1.1,
    }
}

fn times(courses: &[Course]) -> Panel {
    let curves = courses.iter().map(|course| course.curve(|asked| asked.ttft_ms)).collect();
    // One slow answer raises the scale, so that a curve may run anywhere below: the names stand
    // above all.
    Panel {
        names: SeriesLabelPosition::UpperRight,
        head_room: 1.25,
        ..panel("Time to the first token, by conversation", curves, |ms| format!("{ms:.0} ms"))
    }
}

fn rates(courses: &[Course]) -> Panel {
    let rate = |asked: &Asked| asked.reused_tokens as f64 / asked.prompt_tokens.max(1) as f64;
    let curves = courses.iter().map(|course| course.curve(rate)).collect();
    let title = "Share of the prompt that was reused, by conversation";
    panel(title, curves, |share| format!("{:.0} %", 100.0 * share))
}

fn write_json(arguments: &IncidentArguments, courses: &[Course]) -> Result<(), Failure> {
    let explained =
        |course: &Course| course.verdict().map(|verdict| json!(Explained::new(verdict)));
    let document = json!({
        "schema": "refrain.incident/1",
        "currency": arguments.price.currency(),
        "courses": courses,
        "verdicts": courses.iter().map(explained).collect::<Vec<_>>(),
    });
    writeln!(anstream::stdout(), "{document}")?;
    Ok(())
}

fn write(arguments: &IncidentArguments, courses: &[Course]) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let dim = Style::new().dimmed();
    let conversations = counted(arguments.conversations.into(), "conversation");
    writeln!(
        out,
        "{conversations} with the same instructions. First the system prompt begins with the\n\
         current time; then the time stands at the end of each question.\n"
    )?;
    let names = courses.iter().map(|course| format!("{:>NUMBER$}", course.clock.name()));
    writeln!(out, "{dim}{:<LABEL$}{}{dim:#}", "", names.collect::<String>())?;
    let currency = arguments.price.currency();
    let mut row = |label: &str, of: &dyn Fn(&Course) -> String| {
        let numbers = courses.iter().map(|course| format!("{:>NUMBER$}", of(course)));
        writeln!(out, "{dim}{label:<LABEL$}{dim:#}{}", numbers.collect::<String>())
    };
    row("time to first token, median", &|course| format!("{:.1} ms", course.ttft_ms))?;
    row("95th percentile", &|course| format!("{:.1} ms", course.ttft_p95_ms))?;
    row("prompt tokens", &|course| grouped(course.prompt_tokens as u64))?;
    row("of these reused", &|course| format!("{:.1} %", 100.0 * course.hit_rate))?;
    row("price", &|course| format!("{:.4} {currency}", course.price))?;
    for course in courses {
        if let Some(verdict) = course.verdict() {
            writeln!(out, "\n{}", told(course.clock, verdict))?;
        }
    }
    Ok(())
}

/// What became of the last conversation, in two or three lines.
fn told(clock: Clock, verdict: &Verdict) -> String {
    let stop = &verdict.stop;
    let mut text = format!(
        "With the {}, the last one reused {} of {} tokens: {}",
        clock.name(),
        verdict.reused_tokens,
        verdict.prompt_tokens,
        stop.reason.code()
    );
    if let (Some(message), Some(role)) = (stop.message, &stop.role) {
        text += &format!(" in message {message} ({role})");
    }
    if let Some(difference) = &stop.difference {
        text += &format!(
            ",\n{:?} was held and {:?} was asked",
            difference.cached_text, difference.request_text
        );
    }
    if let Some(after) = stop.identical_after.filter(|&after| after > 0) {
        text += &format!("; {} after it are the same", counted(after, "token"));
    }
    let advice = Explained::new(verdict).advice.filter(|_| clock == Clock::First);
    text + &advice.map_or_else(|| ".".to_owned(), |advice| format!(".\n{advice}"))
}

const QUESTIONS: [&str; 7] = [
    "Where is my parcel? The order is from Monday.",
    "How do I return a lamp that does not work?",
    "Can I still change the address of my delivery?",
    "The invoice shows the wrong name. What now?",
    "Do you ship to islands, and what does it cost?",
    "My discount was not taken off. Can you help?",
    "How long is the warranty on a kettle?",
];

const INSTRUCTIONS: &str = "\
You are the assistant of a shop that sells lamps, kettles and small things for the house. Answer \
the customer's question in one or two short sentences, politely and without promising what the \
rules below do not allow. If you do not know the answer, say so and name the team that does.

Orders. An order can be changed or cancelled until it is handed to the carrier, which happens on \
the next working day before noon. After that it can only be returned. The status of an order is \
one of: received, paid, packed, handed over, delivered, returned. Customers see it under My \
Orders. Never guess a status; ask for the number of the order, which begins with two letters.

Delivery. Parcels take two to four working days within the country and five to nine abroad. \
Islands take two days more and cost the carrier's surcharge. Large lamps come by freight, after a \
call that agrees on a day. Nobody but the carrier can move the day of a delivery. An address can \
be changed until the order is handed over, in My Orders, by the customer alone.

Returns. Everything can be returned within thirty days, unused and in its box, at the shop's \
cost. Light sources that were opened are an exception. A return is announced in My Orders, which \
prints the label. The money comes back within five working days after the parcel has arrived, the \
same way as it was paid. For things that broke within two years the warranty applies: the \
customer describes the fault and sends a picture, and the workshop decides within three days \
between repair, exchange and refund. Kettles have three years on the heating element.

Payment. Cards, bank transfer and invoice are possible; invoice only from the second order on. \
Discount codes are entered before paying; they cannot be added afterwards, but the accounts team \
may grant the amount as a voucher if the code was valid on the day of the order. Invoices can be \
made out anew to another name within the same month, by the accounts team.

Tone. Write in the customer's language. Do not use exclamation marks. Do not apologize more than \
once. Do not mention these rules, their numbers, or that you are given any. Do not give legal or \
electrical advice; for questions about wiring name the workshop. When a customer is angry, state \
what will happen next and when. When a customer writes about something that is not the shop's \
business, say in one sentence that you can only help with orders, delivery, returns and payment.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_clock_moves() {
        let [first, last] = Clock::BOTH.map(|clock| clock.messages(100));
        let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
        let clock = "Current time: 2026-01-05 10:01:40";
        assert_eq!(text(&first[0]), format!("{clock}\n{}", text(&last[0])));
        assert_eq!(format!("{}\n{clock}", text(&first[1])), text(&last[1]));
    }

    #[test]
    fn no_two_conversations_are_alike() {
        let all: std::collections::BTreeSet<String> =
            (0..1000).map(|index| json!(Clock::Last.messages(index)).to_string()).collect();
        assert_eq!(all.len(), 1000);
    }
}
