//! ARCHITECTURE.md against the workspace: its table of crates is the list of members and of
//! permitted dependencies, its table of libraries the list of reasons.

use std::collections::BTreeMap;

use super::Finding;
use super::manifests::line_naming;
use super::tree::Tree;
use crate::metadata::{Metadata, Package};
use crate::toml;

/// Compares the page with the workspace.
pub fn check(tree: &Tree, metadata: &Metadata) -> Vec<Finding> {
    let page = tree.text(PAGE);
    let rows = crates(page);
    let mut findings = members(tree, metadata, &rows);
    for package in &metadata.members {
        findings.extend(arrows(tree, metadata, &rows, package));
    }
    findings.extend(libraries(tree, metadata, page));
    findings
}

/// One line of the table of crates.
struct Row {
    line: usize,
    folder: String,
    package: String,
    may_use: Vec<String>,
}

/// Rows of the table whose last heading is `may use`.
fn crates(page: &str) -> Vec<Row> {
    let rows = table(page, &["folder", "package", "what lives there", "may use"]);
    let row = |(line, cells): (usize, Vec<String>)| Row {
        line,
        folder: cells[0].clone(),
        package: cells[1].clone(),
        may_use: cells[3].split(',').map(|name| name.trim().to_owned()).collect(),
    };
    rows.into_iter().map(row).collect()
}

/// Cells, without backticks, of the table with these headings, and their line numbers.
fn table(page: &str, headings: &[&str]) -> Vec<(usize, Vec<String>)> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(|cell| cell.trim().replace('`', "")).collect())
    };
    let lines = page.lines().enumerate().map(|(number, line)| (number + 1, cells(line)));
    lines
        .skip_while(|(_, cells)| cells.as_ref().is_none_or(|cells| cells != headings))
        .skip(2)
        .map_while(|(line, cells)| Some((line, cells?)))
        .filter(|(_, cells)| cells.len() == headings.len())
        .collect()
}

/// Each member has a row and each row a member; workspaces of their own have a row too.
fn members(tree: &Tree, metadata: &Metadata, rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata.members {
        let folder = package.folder.display().to_string();
        if !rows.iter().any(|row| row.folder == folder && row.package == package.name) {
            let name = &package.name;
            let message = format!("add a row for {name} in `{folder}` to the table of crates");
            findings.push(Finding::new(PAGE, rows.first().map_or(1, |row| row.line), message));
        }
    }
    let excluded = toml::strings(tree.text("Cargo.toml"), "workspace", "exclude");
    for row in rows {
        let own_workspace = excluded.contains(&row.folder)
            && !tree.text(&format!("{}/Cargo.toml", row.folder)).is_empty();
        let member = metadata.members.iter().any(|package| package.name == row.package);
        if !member && !own_workspace {
            let message = format!("there is no crate {} yet: remove its row", row.package);
            findings.push(Finding::new(PAGE, row.line, message));
        }
    }
    findings
}

/// A crate uses only what its row allows. Tests may use all of core; core uses only core.
fn arrows(tree: &Tree, metadata: &Metadata, rows: &[Row], package: &Package) -> Vec<Finding> {
    let Some(row) = rows.iter().find(|row| row.package == package.name) else {
        return Vec::new();
    };
    let manifest = format!("{}/Cargo.toml", row.folder);
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let Some(used) = metadata.members.iter().find(|used| used.name == dependency.name) else {
            continue;
        };
        let short = used.folder.file_name().unwrap_or_default().to_string_lossy();
        let listed = row.may_use.iter().any(|name| match name.as_str() {
            "all" => true,
            "core" => used.is_core(),
            name => name == short,
        });
        let for_tests = dependency.dev && used.is_core();
        let outwards = package.is_core() && !used.is_core();
        if outwards || !(listed || for_tests) {
            let line = line_naming(tree.text(&manifest), &used.name);
            let (name, used) = (&package.name, &used.name);
            let may_use = row.may_use.join(", ");
            let message = format!("{name} may not use {used}, only: {may_use} ({PAGE})");
            findings.push(Finding::new(&manifest, line, message));
        }
    }
    findings
}

