//! The list of what the library `longhaul` offers, so that a change of it is seen: `cargo xtask api` writes
//! it, tidy compares.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::{Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::Finding;
use super::tree::{Parsed, Tree};

/// Compares the list with the library.
pub fn check(tree: &Tree, root: &Path) -> Vec<Finding> {
    let kept = std::fs::read_to_string(root.join(LIST)).unwrap_or_default();
    if kept == list(tree) {
        return Vec::new();
    }
    let message = "what the library offers has changed: write it again with `cargo xtask api`";
    vec![Finding::new(LIST, 1, message)]
}

/// Writes the list.
pub fn write(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    std::fs::write(root.join(LIST), list(&tree)).with_context(|| LIST.to_owned())
}

/// One line for each thing that a program can name: what `lib.rs` exports, and of types of the library
/// fields, variants, functions and traits. Types of other crates are named only.
fn list(tree: &Tree) -> String {
    let files = tree.products();
    let files: Vec<&Parsed<'_>> =
        files.iter().filter(|it| it.file.path.starts_with(FOLDER)).collect();
    let Some(root) = files.iter().find(|it| it.file.path == format!("{FOLDER}lib.rs")) else {
        return String::new();
    };
    let mut exported = BTreeMap::new();
    for item in &root.syntax.items {
        if let Item::Use(item) = item
            && matches!(item.vis, Visibility::Public(_))
        {
            exports(&item.tree, String::new(), &mut exported);
        }
    }
    let mut lines = BTreeSet::new();
    for (name, from) in &exported {
        if from.starts_with("longhaul_") {
            lines.insert(format!("{name} = {from}::{name}"));
        }
    }
    for file in &files {
        for item in &file.syntax.items {
            describe(item, &exported, &file.file.text, &mut lines);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Names that `tree` exports, each with the path that it comes from.
fn exports(tree: &UseTree, from: String, all: &mut BTreeMap<String, String>) {
    match tree {
        UseTree::Path(path) => {
            let above = if from.is_empty() { from } else { from + "::" };
            exports(&path.tree, above + &path.ident.to_string(), all);
        }
        UseTree::Name(name) => {
            all.insert(name.ident.to_string(), from);
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| exports(tree, from.clone(), all));
        }
        UseTree::Rename(rename) => {
            all.insert(rename.rename.to_string(), format!("{from}::{}", rename.ident));
        }
        UseTree::Glob(_) => {
            all.insert("*".into(), from);
        }
    }
}

fn describe(
    item: &Item,
    exported: &BTreeMap<String, String>,
    text: &str,
    lines: &mut BTreeSet<String>,
) {
    let is_own = |name: &str| exported.get(name).is_some_and(|from| !from.starts_with("longhaul_"));
    let source = |span: proc_macro2::Span| one_line(&text[span.byte_range()]);
    match item {
        Item::Fn(function) if is_own(&function.sig.ident.to_string()) => {
            lines.insert(source(function.sig.span()));
        }
        Item::Struct(it) if is_own(&it.ident.to_string()) => {
            let name = &it.ident;
            lines.insert(format!("struct {name}{}", attributes(&it.attrs)));
            let fields = fields(&it.fields, &source);
            lines.extend(fields.iter().map(|field| format!("{name}.{field}")));
        }
        Item::Enum(it) if is_own(&it.ident.to_string()) => {
            let name = &it.ident;
            lines.insert(format!("enum {name}{}", attributes(&it.attrs)));
            lines.extend(it.variants.iter().map(|variant| {
                let fields = match &variant.fields {
                    Fields::Unit => String::new(),
                    fields => format!(" {}", source(fields.span())),
                };
                format!("{name}::{}{}", variant.ident, without_comments(&fields))
            }));
        }
        Item::Type(it) if is_own(&it.ident.to_string()) => {
            lines.insert(format!("type {} = {}", it.ident, source(it.ty.span())));
        }
        Item::Const(it) if is_own(&it.ident.to_string()) => {
            lines.insert(format!("const {}: {}", it.ident, source(it.ty.span())));
        }
        Item::Trait(it) if is_own(&it.ident.to_string()) => {
            lines.insert(format!("trait {}", it.ident));
            lines.extend(it.items.iter().filter_map(|item| match item {
                TraitItem::Fn(function) => {
                    Some(format!("{}: {}", it.ident, source(function.sig.span())))
                }
                _ => None,
            }));
        }
        Item::Impl(it) => {
            let name = source(it.self_ty.span());
            if !is_own(name.split('<').next().unwrap_or_default()) {
                return;
            }
            if let Some((_, of, _)) = &it.trait_ {
                lines.insert(format!("impl {} for {name}", source(of.span())));
                return;
            }
            for item in &it.items {
                match item {
                    ImplItem::Fn(it) if matches!(it.vis, Visibility::Public(_)) => {
                        lines.insert(format!("{name}: {}", source(it.sig.span())));
                    }
                    ImplItem::Const(it) if matches!(it.vis, Visibility::Public(_)) => {
                        let ty = source(it.ty.span());
                        lines.insert(format!("{name}: const {}: {ty}", it.ident));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// The public ones: name and type.
fn fields(fields: &Fields, source: &impl Fn(proc_macro2::Span) -> String) -> Vec<String> {
    let public = |field: &&syn::Field| matches!(field.vis, Visibility::Public(_));
    let numbered = fields.iter().filter(public).enumerate();
    numbered
        .map(|(number, field)| {
            let name = field.ident.as_ref().map_or(number.to_string(), ToString::to_string);
            format!("{name}: {}", source(field.ty.span()))
        })
        .collect()
}

/// Traits that are derived, and if it may grow.
fn attributes(attributes: &[syn::Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if attribute.path().is_ident("non_exhaustive") {
            text += " (non-exhaustive)";
        } else if let Ok(list) = attribute.meta.require_list()
            && list.path.is_ident("derive")
        {
            let traits = list.tokens.to_string().replace(" , ", ", ").replace(" :: ", "::");
            text += &format!(" ({traits})");
        }
    }
    text
}

fn one_line(text: &str) -> String {
    let lines = without_comments(text);
    let line = lines.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace("( ", "(").replace(", )", ")").replace(",)", ")")
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join(" ")
}

const FOLDER: &str = "crates/longhaul/src/";
const LIST: &str = "crates/longhaul/public-api.txt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_is_listed_with_its_parts() {
        let lib =
            "mod a;\npub use a::{Thing, go};\npub use longhaul_units::Rate;\nuse a::Hidden;\n";
        let a = "
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Thing { /// Why.
 pub rate: Rate, secret: u8 }
impl Thing { pub fn new(
    rate: Rate,
) -> Self { todo!() }
 fn own(&self) {} }
impl Default for Thing { fn default() -> Self { todo!() } }
pub struct Hidden;
pub fn go(thing: &Thing) {}
";
        let tree = Tree::of(&[(&format!("{FOLDER}lib.rs"), lib), (&format!("{FOLDER}a.rs"), a)]);
        let expected = [
            "Rate = longhaul_units::Rate",
            "Thing.rate: Rate",
            "Thing: fn new(rate: Rate) -> Self",
            "fn go(thing: &Thing)",
            "impl Default for Thing",
            "struct Thing (Clone, Debug) (non-exhaustive)",
        ];
        assert_eq!(list(&tree).lines().collect::<Vec<_>>(), expected);
    }
}
