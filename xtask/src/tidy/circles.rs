//! Arrows between the files of a crate: imports run down, and nothing leads back to where it began. Parts
//! of a module share what it has: arrows from `lane/streams.rs` to `lane.rs` do not count.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::Finding;
use super::shape::is_for_tests;
use super::tree::{Parsed, Tree};

/// Refuses circles, and imports of what a root only passes on.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let products = tree.products();
    let imports = Imports::of(&products);
    let mut findings = imports.circles();
    findings.extend(imports.through_roots());
    findings
}

/// Modules of the crates, and what their files name of each other.
struct Imports<'t> {
    /// By the folder of a crate's sources.
    crates: BTreeMap<String, BTreeMap<Module, Source<'t>>>,
}

/// Path of a module in its crate, without `crate`.
type Module = Vec<String>;

/// File of a module.
struct Source<'t> {
    path: &'t str,
    /// Paths into its own crate that it names outside of its tests, without `crate`.
    uses: BTreeSet<Module>,
}

impl<'t> Imports<'t> {
    fn of(products: &[Parsed<'t>]) -> Self {
        let mut crates: BTreeMap<String, BTreeMap<Module, Source>> = BTreeMap::new();
        for Parsed { file, syntax } in products {
            let Some((folder, inside)) = file.path.split_once("/src/") else { continue };
            let inside = inside.trim_end_matches(".rs");
            // Further programs of a crate are crates of their own, of one file.
            if inside.starts_with("bin/") {
                continue;
            }
            let module: Module = match inside {
                "lib" | "main" => Vec::new(),
                inside => inside.split('/').map(str::to_owned).collect(),
            };
            let source = Source { path: &file.path, uses: uses(&module, syntax) };
            crates.entry(format!("{folder}/src/")).or_default().insert(module, source);
        }
        Self { crates }
    }

    /// The files that reach themselves.
    fn circles(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (root, modules) in &self.crates {
            let arrows = arrows(modules);
            let reached: BTreeMap<&str, BTreeSet<&str>> =
                modules.values().map(|source| (source.path, reach(source.path, &arrows))).collect();
            for (path, from_here) in &reached {
                if from_here.contains(path) {
                    let back = from_here.iter().filter(|other| reached[**other].contains(path));
                    let others = back.filter(|other| *other != path);
                    let inside = |path: &&str| path.strip_prefix(root).unwrap_or(path).to_owned();
                    let others: Vec<String> = others.map(inside).collect();
                    let message = format!(
                        "in a circle with {}: what both use belongs into a module of its own",
                        others.join(", ")
                    );
                    found.push(Finding::new(*path, 1, message));
                }
            }
        }
        found
    }

    /// Imports of what the root of a crate only passes on: the module that has it is the one to name.
    fn through_roots(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for modules in self.crates.values() {
            for (_, source) in modules.iter().filter(|(module, _)| !module.is_empty()) {
                let passed_on =
                    |target: &&Module| !target.is_empty() && !modules.contains_key(&target[..1]);
                let targets = source.uses.iter().filter(passed_on);
                let finding = |target: &Module| {
                    let message = format!("crate::{} is passed on by the root", target.join("::"));
                    Finding::new(source.path, 1, message)
                };
                found.extend(targets.map(finding));
            }
        }
        found
    }
}

fn arrows<'t>(modules: &BTreeMap<Module, Source<'t>>) -> BTreeMap<&'t str, BTreeSet<&'t str>> {
    let arrow = |(module, source): (&Module, &Source<'t>)| {
        let files = source.uses.iter().filter_map(|target| {
            let known = |length: &usize| modules.contains_key(&target[..*length]);
            let length = (0..=target.len()).rev().find(known)?;
            (!module.starts_with(&target[..length])).then(|| modules[&target[..length]].path)
        });
        (source.path, files.collect())
    };
    modules.iter().map(arrow).collect()
}

/// All that can be reached from a file by one arrow or more.
fn reach<'t>(from: &'t str, arrows: &BTreeMap<&'t str, BTreeSet<&'t str>>) -> BTreeSet<&'t str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in arrows.get(file).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

fn uses(module: &[String], syntax: &syn::File) -> BTreeSet<Module> {
    let declared = syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(item) if item.content.is_none() => Some(item.ident.to_string()),
        _ => None,
    });
    let mut uses = Uses { module, children: declared.collect(), found: BTreeSet::new() };
    uses.visit_file(syntax);
    uses.found
}

struct Uses<'a> {
    module: &'a [String],
    /// Modules that this file declares, and may name without `self::`.
    children: BTreeSet<String>,
    found: BTreeSet<Module>,
}

impl Uses<'_> {
    fn path(&mut self, segments: &[String]) {
        let Some(first) = segments.first() else { return };
        let mut from = self.module.to_vec();
        let mut rest = segments;
        match first.as_str() {
            "crate" => (from, rest) = (Vec::new(), &segments[1..]),
            "self" => rest = &segments[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    from.pop();
                    rest = &rest[1..];
                }
            }
            child if self.children.contains(child) => {}
            _ => return,
        }
        from.extend_from_slice(rest);
        self.found.insert(from);
    }

    fn tree(&mut self, before: &mut Module, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Name(name) if name.ident == "self" => self.path(before),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.path(before);
                before.pop();
            }
            syn::UseTree::Glob(_) => self.path(before),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(before, tree));
            }
        }
    }
}

impl<'a> Visit<'a> for Uses<'_> {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Module =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.path(&segments);
        }
        visit::visit_path(self, path);
    }

    // `pub(crate)` and `pub(in crate::a)` import nothing.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_and_arrows_down_are_none() {
        let down = [
            ("crates/a/src/lib.rs", "mod one; mod two; pub use one::One;"),
            ("crates/a/src/one.rs", "mod part; use crate::two::Two; fn f() { part::g() }"),
            ("crates/a/src/one/part.rs", "use crate::two::{self, Two}; use super::One;"),
            ("crates/a/src/two.rs", "#[cfg(test)] mod tests { use crate::one::One; }"),
        ];
        assert_eq!(check(&Tree::of(&down)), []);
        let mut up = down;
        up[3].1 = "pub(crate) use super::one::part::Part;";
        let found: Vec<String> = check(&Tree::of(&up)).iter().map(ToString::to_string).collect();
        let circle =
            ["one/part.rs:1: in a circle with two.rs", "two.rs:1: in a circle with one/part.rs"];
        for (finding, start) in found.iter().zip(circle) {
            assert!(finding.starts_with(&format!("crates/a/src/{start}: ")), "{finding}");
        }
        assert_eq!(found.len(), circle.len());
    }

    #[test]
    fn what_the_root_passes_on_is_imported_from_its_module() {
        let files = [
            ("crates/a/src/lib.rs", "mod one; mod two; pub use one::One;"),
            ("crates/a/src/one.rs", "pub struct One;"),
            ("crates/a/src/two.rs", "use crate::One; use crate::one::One as Same;"),
        ];
        let passed_on = "crate::One is passed on by the root";
        assert_eq!(check(&Tree::of(&files)), [Finding::new("crates/a/src/two.rs", 1, passed_on)]);
    }
}
