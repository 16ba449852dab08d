//! The checklist: a file for each of its sections, each row beside its check.

mod a_the_package;
mod b_tokens;
mod c_embedding;
mod d_layers;
mod e_norm;
mod f_qkv;
mod g_attention;
mod h_mask;
mod i_logits;
mod j_prefill;
mod k_decode;
mod l_prompt_cache;
mod m_request;
mod n_who_does_what;
mod o_derived;

use crate::row::Row;

/// A section of the checklist.
pub(crate) struct Section {
    /// From A on.
    pub(crate) letter: char,
    /// Also the title of the section of the tour in `docs/article.md`.
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [Row],
}

/// The sections, in order.
pub(crate) const SECTIONS: [Section; 15] = [
    section('A', "The model package", a_the_package::ROWS),
    section('B', "Tokens", b_tokens::ROWS),
    section('C', "Embedding and position", c_embedding::ROWS),
    section('D', "Layers and heads", d_layers::ROWS),
    section('E', "The norm before attention", e_norm::ROWS),
    section('F', "Queries, keys and values", f_qkv::ROWS),
    section('G', "Attention", g_attention::ROWS),
    section('H', "The causal mask", h_mask::ROWS),
    section('I', "From heads to logits", i_logits::ROWS),
    section('J', "Prefill and the KV cache", j_prefill::ROWS),
    section('K', "Decode", k_decode::ROWS),
    section('L', "The prompt cache", l_prompt_cache::ROWS),
    section('M', "A request, end to end", m_request::ROWS),
    section('N', "Who does what", n_who_does_what::ROWS),
    section('O', "What follows from it", o_derived::ROWS),
];

const fn section(letter: char, title: &'static str, rows: &'static [Row]) -> Section {
    Section { letter, title, rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Check, Need};

    #[test]
    fn every_row_is_there_once_and_in_order() {
        let rows = SECTIONS.iter().flat_map(|section| section.rows);
        assert!(rows.map(|row| row.number).eq(1..=185));
    }

    #[test]
    fn what_a_row_needs_says_how_it_is_checked() {
        for row in SECTIONS.iter().flat_map(|section| section.rows) {
            let needs = |need| row.needs.contains(&need);
            let live = needs(Need::Server) || needs(Need::Incident);
            assert_eq!(matches!(row.check, Check::Live(_)), live, "row {}", row.number);
            let read = row.needs == [Need::Document];
            assert_eq!(matches!(row.check, Check::Read), read, "row {}", row.number);
            let real = row.needs == [Need::Weights];
            assert_eq!(matches!(row.check, Check::Real(_)), real, "row {}", row.number);
            assert!(row.claim.chars().count() <= 60, "row {}", row.number);
        }
    }
}
