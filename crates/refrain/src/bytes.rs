//! Sizes as people write them.

/// Parses `512MiB`, `2GiB`, `1.5G`, `1000000`: the letters count in powers of 1,024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write it like 512MiB or 2GiB");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return Err(wrong()),
    };
    let bytes = number * 1024_f64.powi(power);
    if bytes.is_finite() && bytes < 2_f64.powi(63) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Writes a size with the unit that leaves at least one digit before the point.
pub(crate) fn show(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    let value = bytes as f64 / 1024_f64.powi(power as i32);
    let digits = usize::from(power > 0 && value < 100.0);
    format!("{value:.digits$} {}", units[power as usize])
}

#[cfg(test)]
mod tests {
    use super::{parse, show};

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse("1000"), Ok(1000));
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        assert_eq!(parse("1.5M"), Ok(3 << 19));
        for wrong in ["", "GiB", "1 parsec", "-1", "1e400", "9999999T"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_with_a_fitting_unit() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(98_362_432), "93.8 MiB");
        assert_eq!(show(3 << 30), "3.0 GiB");
    }
}
