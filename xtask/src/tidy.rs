//! `cargo xtask tidy`: the rules of STYLE.md that a program can check. Each finding names file and
//! line and says what to do.

mod architecture;
mod circles;
mod documents;
mod licences;
mod manifests;
pub mod public_api;
mod ratchet;
mod rust_text;
mod shape;
mod sources;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::metadata;
use tree::Tree;

/// One broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    /// From 1.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Runs all checks on the workspace at `root`; an error if any rule is broken.
pub fn run(root: &Path) -> Result<()> {
    let mut findings = manifests::lock_file(root);
    let metadata = metadata::load(root)?;
    let tree = Tree::read(root)?;
    findings.extend(sources::check(&tree));
    findings.extend(manifests::check(&tree, &metadata));
    findings.extend(architecture::check(&tree, &metadata));
    findings.extend(documents::check(&tree, root));
    findings.extend(licences::check(&tree, &metadata));
    findings.extend(circles::check(&tree));
    findings.extend(ratchet::check(&tree));
    findings.extend(public_api::check(&tree, root));
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    let (files, crates) = (tree.files.len(), metadata.members.len());
    println!("tidy: {crates} crates and {files} files, nothing to complain about");
    Ok(())
}
