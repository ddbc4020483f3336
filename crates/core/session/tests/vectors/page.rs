//! Writes the page: headings, named values, bytes in hexadecimal.

use std::fmt::Write;

pub struct Page {
    text: String,
    in_block: bool,
}

impl Page {
    pub fn new(introduction: &str) -> Self {
        Self { text: format!("{introduction}\n"), in_block: false }
    }

    pub fn section(&mut self, title: &str, words: &str) {
        self.end_block();
        write!(self.text, "\n## {title}\n").unwrap();
        self.words(words);
    }

    pub fn part(&mut self, title: &str, words: &str) {
        self.end_block();
        write!(self.text, "\n### {title}\n").unwrap();
        self.words(words);
    }

    /// A value that is not bytes.
    pub fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        self.begin_block();
        writeln!(self.text, "{name:<20}{value}").unwrap();
    }

    /// Bytes, 32 to the line.
    pub fn bytes(&mut self, name: &str, bytes: impl AsRef<[u8]>) {
        let hex: String = bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        if hex.is_empty() {
            return self.value(name, "(no bytes)");
        }
        for (i, start) in (0..hex.len()).step_by(64).enumerate() {
            let end = hex.len().min(start + 64);
            self.value(if i == 0 { name } else { "" }, &hex[start..end]);
        }
    }

    pub fn finish(mut self) -> String {
        self.end_block();
        self.text
    }

    fn words(&mut self, words: &str) {
        if !words.is_empty() {
            writeln!(self.text, "\n{words}").unwrap();
        }
    }

    fn begin_block(&mut self) {
        if !self.in_block {
            self.text.push_str("\n```text\n");
            self.in_block = true;
        }
    }

    fn end_block(&mut self) {
        if self.in_block {
            self.text.push_str("```\n");
            self.in_block = false;
        }
    }
}
