//! Long functions and wide structs of the product.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::tree::Parsed;

/// Functions of more than [`LINES_MAX`] lines, signature to closing brace, and structs of more than
/// [`FIELDS_MAX`] fields, the largest of each first.
pub fn large_items(products: &[Parsed<'_>]) -> (Vec<String>, Vec<String>) {
    let mut items = Items::default();
    for product in products {
        items.path = &product.file.path;
        items.visit_file(&product.syntax);
    }
    (listed(items.functions), listed(items.structs))
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

/// Sizes and places, in any order.
type Found = Vec<(usize, String)>;

fn listed(mut found: Found) -> Vec<String> {
    found.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    found.into_iter().map(|(_, place)| place).collect()
}

#[derive(Default)]
struct Items<'t> {
    /// That of the file that is looked at.
    path: &'t str,
    functions: Found,
    structs: Found,
}

impl Items<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line + 1 - first;
        if lines > LINES_MAX {
            let place = format!("{}:{first}: {}, {lines} lines", self.path, signature.ident);
            self.functions.push((lines, place));
        }
    }
}

impl<'a> Visit<'a> for Items<'_> {
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
            let (fields, line) = (item.fields.len(), item.ident.span().start().line);
            if fields > FIELDS_MAX {
                let place = format!("{}:{line}: {}, {fields} fields", self.path, item.ident);
                self.structs.push((fields, place));
            }
        }
    }
}

/// Lines of a function.
const LINES_MAX: usize = 70;
/// Fields of a struct.
const FIELDS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
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
        assert_eq!(large_items(&tree.products()).0, ["crates/a/src/a.rs:74: b, 71 lines"]);
    }

    #[test]
    fn fields_are_counted() {
        let fields = |count| (0..count).map(|n| format!("f{n}: u8,")).collect::<String>();
        let text = format!("struct A {{ {} }}\nstruct B {{ {} }}\n", fields(20), fields(21));
        let tree = Tree::of(&[("crates/a/src/a.rs", &text)]);
        assert_eq!(large_items(&tree.products()).1, ["crates/a/src/a.rs:2: B, 21 fields"]);
    }
}
