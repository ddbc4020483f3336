//! Reads of `cargo metadata` what the checks need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command;

/// The workspace and all packages that it is built from.
#[derive(Default)]
pub struct Metadata {
    /// Our own crates, by name.
    pub members: Vec<Package>,
    /// Everybody else's, in every version that Cargo.lock has.
    pub external: Vec<Package>,
}

/// One package.
#[derive(Clone, Debug, Default)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Folder of its manifest: relative to the root for members, else absolute.
    pub folder: PathBuf,
    /// SPDX expression.
    pub license: Option<String>,
    /// Where it comes from; `None` for a path.
    pub source: Option<String>,
    pub rust_version: Option<String>,
    pub dependencies: Vec<Dependency>,
    /// Root files of its library and binaries, relative to the folder.
    pub roots: Vec<PathBuf>,
    /// Features, each with what it turns on.
    pub features: BTreeMap<String, Vec<String>>,
}

/// One declared dependency.
#[derive(Clone, Debug, Default)]
pub struct Dependency {
    pub name: String,
    /// True if only tests and benchmarks use it.
    pub dev: bool,
    pub default_features: bool,
    pub features: Vec<String>,
}

impl Package {
    /// True if the crate belongs to the pure core.
    pub fn is_core(&self) -> bool {
        self.folder.starts_with("crates/core")
    }
}

/// Reads the workspace at `root`, bringing Cargo.lock up to date on the way.
pub fn load(root: &Path) -> Result<Metadata> {
    let mut metadata = command::cargo(root);
    metadata.args(["metadata", "--format-version", "1", "--all-features"]);
    parse(&command::output(&mut metadata)?, root)
}

fn parse(json: &str, root: &Path) -> Result<Metadata> {
    let value: Value = serde_json::from_str(json)?;
    let members = list(&value["workspace_members"]);
    let mut metadata = Metadata::default();
    for entry in value["packages"].as_array().context("no packages")? {
        let package = package(entry, root).context("a package without manifest path")?;
        if members.iter().any(|id| entry["id"] == id.as_str()) {
            metadata.members.push(package);
        } else {
            metadata.external.push(package);
        }
    }
    metadata.members.sort_by(|a, b| a.name.cmp(&b.name));
    metadata.external.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(metadata)
}

fn package(entry: &Value, root: &Path) -> Option<Package> {
    let folder = Path::new(entry["manifest_path"].as_str()?).parent()?;
    let relative = |path: &Path, base: &Path| path.strip_prefix(base).unwrap_or(path).to_owned();
    let product = |target: &&Value| {
        let kinds = list(&target["kind"]);
        kinds.iter().any(|kind| kind == "lib" || kind == "bin")
    };
    let targets = entry["targets"].as_array()?.iter().filter(product);
    Some(Package {
        name: text(&entry["name"])?,
        version: text(&entry["version"])?,
        folder: relative(folder, root),
        license: text(&entry["license"]),
        source: text(&entry["source"]),
        rust_version: text(&entry["rust_version"]),
        dependencies: entry["dependencies"].as_array()?.iter().filter_map(dependency).collect(),
        roots: targets
            .filter_map(|target| Some(relative(Path::new(target["src_path"].as_str()?), folder)))
            .collect(),
        features: entry["features"]
            .as_object()?
            .iter()
            .map(|(name, enables)| (name.clone(), list(enables)))
            .collect(),
    })
}

fn dependency(entry: &Value) -> Option<Dependency> {
    Some(Dependency {
        name: text(&entry["name"])?,
        dev: entry["kind"] == "dev",
        default_features: entry["uses_default_features"].as_bool()?,
        features: list(&entry["features"]),
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_differ_from_other_crates() {
        let json = r#"{
            "workspace_members": ["ours"],
            "packages": [
                {"id": "theirs", "name": "libm", "version": "0.2.0", "license": "MIT",
                 "manifest_path": "/registry/libm/Cargo.toml", "source": "registry",
                 "dependencies": [], "features": {"default": ["arch"]}, "targets": []},
                {"id": "ours", "name": "longhaul-wire", "version": "0.1.0", "source": null,
                 "manifest_path": "/r/crates/core/wire/Cargo.toml", "rust_version": "1.95",
                 "dependencies": [{"name": "libm", "kind": "dev", "features": ["std"],
                                   "uses_default_features": true}], "features": {},
                 "targets": [{"kind": ["lib"], "src_path": "/r/crates/core/wire/src/lib.rs"},
                             {"kind": ["test"], "src_path": "/r/crates/core/wire/tests/a.rs"}]}
            ]}"#;
        let metadata = parse(json, Path::new("/r")).unwrap();
        let [ours] = &metadata.members[..] else { panic!("one member") };
        assert_eq!(ours.folder, Path::new("crates/core/wire"));
        assert!(ours.is_core() && ours.source.is_none());
        assert_eq!(ours.roots, [Path::new("src/lib.rs")]);
        assert!(ours.dependencies[0].dev && ours.dependencies[0].default_features);
        assert_eq!(metadata.external[0].features["default"], ["arch"]);
    }
}
