//! Source and sink against each other, over a storage that loses power.

mod cases;
mod hostile;
mod resume;
mod tree;
mod world;
