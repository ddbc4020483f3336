//! Rules for manifests, crate roots and the toolchain.

use std::path::Path;
use std::process::Command;

use super::Finding;
use super::tree::Tree;
use crate::command;
use crate::metadata::{Metadata, Package};
use crate::toml;

/// Cargo.lock is committed and belongs to the manifests. To be called before anything that would
/// bring it up to date.
pub fn lock_file(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |message| findings.push(Finding::new("Cargo.lock", 1, message));
    let mut tracked = Command::new("git");
    tracked.args(["ls-files", "--error-unmatch", "Cargo.lock"]).current_dir(root);
    if root.join(".git").exists() && !command::succeeds(&mut tracked) {
        find("not committed: `git add Cargo.lock`");
    }
    let mut metadata = command::cargo(root);
    metadata.args(["metadata", "--format-version", "1", "--locked"]);
    if !command::succeeds(&mut metadata) {
        find("does not match the manifests: run `cargo metadata` to see why, and commit it");
    }
    findings
}

/// Everything else.
pub fn check(tree: &Tree, metadata: &Metadata) -> Vec<Finding> {
    let mut findings = toolchain(tree);
    let workspace_version = workspace_version(tree);
    for package in &metadata.members {
        let folder = package.folder.display();
        let manifest = format!("{folder}/Cargo.toml");
        let text = tree.text(&manifest);
        let lints = toml::value(text, "lints", "workspace");
        if lints.is_none_or(|(value, _)| value != "true") {
            findings.push(Finding::new(&manifest, 1, "add `[lints] workspace = true`"));
        }
        if package.rust_version != workspace_version {
            let message = "say `rust-version.workspace = true`: it is stated once";
            findings.push(Finding::new(&manifest, 1, message));
        }
        for root in &package.roots {
            let path = format!("{folder}/{}", root.display());
            findings.extend(crate_root(&path, tree.text(&path), package.is_core()));
        }
        if package.is_core() {
            findings.extend(pure_dependencies(&manifest, text, package, metadata));
        }
    }
    findings
}

/// rust-toolchain.toml and the workspace's `rust-version` name one compiler.
fn toolchain(tree: &Tree) -> Vec<Finding> {
    const FILE: &str = "rust-toolchain.toml";
    let Some((channel, line)) = toml::value(tree.text(FILE), "toolchain", "channel") else {
        return vec![Finding::new(FILE, 1, "name the compiler: `channel = \"1.N.0\"`")];
    };
    let version = workspace_version(tree).unwrap_or_default();
    let release = channel.strip_prefix(&version).is_some_and(|patch| {
        patch.is_empty() || patch.strip_prefix('.').is_some_and(|patch| patch.parse::<u8>().is_ok())
    });
    if release && !version.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "channel {channel}, but rust-version in Cargo.toml is {version:?}: make them agree"
    );
    vec![Finding::new(FILE, line, message)]
}

fn workspace_version(tree: &Tree) -> Option<String> {
    Some(toml::value(tree.text("Cargo.toml"), "workspace.package", "rust-version")?.0)
}

/// A crate root says what the crate is; in core it also promises purity.
fn crate_root(path: &str, text: &str, core: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.lines().any(|line| line.starts_with("//!")) {
        let message = "no crate documentation: purpose, limits, contract, an example";
        findings.push(Finding::new(path, 1, message));
    }
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        if core && !text.lines().any(|line| line == attribute) {
            findings.push(Finding::new(path, 1, format!("core crates declare `{attribute}`")));
        }
    }
    findings
}

