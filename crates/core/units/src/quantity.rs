//! Reading and writing numbers with decimal and binary prefixes.

use core::fmt;
use core::time::Duration;

/// Why a rate or size could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseQuantityError {
    /// Not a number, a known prefix and a known unit.
    Malformed {
        /// One that could be read.
        like: &'static str,
    },
    /// More than 64 bits can hold.
    TooLarge,
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { like } => write!(f, "expected a number with a unit, like {like}"),
            Self::TooLarge => f.write_str("the number is too large"),
        }
    }
}

impl core::error::Error for ParseQuantityError {}

const PREFIXES: [(&str, u64); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("m", 1_000_000),
    ("G", 1_000_000_000),
    ("g", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

/// The value of `text`, a decimal number followed by an optional prefix and one of `units`, as it is in `like`.
pub(crate) fn parse(
    text: &str,
    units: &[&str],
    like: &'static str,
) -> Result<u64, ParseQuantityError> {
    let malformed = ParseQuantityError::Malformed { like };
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let suffix = suffix.trim_start();
    let multiplier = PREFIXES
        .iter()
        .copied()
        .chain([("", 1)])
        .find_map(|(prefix, multiplier)| {
            suffix.strip_prefix(prefix).filter(|unit| units.contains(unit)).map(|_| multiplier)
        })
        .ok_or(malformed)?;
    scaled(number, multiplier, malformed)
}

/// Reads `100ms`, `1.5 s`, `250us` or `40ns`.
///
/// # Errors
/// Not a number with one of these units, or more than 64 bits of nanoseconds.
pub fn parse_time(text: &str) -> Result<Duration, ParseQuantityError> {
    let malformed = ParseQuantityError::Malformed { like: "100ms" };
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let nanos = match unit.trim_start() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(malformed),
    };
    scaled(number, nanos, malformed).map(Duration::from_nanos)
}

/// `number` times `multiplier`, with at most nine decimal places taken into account.
fn scaled(
    number: &str,
    multiplier: u64,
    malformed: ParseQuantityError,
) -> Result<u64, ParseQuantityError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(malformed);
    }
    let mut value: u128 = 0;
    for digit in whole.bytes() {
        value = value.saturating_mul(10).saturating_add(u128::from(digit - b'0'));
    }
    let mut total = value.saturating_mul(u128::from(multiplier));
    let mut place = u128::from(multiplier) * 1_000_000_000;
    let mut below = 0;
    for digit in fraction.bytes().take(9) {
        place /= 10;
        below += place * u128::from(digit - b'0');
    }
    total = total.saturating_add(below / 1_000_000_000);
    u64::try_from(total).map_err(|_| ParseQuantityError::TooLarge)
}

/// Writes `value` with a decimal prefix and three significant digits.
pub(crate) fn display(f: &mut fmt::Formatter<'_>, value: u64, unit: &str) -> fmt::Result {
    const SCALES: [(&str, u64); 5] = [
        ("P", 1_000_000_000_000_000),
        ("T", 1_000_000_000_000),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1_000),
    ];
    let mut buffer = Buffer { text: [0; 40], len: 0 };
    // 999.5 k and above rounds to 1.00 M, so a scale starts half a unit early.
    let found = SCALES.iter().find(|(_, scale)| value >= scale - scale / 2_000);
    match found {
        None => fmt::write(&mut buffer, format_args!("{value} {unit}"))?,
        Some(&(prefix, scale)) => {
            let hundredths = (u128::from(value) * 100 + u128::from(scale) / 2) / u128::from(scale);
            let (whole, part) = (hundredths / 100, hundredths % 100);
            match whole {
                0..10 => fmt::write(&mut buffer, format_args!("{whole}.{part:02} {prefix}{unit}"))?,
                10..100 => {
                    let tenths = (hundredths + 5) / 10;
                    let (whole, part) = (tenths / 10, tenths % 10);
                    fmt::write(&mut buffer, format_args!("{whole}.{part} {prefix}{unit}"))?;
                }
                _ => {
                    let whole = (hundredths + 50) / 100;
                    fmt::write(&mut buffer, format_args!("{whole} {prefix}{unit}"))?;
                }
            }
        }
    }
    f.pad(buffer.as_str())
}

/// Room for the longest text that [`display`] makes, so that padding works without a heap.
struct Buffer {
    text: [u8; 40],
    len: usize,
}

impl Buffer {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.text.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
