//! Links between pages, and from code into the protocol.

use std::path::Path;

use super::Finding;
use super::tree::{File, Tree};

/// Relative links lead to files, and cited sections of the protocol exist.
pub fn check(tree: &Tree, root: &Path) -> Vec<Finding> {
    let sections = sections(tree.text("docs/protocol.md"));
    let mut findings = Vec::new();
    for file in &tree.files {
        findings.extend(citations(file, &sections));
        if file.path.ends_with(".md") {
            let exists = |path: &str| {
                let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
                root.join(folder).join(path).exists()
            };
            findings.extend(links(file, exists));
        }
    }
    findings
}

fn links(file: &File, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (number, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains(':') && !exists(path) {
                let message = format!("link to `{path}`, which does not exist");
                findings.push(Finding::new(&file.path, number + 1, message));
            }
        }
    }
    findings
}

/// Numbers of the headings of the protocol, such as `4.2`.
fn sections(protocol: &str) -> Vec<&str> {
    let headings = protocol.lines().filter(|line| line.starts_with('#'));
    let numbers = headings.filter_map(|line| line.trim_start_matches('#').trim().split(' ').next());
    numbers.map(|number| number.trim_end_matches('.')).filter(|number| is_number(number)).collect()
}

/// Findings for each `protocol.md N.N` whose section is not there.
fn citations(file: &File, sections: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for rest in line.split(PROTOCOL).skip(1) {
            let rest = rest.trim_start_matches([' ', '#', ',']);
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let section = rest[..end].trim_end_matches('.');
            if is_number(section) && !sections.contains(&section) {
                let message = format!("docs/protocol.md has no section {section}");
                findings.push(Finding::new(&file.path, number + 1, message));
            }
        }
    }
    findings
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

const PROTOCOL: &str = concat!("protocol", ".md");

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn links_lead_somewhere() {
        let text = "[a](there.md#part) [b](gone.md)\n[c](https://example.org/x) [d](#here)\n\
                    ```\n[e](gone.md)\n```\n";
        let found = links(&file("a.md", text), |path| path == "there.md");
        assert_eq!(found, [Finding::new("a.md", 1, "link to `gone.md`, which does not exist")]);
    }

    #[test]
    fn cited_sections_exist() {
        let sections = sections("# The protocol\n## 4. Packets\n### 4.1 Header\n#### 4.1.2 Bits\n");
        assert_eq!(sections, ["4", "4.1", "4.1.2"]);
        let text =
            format!("// {PROTOCOL} 4.1.2. And {PROTOCOL}#4.\n// {PROTOCOL}, 5.1 {PROTOCOL}\n");
        let found = citations(&file("a.rs", &text), &sections);
        assert_eq!(found, [Finding::new("a.rs", 2, "docs/protocol.md has no section 5.1")]);
    }
}
