//! docs/threats.md names tests that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_page_of_threats_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tests = BTreeSet::new();
    gather(&root.join("tests"), &mut tests);
    gather(&root.join("crates"), &mut tests);
    let page = fs::read_to_string(root.join("docs/threats.md")).unwrap();
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() > 2 && !word.contains(char::is_uppercase))
        .collect();
    assert!(named.len() > 10, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "no tests have these names: {missing:?}");
}

/// Names of the functions behind `#[test]`.
fn gather(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut marked = false;
            for line in text.lines().map(str::trim) {
                if let Some(rest) = line.strip_prefix("fn ").filter(|_| marked) {
                    tests.insert(rest.split('(').next().unwrap().to_owned());
                }
                marked = line == "#[test]" || marked && line.starts_with("#[");
            }
        }
    }
}
