//! From drawn tokens to text that may be sent.
//!
//! Three things delay text: a character whose bytes are not all there, a stop string that
//! may have begun, and nothing else. What a stop string cuts off is never sent.

use std::collections::VecDeque;

use package::StreamDecoder;

use crate::request::TokenInfo;

/// The text of one choice on its way out.
#[derive(Debug)]
pub(crate) struct OutputText {
    decoder: StreamDecoder,
    stops: Vec<String>,
    /// Decoded, but perhaps the beginning of a stop string.
    held: String,
    /// Tokens not handed out yet, each with the length of the text before it.
    tokens: VecDeque<(usize, TokenInfo)>,
    /// Bytes of text handed out.
    emitted: usize,
}

/// What can be handed out now.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenInfo>,
    /// A stop string was completed, and the answer ends with this piece: which one.
    pub(crate) stopped: Option<usize>,
}

impl Piece {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tokens.is_empty()
    }
}

impl OutputText {
    /// An empty answer that ends before the first of `stops`.
    pub(crate) fn new(stops: &[String]) -> Self {
        OutputText {
            decoder: StreamDecoder::new(),
            stops: stops.to_vec(),
            held: String::new(),
            tokens: VecDeque::new(),
            emitted: 0,
        }
    }

    /// Takes a token and returns what is certain by now.
    pub(crate) fn push(&mut self, token: TokenInfo) -> Piece {
        let start = self.emitted + self.held.len();
        let text = self.decoder.push(&token.bytes);
        self.tokens.push_back((start, token));
        self.held.push_str(&text);
        if let Some((cut, stop)) = self.find_stop() {
            return self.cut(cut, stop);
        }
        let sure = self.held.len() - self.undecided();
        let rest = self.held.split_off(sure);
        let text = std::mem::replace(&mut self.held, rest);
        self.emitted += text.len();
        let emitted = self.emitted;
        let tokens = self.take_tokens(|start, token| {
            start < emitted || start == emitted && token.bytes.is_empty()
        });
        Piece { text, tokens, stopped: None }
    }

    /// The answer ended otherwise: hands out the rest, unfinished characters as U+FFFD.
    pub(crate) fn finish(&mut self) -> Piece {
        let text = self.decoder.finish();
        self.held.push_str(&text);
        if let Some((cut, stop)) = self.find_stop() {
            return self.cut(cut, stop);
        }
        let text = std::mem::take(&mut self.held);
        self.emitted += text.len();
        Piece { text, tokens: self.take_tokens(|_, _| true), stopped: None }
    }

    /// Where the first stop string begins in the held text, and which it is.
    fn find_stop(&self) -> Option<(usize, usize)> {
        let found = |(stop, text): (usize, &String)| Some((self.held.find(text.as_str())?, stop));
        self.stops.iter().enumerate().filter_map(found).min()
    }

    /// Ends the answer `cut` bytes into the held text, where this stop string begins.
    fn cut(&mut self, cut: usize, stop: usize) -> Piece {
        self.held.truncate(cut);
        let text = std::mem::take(&mut self.held);
        self.emitted += text.len();
        let emitted = self.emitted;
        let tokens = self.take_tokens(|start, _| start < emitted);
        self.tokens.clear();
        Piece { text, tokens, stopped: Some(stop) }
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn undecided(&self) -> usize {
        let held = self.held.as_bytes();
        let begun = |stop: &String| {
            let stop = stop.as_bytes();
            let longest = held.len().min(stop.len().saturating_sub(1));
            (1..=longest).rev().find(|&length| held.ends_with(&stop[..length]))
        };
        self.stops.iter().filter_map(begun).max().unwrap_or(0)
    }

    fn take_tokens(&mut self, ready: impl Fn(usize, &TokenInfo) -> bool) -> Vec<TokenInfo> {
        let mut taken = Vec::new();
        while let Some((start, token)) = self.tokens.pop_front() {
            if !ready(start, &token) {
                self.tokens.push_front((start, token));
                break;
            }
            taken.push(token);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(id: u32, bytes: &[u8]) -> TokenInfo {
        TokenInfo { id, bytes: bytes.to_vec(), logprob: None, top: Vec::new() }
    }

    /// Feeds byte tokens; returns the pieces' texts and ids, and which stop ended it.
    fn run(pieces: &[&[u8]], stops: &[&str]) -> (Vec<String>, Vec<u32>, Option<usize>) {
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut output = OutputText::new(&stops);
        let (mut texts, mut ids) = (Vec::new(), Vec::new());
        let mut take = |piece: Piece| {
            texts.push(piece.text);
            ids.extend(piece.tokens.iter().map(|token| token.id));
            piece.stopped
        };
        for (bytes, id) in pieces.iter().zip(0..) {
            let stopped = take(output.push(token(id, bytes)));
            if stopped.is_some() {
                return (texts, ids, stopped);
            }
        }
        let stopped = take(output.finish());
        (texts, ids, stopped)
    }

    #[test]
    fn a_stop_string_over_three_tokens_never_leaks() {
        let (texts, ids, stopped) = run(&[b"Hi ", b"a\n", b"\nUs", b"er: no"], &["\n\nUser:"]);
        assert_eq!((texts.concat().as_str(), stopped), ("Hi a", Some(0)));
        assert_eq!(texts, ["Hi ", "a", "", ""]);
        assert_eq!(ids, [0, 1]);
    }

    #[test]
    fn held_text_comes_when_the_stop_string_does_not() {
        let (texts, ids, stopped) = run(&[b"a<", b"e", b"n", b"t"], &["<end>"]);
        assert_eq!(texts, ["a", "", "", "<ent", ""]);
        assert_eq!((ids, stopped), (vec![0, 1, 2, 3], None));
    }

    #[test]
    fn characters_come_whole_and_a_cut_one_is_replaced_at_the_end() {
        let snow = "☃".as_bytes();
        let (texts, ids, _) = run(&[&snow[..1], &snow[1..], b"", &snow[..2]], &[]);
        assert_eq!(texts.concat(), "☃\u{FFFD}");
        assert_eq!(texts[..3], ["", "☃", ""]);
        assert_eq!(ids, [0, 1, 2, 3]);
    }

    proptest! {
        /// However a text is cut into tokens: the pieces join to the text before the first
        /// stop string, each token comes once and in order.
        #[test]
        fn pieces_join_to_the_text_before_the_first_stop(
            text in "[ab☃é\n]{0,40}",
            stops in prop::collection::vec("[ab☃\n]{1,4}", 0..3),
            cuts in prop::collection::vec(1usize..4, 0..60),
        ) {
            let mut rest = text.as_bytes();
            let mut tokens = Vec::new();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                tokens.push(head);
                rest = tail;
            }
            tokens.push(rest);
            let stop_strs: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (texts, ids, stopped) = run(&tokens, &stop_strs);
            let joined = texts.concat();
            prop_assert!(text.starts_with(&joined));
            prop_assert!(stops.iter().all(|stop| !joined.contains(stop.as_str())));
            let contained = stops.iter().any(|stop| text.contains(stop.as_str()));
            prop_assert_eq!(stopped.is_some(), contained);
            if let Some(stop) = stopped {
                prop_assert!(text[joined.len()..].starts_with(&stops[stop]));
            } else {
                prop_assert_eq!(&joined, &text);
                prop_assert_eq!(ids.len(), tokens.len());
            }
            prop_assert!(ids.iter().copied().eq(0..ids.len() as u32));
        }
    }
}
