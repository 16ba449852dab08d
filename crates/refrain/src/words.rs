//! Words that depend on numbers.

/// `count` of `what`, which is in the singular: "1 tensor", "2 tensors".
pub(crate) fn counted(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// A number with a comma before each three digits: "144,793,823".
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many single edits make `other` of `one`: a character put in, taken out or exchanged
/// (Levenshtein's distance).
pub(crate) fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (index, candidate) in other.iter().enumerate() {
            let exchanged = before + usize::from(character != *candidate);
            before = row[index + 1];
            row[index + 1] = exchanged.min(row[index] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_is_one_and_edits_are_counted() {
        assert_eq!([counted(0, "token"), counted(1, "token")], ["0 tokens", "1 token"]);
        assert_eq!([0, 999, 1_000, 144_793_823].map(grouped), ["0", "999", "1,000", "144,793,823"]);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
    }

    proptest! {
        #[test]
        fn edits_are_a_distance(a in "[a-c]{0,6}", b in "[a-c]{0,6}", c in "[a-c]{0,6}") {
            prop_assert_eq!(edits(&a, &a), 0);
            prop_assert_eq!(edits(&a, &b), edits(&b, &a));
            prop_assert!(edits(&a, &c) <= edits(&a, &b) + edits(&b, &c));
        }
    }
}