/// Each library that a member names has its reason, and each reason its library.
fn libraries(tree: &Tree, metadata: &Metadata, page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (line, cells) in table(page, &["crate", "for"]) {
        reasons.extend(cells[0].split(',').map(|name| (name.trim().to_owned(), line)));
    }
    let mut used: BTreeMap<&str, &Package> = BTreeMap::new();
    for package in &metadata.members {
        let names = package.dependencies.iter().map(|dependency| dependency.name.as_str());
        used.extend(names.map(|name| (name, package)));
    }
    used.retain(|name, _| !metadata.members.iter().any(|member| member.name == *name));
    for (name, package) in &used {
        if !reasons.contains_key(*name) {
            let manifest = format!("{}/Cargo.toml", package.folder.display());
            let line = line_naming(tree.text(&manifest), name);
            let message = format!("say in {PAGE}, \"Dependencies\", what {name} is for");
            findings.push(Finding::new(manifest, line, message));
        }
    }
    for (name, line) in &reasons {
        if !used.contains_key(name.as_str()) {
            findings.push(Finding::new(PAGE, *line, format!("no crate uses {name}: remove it")));
        }
    }
    findings
}

const PAGE: &str = "ARCHITECTURE.md";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    const TEXT: &str = "\
| folder | package | what lives there | may use |
|---|---|---|---|
| `crates/core/units` | `longhaul-units` | time | - |
| `crates/core/wire` | `longhaul-wire` | bytes | units |
| `crates/io/sys` | `longhaul-sys` | kernel | units |
| `crates/cli` | `longhaul` | binary | all |
| `fuzz` | `longhaul-fuzz` | fuzz | core |

| crate | for |
|---|---|
| libm, blake3 | arithmetic |
";

    fn package(folder: &str, name: &str, uses: &[&str]) -> Package {
        let dependency = |&name: &&str| Dependency { name: name.into(), ..Dependency::default() };
        Package {
            name: name.into(),
            folder: folder.into(),
            dependencies: uses.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    fn findings(wire: &[&str], sys: &[&str]) -> Vec<String> {
        let members = vec![
            package("crates/cli", "longhaul", &["longhaul-sys", "libm", "blake3"]),
            package("crates/io/sys", "longhaul-sys", sys),
            package("crates/core/units", "longhaul-units", &[]),
            package("crates/core/wire", "longhaul-wire", wire),
        ];
        let tree = Tree::of(&[
            (PAGE, TEXT),
            ("Cargo.toml", "[workspace]\nexclude = [\"fuzz\"]\n"),
            ("fuzz/Cargo.toml", "[package]\n"),
            ("crates/core/wire/Cargo.toml", "[dependencies]\nlonghaul-sys.workspace = true\n"),
        ]);
        let metadata = Metadata { members, external: Vec::new() };
        check(&tree, &metadata).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn permitted_arrows_pass() {
        assert!(findings(&["longhaul-units"], &["longhaul-units"]).is_empty());
    }

    #[test]
    fn arrows_against_the_table_are_found_where_they_are_declared() {
        let found = findings(&["longhaul-sys"], &["longhaul-wire"]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("longhaul-sys may not use longhaul-wire"));
        assert!(found[1].starts_with("crates/core/wire/Cargo.toml:2: longhaul-wire may not use"));
    }

    #[test]
    fn tests_may_use_core_but_core_never_leaves_core() {
        let dev = |name: &str| Dependency { name: name.into(), dev: true, ..Default::default() };
        let rows = crates(&TEXT.replace("| units |", "| all |"));
        let mut wire = package("crates/core/wire", "longhaul-wire", &[]);
        wire.dependencies = vec![dev("longhaul-sys")];
        let mut sys = package("crates/io/sys", "longhaul-sys", &[]);
        sys.dependencies = vec![dev("longhaul-wire")];
        let metadata = Metadata { members: vec![wire, sys], external: Vec::new() };
        let tree = Tree::default();
        assert_eq!(arrows(&tree, &metadata, &rows, &metadata.members[0]).len(), 1);
        assert!(arrows(&tree, &metadata, &crates(TEXT), &metadata.members[1]).is_empty());
    }

    #[test]
    fn members_and_rows_correspond() {
        let tree = Tree::of(&[("Cargo.toml", "[workspace]\nexclude = []\n")]);
        let metadata = Metadata {
            members: vec![package("crates/core/units", "longhaul-units", &[]), {
                package("crates/core/new", "longhaul-new", &[])
            }],
            external: Vec::new(),
        };
        let found = members(&tree, &metadata, &crates(TEXT));
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7]);
        assert!(found[0].message.contains("add a row for longhaul-new"));
    }

    #[test]
    fn libraries_have_reasons() {
        let found = findings(&["serde"], &[]);
        assert!(found[0].contains("what serde is for"), "{found:?}");
        let page = TEXT.replace("libm,", "libm, serde,");
        let used = vec![package("crates/cli", "longhaul", &["libm", "blake3"])];
        let metadata = Metadata { members: used, external: Vec::new() };
        assert_eq!(libraries(&Tree::default(), &metadata, &page).len(), 1);
    }
}
