//! Licences and origins of all packages against deny.toml. cargo-deny reads the same lists; this
//! check works where it is not installed.

use super::Finding;
use super::tree::Tree;
use crate::metadata::{Metadata, Package};
use crate::toml;

/// Checks every package in Cargo.lock, whatever platform it is for.
pub fn check(tree: &Tree, metadata: &Metadata) -> Vec<Finding> {
    let deny = tree.text(FILE);
    let allowed = toml::strings(deny, "licenses", "allow");
    let registries = toml::strings(deny, "sources", "allow-registry");
    let mut findings = Vec::new();
    for package in metadata.members.iter().chain(&metadata.external) {
        let Package { name, version, license, source, .. } = package;
        let mut find = |message: String| {
            findings.push(Finding::new(FILE, 1, format!("{name} {version}: {message}")));
        };
        match license.as_deref().map(|text| (text, permits(text, &allowed))) {
            Some((_, Some(true))) => {}
            Some((text, _)) => find(format!("licence `{text}` is not allowed")),
            None => find("states no licence".into()),
        }
        let Some(source) = source else { continue };
        let url = source.strip_prefix("registry+").unwrap_or_default();
        if !registries.iter().any(|registry| registry == url) {
            find(format!("comes from {source}, not from an allowed registry"));
        }
    }
    findings
}

/// True if an SPDX expression can be satisfied by `allowed` licences; `None` if it is malformed.
fn permits(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allowed };
    let permitted = parser.either()?;
    parser.tokens.is_empty().then_some(permitted)
}

/// Evaluates while it parses; AND binds stronger than OR.
struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn either(&mut self) -> Option<bool> {
        let mut permitted = self.both()?;
        while self.skip("OR") {
            permitted |= self.both()?;
        }
        Some(permitted)
    }

    fn both(&mut self) -> Option<bool> {
        let mut permitted = self.one()?;
        while self.skip("AND") {
            permitted &= self.one()?;
        }
        Some(permitted)
    }

    fn one(&mut self) -> Option<bool> {
        if self.skip("(") {
            let permitted = self.either()?;
            return self.skip(")").then_some(permitted);
        }
        let mut licence = self.next()?.to_owned();
        if self.skip("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn next(&mut self) -> Option<&str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

const FILE: &str = "deny.toml";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        let allowed = ["MIT".to_owned(), "ISC".to_owned(), "A WITH E".to_owned()];
        let permits = |text| permits(text, &allowed);
        assert_eq!(permits("MIT"), Some(true));
        assert_eq!(permits("GPL-3.0-only"), Some(false));
        assert_eq!(permits("GPL-3.0-only OR MIT"), Some(true));
        assert_eq!(permits("MIT/Apache-2.0"), Some(true));
        assert_eq!(permits("MIT AND OpenSSL"), Some(false));
        assert_eq!(permits("ISC AND (OpenSSL OR MIT)"), Some(true));
        assert_eq!(permits("OpenSSL OR ISC AND MIT"), Some(true));
        assert_eq!(permits("A WITH E"), Some(true));
        assert_eq!(permits("A"), Some(false));
        for malformed in ["", "MIT OR", "(MIT", "MIT ISC", "MIT WITH"] {
            assert_eq!(permits(malformed), None);
        }
    }

    #[test]
    fn strangers_are_named() {
        let deny = "[licenses]\nallow = [\"MIT\"]\n[sources]\nallow-registry = [\"https://r\"]\n";
        let package = |licence: Option<&str>, source: Option<&str>| Package {
            name: "p".into(),
            version: "1.0.0".into(),
            license: licence.map(str::to_owned),
            source: source.map(str::to_owned),
            ..Package::default()
        };
        let findings = |package: Package| {
            let metadata = Metadata { members: Vec::new(), external: vec![package] };
            check(&Tree::of(&[(FILE, deny)]), &metadata).len()
        };
        assert_eq!(findings(package(Some("MIT"), None)), 0);
        assert_eq!(findings(package(Some("MIT"), Some("registry+https://r"))), 0);
        assert_eq!(findings(package(Some("MIT"), Some("registry+https://q"))), 1);
        assert_eq!(findings(package(Some("MIT"), Some("git+https://r"))), 1);
        assert_eq!(findings(package(None, None)), 1);
    }
}
