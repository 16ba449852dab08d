//! What requests cost, at prices that the operator sets.

use std::str::FromStr;

use cache::Verdict;
use engine::TokenCounts;
use serde::Serialize;

/// A higher price is a mistake.
const PRICE_MAX: f64 = 1e9;
/// Longest name of a currency, in letters.
const CURRENCY_LETTERS_MAX: usize = 8;
/// Prices are for so many tokens.
const TOKENS: f64 = 1e6;
/// Parts of a unit of money that are told apart.
const PARTS: f64 = 1e12;

/// Money for a million tokens each: of a prompt and computed, of a prompt and reused, of an answer.
/// Written as `input=0.15,cached=0.015,output=0.60,currency=EUR`; the currency is `USD` if it is
/// left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    input: f64,
    cached: f64,
    output: f64,
    currency: String,
}

/// What one prompt and its answers cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Price {
    /// Of all tokens, as they were counted.
    pub total: f64,
    /// The same if the tokens that the verdict's stop lost had been reused; `None` where it is not
    /// known how many these are.
    pub if_all_cached: Option<f64>,
    /// The currency's name.
    pub currency: String,
}

impl Prices {
    /// The currency's name.
    pub fn currency(&self) -> &str {
        &self.currency
    }

    /// What the tokens of a prompt and its answers cost.
    pub fn of(&self, verdict: &Verdict, tokens: &TokenCounts) -> Price {
        let money = |input: f64, cached: f64| {
            let output = tokens.output as f64 * self.output;
            let sum = input * self.input + cached * self.cached + output;
            // Without the digits that only binary fractions have.
            (sum / TOKENS * PARTS).round() / PARTS
        };
        let (input, cached) = (tokens.input as f64, tokens.cached_input as f64);
        let lost = verdict.lost_tokens().map(|lost| lost as f64);
        Price {
            total: money(input, cached),
            if_all_cached: lost.map(|lost| money(input - lost, cached + lost)),
            currency: self.currency.clone(),
        }
    }
}

impl FromStr for Prices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [mut input, mut cached, mut output] = [None; 3];
        let mut currency = None;
        for part in text.split(',') {
            let wanted = || format!("{part:?} is not input=, cached=, output= or currency=");
            let (name, value) = part.split_once('=').ok_or_else(wanted)?;
            let place = match name.trim() {
                "input" => &mut input,
                "cached" => &mut cached,
                "output" => &mut output,
                "currency" => {
                    let letters = value.trim();
                    let fits = (1..=CURRENCY_LETTERS_MAX).contains(&letters.len());
                    if !fits || !letters.bytes().all(|letter| letter.is_ascii_alphabetic()) {
                        return Err(format!(
                            "a currency has 1 to {CURRENCY_LETTERS_MAX} letters, as USD"
                        ));
                    }
                    if currency.replace(letters.to_owned()).is_some() {
                        return Err("currency= is there twice".to_owned());
                    }
                    continue;
                }
                _ => return Err(wanted()),
            };
            let price = value.trim().parse().ok().filter(|price| (0.0..=PRICE_MAX).contains(price));
            let price: f64 = price.ok_or_else(|| format!("{name}= must be a number from 0"))?;
            if place.replace(price).is_some() {
                return Err(format!("{name}= is there twice"));
            }
        }
        let needed = |name: &str| format!("{name}= is missing: money for a million tokens");
        Ok(Self {
            input: input.ok_or_else(|| needed("input"))?,
            cached: cached.ok_or_else(|| needed("cached"))?,
            output: output.ok_or_else(|| needed("output"))?,
            currency: currency.unwrap_or_else(|| "USD".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use cache::Reason;

    use super::*;

    fn prices(text: &str) -> Prices {
        text.parse().unwrap()
    }

    #[test]
    fn a_price_counts_each_kind_of_token_and_what_the_stop_lost() {
        let prices = prices("input=2,cached=0.5,output=10,currency=EUR");
        let tokens = TokenCounts { input: 100, cached_input: 40, output: 7, ..Default::default() };
        let mut verdict = Verdict::disabled_by_request(140);
        // By hand: (100 * 2 + 40 * 0.5 + 7 * 10) / 1e6.
        let unknown = Price { total: 0.00029, if_all_cached: None, currency: "EUR".into() };
        assert_eq!(prices.of(&verdict, &tokens), unknown);
        verdict.stop.reason = Reason::DifferentToken;
        verdict.stop.identical_after = Some(90);
        // 90 tokens are 1.50 a million cheaper.
        assert_eq!(prices.of(&verdict, &tokens).if_all_cached, Some(0.000155));
        verdict.stop.reason = Reason::EndOfCached;
        let price = prices.of(&verdict, &tokens);
        assert_eq!(price.if_all_cached, Some(price.total));
    }

    #[test]
    fn prices_are_read_or_refused_by_name() {
        let usual = prices("input=1,cached=0,output=3");
        assert_eq!(usual, prices(" output=3, cached=0 ,input=1,currency=USD"));
        let cases = [
            ("", "is not input=, cached=, output= or currency="),
            ("input=1,cached=1", "output= is missing"),
            ("input=1,cached=1,output=-1", "output= must be a number from 0"),
            ("input=1,cached=nan,output=1", "cached= must be a number from 0"),
            ("input=1,cached=inf,output=1", "cached= must be a number from 0"),
            ("input=1,input=1,cached=1,output=1", "input= is there twice"),
            ("input=1,cached=1,output=1,currency=", "a currency has 1 to 8 letters"),
            ("input=1,cached=1,output=1,tax=1", "is not input="),
        ];
        for (text, problem) in cases {
            let said = text.parse::<Prices>().unwrap_err();
            assert!(said.contains(problem), "{text}: {said}");
        }
    }
}
