//! Numbers that may only fall: `xtask/ratchet.toml` keeps them, and who lowers one writes it there. The words of
//! the docs have a limit: they may grow up to it.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::tree::{File, Tree};
use super::{Finding, rust_text, shape};

/// Compares the tree with the numbers that the repository keeps.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let kept: BTreeMap<String, usize> = match toml::from_str(tree.text(FILE)) {
        Ok(kept) => kept,
        Err(error) => return vec![Finding::new(FILE, 1, error.to_string())],
    };
    let products = tree.products();
    let (functions, structs) = shape::large_items(&products);
    let measures = [
        Measure::of("functions-over-70-lines", functions),
        Measure::of("structs-over-20-fields", structs),
        Measure::of(
            "lines-with-told-said-heard",
            tree.files.iter().flat_map(vague_words).collect(),
        ),
        Measure::of(
            "comments-that-begin-with-what-who-whether",
            tree.files.iter().flat_map(questions).collect(),
        ),
        Measure::words(tree),
    ];
    let mut findings = Vec::new();
    for name in kept.keys().filter(|name| measures.iter().all(|measure| measure.name != **name)) {
        findings.push(Finding::new(FILE, 1, format!("`{name}` is not measured: remove it")));
    }
    findings.extend(measures.iter().filter_map(|measure| {
        let message = measure.compare(*kept.get(measure.name).unwrap_or(&0))?;
        Some(Finding::new(FILE, 1, message))
    }));
    findings
}

struct Measure {
    name: &'static str,
    count: usize,
    /// True if what is kept is a limit that stays.
    limit: bool,
    /// Places, the worst first.
    places: Vec<String>,
}

impl Measure {
    fn of(name: &'static str, places: Vec<String>) -> Self {
        Self { name, count: places.len(), limit: false, places }
    }

    /// Words of the pages for people: neither results, nor plans, nor the specifications of the wire.
    fn words(tree: &Tree) -> Self {
        let apart = |path: &str| APART.iter().any(|start| path.starts_with(start));
        let pages =
            tree.files.iter().filter(|file| file.path.ends_with(".md") && !apart(&file.path));
        let mut pages: Vec<(usize, &str)> =
            pages.map(|file| (file.text.split_whitespace().count(), &*file.path)).collect();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        let count = pages.iter().map(|(words, _)| words).sum();
        let places = pages.iter().map(|(words, path)| format!("{path}: {words}")).collect();
        Self { name: "words-of-docs", count, limit: true, places }
    }

    fn compare(&self, kept: usize) -> Option<String> {
        let Self { name, count, limit, places } = self;
        let worst = places.iter().take(SHOWN).map(|place| format!("\n    {place}"));
        match count.cmp(&kept) {
            Ordering::Greater => Some(format!(
                "`{name}` is {count}, at most {kept}; the first of them:{}",
                worst.collect::<String>()
            )),
            // No finding: others' changes may lower it at the same time.
            Ordering::Less if !limit => {
                println!("{FILE}: `{name}` has fallen from {kept}: write {count}");
                None
            }
            Ordering::Less | Ordering::Equal => None,
        }
    }
}

/// Lines of Rust that name who speaks to whom instead of what is sent (STYLE.md).
fn vague_words(file: &File) -> Vec<String> {
    if !file.is_rust() || file.path.starts_with("xtask/src/tidy/") {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate();
    let found =
        lines.filter(|(_, line)| rust_text::words(line).any(|word| VAGUE.contains(&&*word)));
    found.map(|(number, line)| format!("{}:{}: {}", file.path, number + 1, line.trim())).collect()
}

/// Doc comments that begin with a question: they name no thing (STYLE.md).
fn questions(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let marker =
        |line: &str| ["///", "//!"].into_iter().find(|it| line.trim_start().starts_with(it));
    let mut before = None;
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let this = marker(line);
        let begins = this.is_some() && this != before;
        let first = line.trim_start().trim_start_matches(['/', '!']).split_whitespace().next();
        if begins && first.is_some_and(|word| QUESTIONS.contains(&word)) {
            found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
        }
        before = this;
    }
    found
}

const FILE: &str = "xtask/ratchet.toml";
const QUESTIONS: [&str; 3] = ["What", "Who", "Whether"];
const VAGUE: [&str; 3] = ["told", "said", "heard"];
const APART: [&str; 6] = [
    "CHANGELOG.md",
    "ROADMAP.md",
    "crates/core/session/tests/",
    concat!("docs/protocol", ".md"),
    "docs/relay.md",
    "docs/results/",
];
/// Places that a finding shows.
const SHOWN: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_fall_but_not_rise() {
        let measure = Measure::of("x", vec!["a".into(), "b".into()]);
        assert_eq!(measure.compare(2), None);
        assert_eq!(measure.compare(3), None);
        let message = measure.compare(1).unwrap();
        assert!(message.starts_with("`x` is 2, at most 1"), "{message}");
        assert!(message.ends_with("\n    a\n    b"), "{message}");
    }

    #[test]
    fn vague_words_are_found_inside_names() {
        let file = |text: &str| File { path: "a.rs".into(), text: text.into() };
        assert_eq!(vague_words(&file("let not_told = Heard; // said\nlet toldo = 1;\n")).len(), 1);
        assert_eq!(vague_words(&file("fn isHeard() {}\n")), ["a.rs:1: fn isHeard() {}"]);
    }

    #[test]
    fn comments_that_begin_with_a_question_are_found_and_their_other_lines_are_not() {
        let file = |text: &str| File { path: "a.rs".into(), text: text.into() };
        let found = questions(&file("/// Says\n/// What it is.\nfn a() {}\n    /// Who asks.\n"));
        assert_eq!(found, ["a.rs:4: /// Who asks."]);
    }

    #[test]
    fn a_kept_number_that_nothing_measures_is_found() {
        let zero = "functions-over-70-lines = 0\nold = 3\n";
        let found = check(&Tree::of(&[(FILE, zero)]));
        assert_eq!(found, [Finding::new(FILE, 1, "`old` is not measured: remove it")]);
    }
}
