//! Copies of the tree in which one place of the code is another.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command;

/// In `file`, `with` in place of `what`, which is there once.
pub struct Alteration {
    pub name: &'static str,
    pub file: &'static str,
    pub what: &'static str,
    pub with: &'static str,
}

impl Alteration {
    /// The text of its file, altered.
    pub fn put_into(&self, text: &str) -> Result<String> {
        if text.matches(self.what).count() != 1 {
            bail!("{}: `{}` is not once in {}", self.name, self.what, self.file);
        }
        Ok(text.replace(self.what, self.with))
    }
}

/// Makes `tree` what is tracked below `root`, with what is not committed.
pub fn copy(root: &Path, tree: &Path) -> Result<()> {
    let tracked = command::output(Command::new("git").arg("ls-files").current_dir(root))?;
    for name in tracked.lines() {
        let Ok(bytes) = fs::read(root.join(name)) else { continue };
        let to = tree.join(name);
        // What is the same keeps its time, and need not be built again.
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, bytes)?;
    }
    Ok(())
}

/// Of a list of alterations, each has its place in the code.
#[cfg(test)]
pub fn check(alterations: &[Alteration]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for alteration in alterations {
        let text = fs::read_to_string(root.join(alteration.file)).unwrap();
        assert_ne!(alteration.put_into(&text).unwrap(), text, "{}", alteration.name);
    }
}
