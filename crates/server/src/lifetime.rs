//! How long something lives, as people and OpenAI's clients write it.

use std::time::Duration;

/// Longer ones are refused: whoever wants them wants no end.
const LIFETIME_MAX: Duration = Duration::from_secs(365 * 86_400);
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];

/// Reads a duration like `90s`, `30m`, `24h` or `7d`, from a second to a year.
///
/// # Errors
/// What it must be, where it is something else.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    let unit = UNITS.iter().find_map(|(unit, s)| Some((text.strip_suffix(*unit)?, s)));
    let seconds = unit.and_then(|(number, unit_s)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(*unit_s)
    });
    let range = Duration::from_secs(1)..=LIFETIME_MAX;
    seconds
        .map(Duration::from_secs)
        .filter(|lifetime| range.contains(lifetime))
        .ok_or_else(|| "must be a time like 90s, 30m, 24h or 7d, of a year at most".to_owned())
}

#[cfg(test)]
mod tests {
    use super::lifetime;

    #[test]
    fn lifetimes_are_read_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("30m", 1_800), ("24h", 86_400), ("365d", 31_536_000)]
        {
            assert_eq!(lifetime(text).map(|time| time.as_secs()), Ok(seconds), "{text}");
        }
        for wrong in ["", "m", "0s", "-1s", "+1s", "1", "1.5h", "30 m", "366d", "1w", "9e9d", "१s"]
        {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
        assert!(lifetime(&format!("{}d", u64::MAX)).is_err());
    }
}
