//! Tokens.

use std::sync::Arc;

use package::Package;

use crate::live::steps;
use crate::row::Check::{Live, Model, Package as InPackage};
use crate::row::letters::{R, S, T};
use crate::row::{Row, row};
use crate::subject::{PROMPT, Subject};
use crate::tally::{Seen, Stop, Tally};

pub(super) const ROWS: &[Row] = &[
    row(18, &[], "the prompt is 'The cat sat on'", InPackage(the_prompt)),
    row(19, &[T], "its ids are 464, 3797, 3332, 319", InPackage(ids)),
    row(20, &[T], "its tokens are 'The', ' cat', ' sat', ' on'", InPackage(texts)),
    row(21, &[T], "it has 4 tokens", InPackage(count)),
    row(22, &[R], "ids come in a batch: (1, tokens)", Model(batch)),
    row(23, &[T], "each id decodes alone, its space with it", InPackage(alone)),
    row(24, &[T], "a Chinese question is 15 tokens, most of them part bytes", InPackage(chinese)),
    row(25, &[S], "the model sees ids, not text; both are shown", Live(steps::ids)),
    row(26, &[S], "tokenizing comes before the model does anything", Live(steps::tokenizing)),
    row(27, &[T], "' the' is 262, and ends the longer prompt", InPackage(the)),
    row(28, &[T], "white space changes the tokens", InPackage(white_space)),
];

/// The article's ids of the prompt.
const IDS: [u32; 4] = [464, 3797, 3332, 319];
const CHINESE: &str = "今天天气怎么样？";
const CHINESE_IDS: [u32; 15] =
    [20015, 232, 25465, 25465, 36365, 242, 45250, 236, 20046, 230, 43718, 115, 171, 120, 253];

fn encode(package: &Package, text: &str) -> Result<Vec<u32>, Stop> {
    let encoding = package.tokenizer.encode(text, false);
    Ok(encoding.map_err(|error| Stop::failed("encoding", error))?.ids)
}

fn the_prompt(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let ids = encode(package, PROMPT)?;
    tally.equal("decoded again", PROMPT, package.tokenizer.decode(&ids, true).as_str())?;
    Ok(format!("'{PROMPT}', {} tokens here", ids.len()))
}

fn ids(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let found = encode(package, PROMPT)?;
    tally.equal("ids", &IDS[..], &found[..])?;
    Ok(format!("{found:?}"))
}

fn texts(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let found: Vec<String> =
        encode(package, PROMPT)?.iter().map(|&id| package.tokenizer.decode(&[id], true)).collect();
    tally.equal("texts", &["The", " cat", " sat", " on"].map(String::from)[..], &found[..])?;
    Ok(format!("{found:?}"))
}

fn count(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let found = encode(package, PROMPT)?.len();
    tally.equal("tokens", &4, &found)?;
    Ok(format!("{found} tokens"))
}

fn batch(subject: &mut Subject, tally: &mut Tally) -> Seen {
    // Each row of the step is one id of the batch: its embedding is that id's row of the table.
    let pass = subject.prefill()?;
    let found = pass.of(engine::Site::Embed)?.batched();
    let expected = vec![1, subject.prompt.len(), subject.package.config.hidden];
    tally.equal("embedded ids", &expected, &found)?;
    Ok(format!("(1, {}), ids[0, 0] = {}", subject.prompt.len(), subject.prompt[0]))
}

fn alone(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    for (id, text) in IDS.into_iter().zip(["The", " cat", " sat", " on"]) {
        let bytes = package.tokenizer.bytes(id);
        tally.equal(format!("bytes of {id}"), &Some(text.as_bytes()), &bytes)?;
        tally.equal(format!("text of {id}"), text, &package.tokenizer.decode(&[id], true)[..])?;
    }
    Ok("464 'The', 3797 ' cat', 3332 ' sat', 319 ' on'".to_owned())
}

fn chinese(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let found = encode(package, CHINESE)?;
    tally.equal("ids", &CHINESE_IDS[..], &found[..])?;
    let part = |id: &&u32| {
        package.tokenizer.bytes(**id).is_none_or(|bytes| std::str::from_utf8(bytes).is_err())
    };
    let parts = found.iter().filter(part).count();
    tally.holds("tokens that are part bytes", "most", 2 * parts > found.len(), parts)?;
    tally.equal("decoded again", CHINESE, &package.tokenizer.decode(&found, true)[..])?;
    Ok(format!("{} tokens, {parts} of them no whole character", found.len()))
}

fn the(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    tally.equal("ids of ' the'", &[262][..], &encode(package, " the")?[..])?;
    tally.equal("text of 262", " the", &package.tokenizer.decode(&[262], true)[..])?;
    let found = encode(package, "The cat sat on the")?;
    tally.equal("ids", &[464, 3797, 3332, 319, 262][..], &found[..])?;
    Ok(format!("{found:?}"))
}

fn white_space(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let two = encode(package, "The cat  sat on")?;
    tally.equal("two spaces", &[464, 3797, 220, 3332, 319][..], &two[..])?;
    let after = encode(package, "The cat sat on ")?;
    tally.equal("a space at the end", &[464, 3797, 3332, 319, 220][..], &after[..])?;
    Ok(format!("two spaces {two:?}, one at the end {after:?}"))
}
