//! Rules for single source files.

use super::Finding;
use super::rust_text::{has_token, mask, test_lines};
use super::tree::{File, Tree};

/// Checks every file of the tree.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, message: String| {
        findings.push(Finding::new(&file.path, line + 1, message));
    };
    if !file.path.ends_with(".md") {
        for (number, line) in file.text.lines().enumerate() {
            for word in LEFTOVERS.iter().filter(|word| has_token(line, word)) {
                find(number, format!("{word}: finish it, or write it into ROADMAP.md"));
            }
        }
    }
    if !file.is_rust() {
        return findings;
    }

    if file.path.ends_with("/mod.rs") {
        find(0, "name the file after its module: foo.rs beside foo/".into());
    }
    for (number, line) in file.text.lines().enumerate() {
        if line.contains('\t') || line.ends_with([' ', '\r']) {
            find(number, "tab or trailing white space: run `cargo fmt`, write \\t in text".into());
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        find(file.text.lines().count() - 1, "no newline at the end: run `cargo fmt`".into());
    }

    let masked = mask(&file.text);
    let tests = test_lines(&masked);
    let is_test =
        |number: usize| file.is_test() || tests.iter().any(|range| range.contains(&number));
    let product_lines = (0..masked.lines().count()).filter(|&number| !is_test(number)).count();
    if product_lines > MAX_LINES {
        let message = format!("{product_lines} lines without tests, more than {MAX_LINES}: split");
        find(0, message);
    }
    for (number, line) in masked.lines().enumerate() {
        for call in UNFINISHED.iter().filter(|call| has_token(line, call)) {
            find(number, format!("`{call}`: remove it"));
        }
        if has_token(line, "unsafe") && !MAY_BE_UNSAFE.iter().any(|at| file.path.starts_with(at)) {
            find(number, "`unsafe` belongs in crates/io/sys, behind a safe interface".into());
        }
        if is_core_source(&file.path) && !is_test(number) {
            let banned = BANNED_IN_CORE.iter().find(|(call, _)| has_token(line, call));
            if let Some((call, instead)) = banned {
                find(number, format!("`{call}` in core, which is pure: {instead}"));
            }
        }
    }
    findings
}

/// Whether a file is part of a core crate itself; its examples and benchmarks are programs.
fn is_core_source(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates") && parts.next() == Some("core") && parts.nth(1) == Some("src")
}

/// System calls, and what other languages call.
const MAY_BE_UNSAFE: [&str; 3] = ["crates/io/sys/", "bindings/c/", "bindings/preload/"];
/// Lines of one file, test modules apart.
const MAX_LINES: usize = 1000;
/// Put together so that this file passes its own check.
const LEFTOVERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
/// The first that matches names the replacement.
const BANNED_IN_CORE: [(&str, &str); 13] = [
    ("Instant::now", "take `now` as an argument"),
    ("SystemTime", "take the time as an argument"),
    ("thread::", "leave threads to the driver"),
    ("std::net", "leave sockets to the driver; addresses are in core::net"),
    ("std::fs", "leave files to the driver"),
    ("HashMap", "its order is random: use BTreeMap or a sorted Vec"),
    ("HashSet", "its order is random: use BTreeSet or a sorted Vec"),
    ("std::", "use core:: or alloc::"),
    ("extern crate std", "use core:: or alloc::"),
    ("rand::rng", "take randomness as an argument"),
    ("getrandom", "take randomness as an argument"),
    ("async", "write a state machine: handle_*, poll_*, next_timeout"),
    ("tokio", "write a state machine: handle_*, poll_*, next_timeout"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_core_is_pure_but_its_tests_are_free() {
        let text = "fn f() { std::fs::read(x); }\n\
                    // std::fs in a comment\n\
                    #[cfg(test)]\nmod tests { use std::time::Instant; }\n";
        let found = findings("crates/core/wire/src/a.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/core/wire/src/a.rs:1: `std::fs` in core"));
        assert!(findings("crates/io/sys/src/a.rs", text).is_empty());
        assert!(findings("crates/core/wire/tests/a.rs", "use std::fs;\n").is_empty());
        assert!(findings("crates/core/wire/src/a/tests.rs", "use std::fs;\n").is_empty());
        assert!(findings("crates/core/wire/examples/a.rs", "use std::fs;\n").is_empty());
        for (call, _) in BANNED_IN_CORE {
            assert_eq!(findings("crates/core/wire/src/a.rs", &format!("{call} x\n")).len(), 1);
        }
    }

    #[test]
    fn unsafe_code_lives_in_one_crate_and_in_bindings() {
        let text = "fn f() { unsafe { g() } }\n";
        for path in ["crates/io/sys/src/a.rs", "bindings/c/src/a.rs", "bindings/preload/src/a.rs"] {
            assert!(findings(path, text).is_empty());
        }
        assert_eq!(findings("bindings/client/src/a.rs", text).len(), 1);
        assert_eq!(findings("crates/longhaul/src/a.rs", text).len(), 1);
        assert!(findings("crates/core/a/src/lib.rs", "#![forbid(unsafe_code)]\n").is_empty());
    }

    #[test]
    fn unfinished_work_is_found_in_comments_and_calls() {
        let comment = format!("// {}: later\n", LEFTOVERS[0]);
        assert_eq!(findings("a.rs", &comment).len(), 1);
        assert_eq!(findings("a.sh", &format!("# {}\n", LEFTOVERS[2])).len(), 1);
        assert!(findings("a.md", &comment).is_empty());
        assert_eq!(findings("a.rs", "fn f() { todo!() }\n").len(), 1);
        assert!(findings("a.rs", "// todo! is a macro\n").is_empty());
    }

    #[test]
    fn size_is_counted_without_tests() {
        let code = "fn f() {}\n".repeat(MAX_LINES);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(findings("a.rs", &format!("{code}{tests}")).is_empty());
        assert_eq!(findings("a.rs", &format!("{code}fn g() {{}}\n")).len(), 1);
        assert!(findings("a/tests.rs", &format!("{code}{code}")).is_empty());
    }

    #[test]
    fn white_space_and_module_files() {
        assert_eq!(findings("a.rs", "fn f() {} \n").len(), 1);
        assert_eq!(findings("a.rs", "\tfn f() {}\n").len(), 1);
        assert_eq!(findings("a.rs", "fn f() {}").len(), 1);
        assert_eq!(findings("a/mod.rs", "fn f() {}\n").len(), 1);
    }
}
