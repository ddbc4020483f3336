//! Long functions and wide structs of the product.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::tree::{File, Tree};

/// Functions of more than [`LINES_MAX`] lines, signature to closing brace, the longest first.
pub fn long_functions(tree: &Tree) -> Vec<String> {
    listed(tree, |shapes| shapes.functions, LINES_MAX, "lines")
}

/// Structs of more than [`FIELDS_MAX`] fields, the widest first.
pub fn wide_structs(tree: &Tree) -> Vec<String> {
    listed(tree, |shapes| shapes.structs, FIELDS_MAX, "fields")
}

/// True if an item exists in tests only.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(list)
                    if list.tokens.to_string() == "test")
    })
}

type Sized = (usize, usize, String);

fn listed(tree: &Tree, of: fn(Shapes) -> Vec<Sized>, max: usize, unit: &str) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_product()) {
        let sizes = of(shapes(file)).into_iter().filter(|(size, ..)| *size > max);
        found.extend(sizes.map(|(size, line, name)| {
            (size, format!("{}:{line}: {name}, {size} {unit}", file.path))
        }));
    }
    found.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    found.into_iter().map(|(_, text)| text).collect()
}

/// Sizes, lines and names.
#[derive(Default)]
struct Shapes {
    functions: Vec<Sized>,
    structs: Vec<Sized>,
}

fn shapes(file: &File) -> Shapes {
    let mut shapes = Shapes::default();
    // What does not parse is the compiler's to report.
    if let Ok(parsed) = syn::parse_file(&file.text) {
        shapes.visit_file(&parsed);
    }
    shapes
}

impl Shapes {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let last = block.span().end().line;
        self.functions.push((last - first + 1, first, signature.ident.to_string()));
    }
}

impl<'a> Visit<'a> for Shapes {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        if !is_for_tests(&item.attrs) {
            let line = item.ident.span().start().line;
            self.structs.push((item.fields.len(), line, item.ident.to_string()));
        }
    }
}

/// Lines of a function.
const LINES_MAX: usize = 70;
/// Fields of a struct.
const FIELDS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_count_from_signature_to_brace_without_tests() {
        let body = "    x();\n".repeat(LINES_MAX - 2);
        let fits = format!("/// Docs.\n#[inline]\nfn a() {{\n{body}}}\n");
        let long = format!("impl A {{\nfn b() {{\n{body}\n}}\n}}\n");
        let test = format!("#[cfg(test)]\nmod tests {{\nfn c() {{\n{body}{body}}}\n}}\n");
        let tree = Tree::of(&[
            ("crates/a/src/a.rs", &format!("{fits}{long}{test}")),
            ("crates/a/src/a/tests.rs", &long),
        ]);
        assert_eq!(long_functions(&tree), ["crates/a/src/a.rs:74: b, 71 lines"]);
    }

    #[test]
    fn fields_are_counted() {
        let fields = |count| (0..count).map(|n| format!("f{n}: u8,")).collect::<String>();
        let text = format!("struct A {{ {} }}\nstruct B {{ {} }}\n", fields(20), fields(21));
        let tree = Tree::of(&[("crates/a/src/a.rs", &text)]);
        assert_eq!(wide_structs(&tree), ["crates/a/src/a.rs:2: B, 21 fields"]);
    }
}
