//! Source and sink against each other, over a storage that loses power.
#![allow(clippy::unwrap_used, reason = "a test")]

mod asides;
mod attributes;
mod cases;
mod changes;
mod contents;
mod dry_run;
mod hard_links;
mod hostile;
mod kept;
mod resume;
mod tree;
mod world;