/// Checks that the dependencies of a core crate, tests apart, are known to work without the
/// standard library and are not asked to use it.
fn pure_dependencies(
    manifest: &str,
    text: &str,
    package: &Package,
    metadata: &Metadata,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in package.dependencies.iter().filter(|dependency| !dependency.dev) {
        let name = &dependency.name;
        if metadata.members.iter().any(|member| member.name == *name) {
            continue;
        }
        let line = line_naming(text, name);
        if !PURE.contains(&name.as_str()) {
            let message = format!(
                "{name} is not known to be no_std and deterministic: if it is, \
                 add it to PURE in xtask/src/tidy/manifests.rs"
            );
            findings.push(Finding::new(manifest, line, message));
        }
        let defaults = metadata.external.iter().filter(|other| other.name == *name);
        let std_by_default = defaults
            .filter_map(|other| other.features.get("default"))
            .any(|enabled| enabled.iter().any(|feature| feature == "std"));
        let asks_std = dependency.features.iter().any(|feature| feature == "std");
        if asks_std || (dependency.default_features && std_by_default) {
            let message =
                format!("{name} with feature `std` in core: say default-features = false");
            findings.push(Finding::new(manifest, line, message));
        }
    }
    findings
}

/// The line (from 1) of a manifest that declares dependency `name`; 1 when it is not found.
pub fn line_naming(manifest: &str, name: &str) -> usize {
    let declares =
        |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(declares).map_or(1, |number| number + 1)
}

/// Libraries that core may use.
const PURE: [&str; 8] =
    ["blake3", "libm", "rand_core", "rand_xoshiro", "subtle", "thiserror", "zerocopy", "zeroize"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    #[test]
    fn one_compiler_is_named() {
        let tree = |channel: &str| {
            let channel = format!("[toolchain]\nchannel = \"{channel}\"\n");
            let cargo = "[workspace.package]\nrust-version = \"1.95\"\n";
            toolchain(&Tree::of(&[("rust-toolchain.toml", &channel), ("Cargo.toml", cargo)]))
        };
        assert!(tree("1.95.0").is_empty());
        assert!(tree("1.95").is_empty());
        assert_eq!(tree("1.96.0")[0].line, 2);
        assert_eq!(tree("1.9").len(), 1);
        assert_eq!(tree("stable").len(), 1);
        assert_eq!(toolchain(&Tree::default()).len(), 1);
    }

    #[test]
    fn crate_roots_are_documented_and_core_is_pure() {
        let pure = "//! Doc.\n#![no_std]\n#![forbid(unsafe_code)]\n";
        assert!(crate_root("lib.rs", pure, true).is_empty());
        assert!(crate_root("lib.rs", "//! Doc.\n", false).is_empty());
        assert_eq!(crate_root("lib.rs", "//! Doc.\n", true).len(), 2);
        assert_eq!(crate_root("lib.rs", "fn f() {}\n", false).len(), 1);
    }

    #[test]
    fn members_use_the_workspace_lints_and_version() {
        let cargo = "[workspace.package]\nrust-version = \"1.95\"\n";
        let good =
            Package { folder: "a".into(), rust_version: Some("1.95".into()), ..Package::default() };
        let bad = Package { folder: "b".into(), ..Package::default() };
        let tree = Tree::of(&[
            ("Cargo.toml", cargo),
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.95.0\"\n"),
            ("a/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("b/Cargo.toml", "[lints]\n"),
        ]);
        let metadata = Metadata { members: vec![good, bad], external: Vec::new() };
        let findings = check(&tree, &metadata);
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.path == "b/Cargo.toml"));
    }

    #[test]
    fn core_asks_no_library_for_std() {
        let library = Package {
            name: "blake3".into(),
            features: [("default".to_owned(), vec!["std".to_owned()])].into(),
            ..Package::default()
        };
        let metadata = Metadata { members: Vec::new(), external: vec![library] };
        let found = |name: &str, dev: bool, default_features: bool, features: &[&str]| {
            let dependency = Dependency {
                name: name.into(),
                dev,
                default_features,
                features: features.iter().map(|&feature| feature.to_owned()).collect(),
            };
            let package = Package { dependencies: vec![dependency], ..Package::default() };
            pure_dependencies("m", "[dependencies]\nblake3 = 1\n", &package, &metadata)
        };
        assert!(found("blake3", false, false, &[]).is_empty());
        assert_eq!(found("blake3", false, true, &[])[0].line, 2);
        assert_eq!(found("blake3", false, false, &["std"]).len(), 1);
        assert!(found("blake3", true, true, &["std"]).is_empty());
        assert_eq!(found("socket2", false, false, &[]).len(), 1);
    }
}
