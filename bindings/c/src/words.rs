//! Texts between the two languages.

use std::ffi::{CStr, CString, c_char};
use std::fmt;

/// A text of the caller's, if it is one.
///
/// # Safety
/// `text` is null or ends in a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, TextError> {
    if text.is_null() {
        return Err(TextError::Missing);
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| TextError::NotUtf8)
}

/// The caller gave no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextError {
    #[error("a text is missing")]
    Missing,
    #[error("a text is not UTF-8")]
    NotUtf8,
}

/// Where a caller wants to read what went wrong.
pub(crate) struct Words {
    to: *mut c_char,
    room: usize,
}

impl Words {
    /// # Safety
    /// `to` is null or has room for `room` bytes.
    pub unsafe fn new(to: *mut c_char, room: usize) -> Self {
        Self { to, room }
    }

    pub fn write(&self, words: impl fmt::Display) {
        if self.to.is_null() || self.room == 0 {
            return;
        }
        let words = words.to_string().replace('\0', " ");
        let words = &words[..words.floor_char_boundary(self.room - 1)];
        // SAFETY: no more is written than there is room for, the zero included.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr(), self.to.cast(), words.len());
            *self.to.add(words.len()) = 0;
        }
    }
}

/// For callers that read it as long as its owner lives.
pub(crate) fn owned(words: &str) -> CString {
    CString::new(words.replace('\0', " ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_to_the_room_that_there_is() {
        for (room, expected) in [(1, ""), (3, "au"), (4, "au"), (5, "auß"), (20, "außen")] {
            let mut buffer = [0x7f; 20];
            // SAFETY: the buffer has as much room.
            unsafe { Words::new(buffer.as_mut_ptr(), room).write("außen") };
            // SAFETY: a zero was written.
            assert_eq!(unsafe { text(buffer.as_ptr()) }, Ok(expected));
        }
        // SAFETY: nothing is written, or read.
        unsafe {
            Words::new(std::ptr::null_mut(), 9).write("nothing");
            assert!(text(std::ptr::null()).is_err());
        }
    }
}
