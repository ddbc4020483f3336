//! Settings files in TOML: their mistakes, for people.
//!
//! A mistake has line, key, the value that stands there and what is expected instead, in the words of people.
//! The meaning of the values is up to the caller, whose own mistakes are [`WrongValue`].
//!
//! ```
//! #[derive(serde::Deserialize, Debug)]
//! #[serde(deny_unknown_fields)]
//! struct Settings {
//!     port: u16,
//! }
//! let wrong = longhaul_settings::parse::<Settings>("# of a server\nport = \"http\"").unwrap_err();
//! let words = "line 2: port \"http\": expected a whole number from 0 to 65535";
//! assert_eq!(wrong.to_string(), words);
//! ```

mod expected;
mod form;
mod mistakes;
mod section;
mod written;
mod wrong_value;

use std::net::{Ipv4Addr, SocketAddr};

use serde::de::DeserializeOwned;

pub use mistakes::{Mistake, Mistakes};
pub use section::Section;
pub use written::{At, Written};
pub use wrong_value::WrongValue;

/// Reads the text of a file, up to the first mistake; [`Section`] finds all.
///
/// # Errors
/// It is no TOML, or not what `T` wants.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    toml::from_str(text).map_err(|error| form::mistake(text, &error))
}

/// Reads `[ADDR:]PORT`, an address of this host; at loopback unless it says.
///
/// # Errors
/// It is none.
pub fn on_loopback(text: &str) -> Result<SocketAddr, WrongValue> {
    let local = || Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), text.parse().ok()?));
    let expected = "expected [ADDR:]PORT, like 7422 or 192.0.2.1:7422, with a port up to 65535";
    let expected = || WrongValue::new(expected);
    text.parse().ok().or_else(local).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "it is read, and not used")]
    struct Settings {
        sessions: u32,
        allow: Vec<String>,
        #[serde(default)]
        link: Option<Link>,
    }

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "it is read, and not used")]
    struct Link {
        black_hole: bool,
        weight: f64,
    }

    const TEXT: &str = "sessions = 7\nallow = [\n  \"one\",\n  \"two\",\n]\n\
                        link = { black_hole = true, weight = 0.5 }\n";

    #[test]
    fn a_wrong_value_is_named_with_its_line_its_key_and_what_is_expected() {
        parse::<Settings>(TEXT).unwrap();
        for (from, to, words) in [
            ("7", "\"7\"", "line 1: sessions \"7\": expected a whole number from 0 to 4294967295"),
            ("7", "-1", "line 1: sessions -1: expected a whole number from 0 to 4294967295"),
            ("7", "4294967296", "line 1: sessions 4294967296: expected a whole number from 0 to"),
            ("\"two\"", "2", "line 4: allow 2: expected a text in quotes"),
            (
                "[\n  \"one\",\n  \"two\",\n]",
                "\"all\"",
                "line 2: allow \"all\": expected a list, in [ ]: allow = [\"all\"]",
            ),
            ("true", "1", "line 6: black_hole 1: expected true or false"),
            ("0.5", "\"half\"", "line 6: weight \"half\": expected a number"),
            (
                "{ black_hole = true, weight = 0.5 }",
                "3",
                "line 6: link 3: expected keys and values",
            ),
            ("sessions", "session", "line 1: session: unknown field `session`"),
            ("7", "", "line 1: "),
        ] {
            let error = parse::<Settings>(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
            assert!(!error.contains("u32") && !error.contains("struct"), "{error}");
        }
        let missing = parse::<Settings>("sessions = 7").unwrap_err().to_string();
        assert!(missing.contains("missing field `allow`"), "{missing}");
    }
}
