//! The text files of the work tree.

use std::path::Path;

use anyhow::{Context, Result};

/// All text files that people write, sorted by path.
#[derive(Default)]
pub struct Tree {
    pub files: Vec<File>,
}

/// One of them.
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl Tree {
    /// Reads the tree below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree that exists only here, for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        Self { files: files.iter().map(file).collect() }
    }

    /// The text of one file; empty when there is none.
    pub fn text(&self, path: &str) -> &str {
        self.files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
    }

    fn walk(&mut self, root: &Path, folder: &str) -> Result<()> {
        let entries = std::fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type()?.is_dir() {
                if !GENERATED.contains(&name.as_str()) {
                    self.walk(root, &path)?;
                }
            } else if is_text(&name) || path == ".ci/run" {
                let text = std::fs::read_to_string(entry.path()).with_context(|| path.clone())?;
                self.files.push(File { path, text });
            }
        }
        Ok(())
    }
}

impl File {
    /// True if the file is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True if the file holds nothing but tests or benchmarks.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "benches")
    }

    /// True if it is Rust of a product: neither tests nor an example.
    pub fn is_product(&self) -> bool {
        self.is_rust() && self.path.contains("/src/") && !self.is_test()
    }
}

/// Rust of a product, read.
pub struct Parsed<'t> {
    pub file: &'t File,
    pub syntax: syn::File,
}

impl Tree {
    /// All files of products. Rust that does not parse is the compiler's to report.
    pub fn products(&self) -> Vec<Parsed<'_>> {
        let products = self.files.iter().filter(|file| file.is_product());
        let parsed = products
            .filter_map(|file| Some(Parsed { file, syntax: syn::parse_file(&file.text).ok()? }));
        parsed.collect()
    }
}

fn is_text(name: &str) -> bool {
    name == "Makefile" || EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

const EXTENSIONS: [&str; 4] = [".rs", ".md", ".toml", ".sh"];
/// Folders that hold no source.
const GENERATED: [&str; 4] = [".git", "target", "results", "corpus"];
