//! From heads to logits.

use crate::row::Check::{Package, Real};
use crate::row::letters::{C, D, R, W};
use crate::row::{Row, row};
use crate::subject::{PROMPT, Subject, likeliest, unwritten};
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(82, &[C], "the heads' outputs are (1, 12, 4, 64)", Package(unwritten)),
    row(83, &[C], "side by side they are (1, 4, 768)", Package(unwritten)),
    row(84, &[C], "W_O is (768, 768) and mixes the heads", Package(unwritten)),
    row(85, &[C], "what it gives is (1, 4, 768)", Package(unwritten)),
    row(86, &[R], "attention's output is added to what came in", Package(unwritten)),
    row(87, &[R], "then the second norm, then the MLP", Package(unwritten)),
    row(88, &[C], "the MLP goes 768, 3072, GELU, 768", Package(unwritten)),
    row(89, &[R], "its width is the package's data", Package(unwritten)),
    row(90, &[R], "the MLP's output is added to what went in", Package(unwritten)),
    row(91, &[R], "the MLP reads no other token", Package(unwritten)),
    row(92, &[C], "6 layers do this, one after the other", Package(unwritten)),
    row(93, &[R], "one more norm after the last layer", Package(unwritten)),
    row(94, &[C], "(1, 4, 768) becomes (1, 4, 50257)", Package(unwritten)),
    row(95, &[R], "logits are made once, after the last layer", Package(unwritten)),
    row(96, &[C, D], "4 rows of logits; row i predicts token i + 1", Package(unwritten)),
    row(97, &[R], "generating needs the last row only", Package(unwritten)),
    row(98, &[R], "softmax over the vocabulary sums to 1", Package(unwritten)),
    row(99, &[C], "the last row is (50257,)", Package(unwritten)),
    row(100, &[R], "the 5 likeliest are listed, likeliest first", Package(unwritten)),
    row(101, &[W], "the likeliest is 262, ' the'", Real(the_likeliest)),
    row(102, &[R], "greedy takes the likeliest: one id, (1, 1)", Package(unwritten)),
    row(103, &[W], "the text becomes 'The cat sat on the'", Real(the_text)),
    row(104, &[R], "sampling draws from the same row, by its seed", Package(unwritten)),
    row(105, &[R], "every token of the vocabulary is a candidate", Package(unwritten)),
];

fn the_likeliest(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let found = likeliest(&pass.logits, subject.package.config.vocab);
    tally.equal("the likeliest", &262, &found)?;
    tally.equal("its text", " the", &subject.package.tokenizer.decode(&[found], true)[..])?;
    Ok(format!("{found}, ' the'"))
}

fn the_text(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let next = likeliest(&pass.logits, subject.package.config.vocab);
    let ids = [&subject.prompt[..], &[next]].concat();
    let text = subject.package.tokenizer.decode(&ids, true);
    tally.equal("text", &format!("{PROMPT} the")[..], &text[..])?;
    Ok(format!("'{text}'"))
}
