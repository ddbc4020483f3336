//! An attribute for tests that need something of the machine.
//!
//! A test that says `#[needs(namespaces)]` is compiled as `#[ignore = "the reason"]` where there are
//! none, so that it is counted as ignored and not as passed. What there is was found out by this
//! crate's build script, `build.rs`, which lists the names. It does nothing else: a test that runs and
//! does not find what it needs fails.
//!
//! With `LONGHAUL_MAY_LACK` in the environment, nothing is ignored but what lacks something of that
//! list (names with commas between; it may be empty): every other test runs, and fails where its means
//! are missing.
//!
//! ```
//! use longhaul_needs::needs;
//!
//! #[needs(root, ipv6)]
//! #[test]
//! fn packets_reach_the_other_side() {
//!     // Whatever it needs is there.
//! }
//! # // `#[test]` leaves nothing behind in a program that is no test.
//! # fn main() {}
//! ```
//!
//! A name that is not known is an error, and so is a place below `#[test]`, where it would have no
//! effect:
//!
//! ```compile_fail
//! #[longhaul_needs::needs(the_moon)]
//! #[test]
//! fn it_shines() {}
//! ```

#![allow(clippy::test_attr_in_doctest, reason = "they show where the attribute stands")]

use proc_macro::{Delimiter, TokenStream, TokenTree};

include!(concat!(env!("OUT_DIR"), "/means.rs"));

/// Says what the test below it needs; stands above `#[test]`.
#[proc_macro_attribute]
pub fn needs(names: TokenStream, test: TokenStream) -> TokenStream {
    let names = names.into_iter().filter_map(|token| match token {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    });
    let names: Vec<String> = names.collect();
    let found = match is_test(&test) {
        true => lacking(&names, MEANS),
        false => Err("`#[needs(...)]` stands above the `#[test]` of a function".into()),
    };
    let mut out: TokenStream = match found {
        Ok(None) => TokenStream::new(),
        Ok(Some(reason)) => parsed(&format!("#[ignore = {reason:?}]")),
        Err(wrong) => parsed(&format!("compile_error!({wrong:?});")),
    };
    out.extend(test);
    out
}

/// Why a test that needs `names` cannot run, `None` if it can; an error for names that are not known.
fn lacking(names: &[String], means: &[(&str, Option<&str>)]) -> Result<Option<String>, String> {
    if names.is_empty() {
        return Err("say what the test needs".into());
    }
    let mut reason = None;
    for name in names {
        let Some((_, missing)) = means.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = means.iter().map(|(known, _)| *known).collect();
            return Err(format!("`{name}` is not known, only {}", known.join(", ")));
        };
        let why = missing.map(|why| format!("needs {name}: {why}"));
        reason = reason.or(why);
    }
    Ok(reason)
}

/// True if `#[test]` is among the attributes that are still to be expanded.
fn is_test(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
            group.stream().to_string() == "test"
        }
        _ => false,
    })
}

fn parsed(text: &str) -> TokenStream {
    text.parse().expect("it is Rust")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &[(&str, Option<&str>)] = &[("root", None), ("fuse", Some("no /dev/fuse"))];

    fn asked(names: &[&str]) -> Result<Option<String>, String> {
        lacking(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), MACHINE)
    }

    #[test]
    fn a_missing_need_is_the_reason() {
        assert_eq!(asked(&["root"]), Ok(None));
        assert_eq!(asked(&["root", "fuse"]), Ok(Some("needs fuse: no /dev/fuse".into())));
    }

    #[test]
    fn mistakes_are_errors_of_the_compiler() {
        assert_eq!(asked(&["moon"]), Err("`moon` is not known, only root, fuse".into()));
        assert!(asked(&[]).is_err());
    }
}
