//! Payload that the program sent before the answer: it is sent again where the set-up begins again.

use libc::{c_void, iovec, mmsghdr, msghdr};

/// The payload of a session so far.
pub(crate) struct Early {
    bytes: Vec<u8>,
    /// Behind it the program ended what it sends.
    pub ended: bool,
}

impl Early {
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), ended: false }
    }

    /// No more is to be sent before the answer.
    pub const fn is_full(&self) -> bool {
        self.bytes.len() >= ENOUGH
    }

    /// The program sent these bytes.
    pub fn add(&mut self, more: Vec<u8>) {
        match self.bytes.is_empty() {
            true => self.bytes = more,
            false => self.bytes.extend(more),
        }
    }

    /// All that was sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Nothing was sent, and nothing ended.
    pub const fn is_empty(&self) -> bool {
        !self.ended && self.bytes.is_empty()
    }
}

/// The first `len` bytes behind `from`.
///
/// # Safety
/// There are as many.
pub(crate) unsafe fn flat(from: *const c_void, len: isize) -> Vec<u8> {
    let part = iovec { iov_base: from.cast_mut(), iov_len: usize::try_from(len).unwrap_or(0) };
    // SAFETY: as promised by the caller.
    unsafe { gathered(&raw const part, 1, len) }
}

/// The first `len` bytes of `count` parts.
///
/// # Safety
/// The parts are there, and have as many bytes.
pub(crate) unsafe fn gathered(parts: *const iovec, count: usize, len: isize) -> Vec<u8> {
    let len = usize::try_from(len).unwrap_or(0);
    let mut bytes = Vec::with_capacity(len);
    for number in 0..count {
        // SAFETY: as promised by the caller.
        let part = unsafe { parts.add(number).read() };
        let most = part.iov_len.min(len - bytes.len());
        if most > 0 {
            // SAFETY: as above.
            let more = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), most) };
            bytes.extend_from_slice(more);
        }
    }
    bytes
}

/// The first `len` bytes of a message.
///
/// # Safety
/// The message is there, and has as many bytes.
pub(crate) unsafe fn message(from: *const msghdr, len: isize) -> Vec<u8> {
    // SAFETY: as promised by the caller.
    unsafe { gathered((*from).msg_iov, (*from).msg_iovlen, len) }
}

/// The first `count` messages, as far as they were sent.
///
/// # Safety
/// There are as many.
pub(crate) unsafe fn messages(from: *const mmsghdr, count: isize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as promised by the caller.
        let more = unsafe {
            let at = from.add(number);
            message(&raw const (*at).msg_hdr, (*at).msg_len as isize)
        };
        bytes.extend(more);
    }
    bytes
}

/// Behind so many bytes the answer is waited for. One call more may add what the socket's buffers take.
const ENOUGH: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_kept_in_order_and_at_64_kib_it_is_enough() {
        let mut early = Early::new();
        assert!(early.is_empty());
        let text = *b"one two";
        let part = |at: usize, len| iovec { iov_base: text[at..].as_ptr() as _, iov_len: len };
        let parts = [part(0, 4), part(4, 3)];
        // SAFETY: the parts are there.
        early.add(unsafe { gathered(parts.as_ptr(), 2, 5) });
        // SAFETY: so is the text.
        early.add(unsafe { flat(text[5..].as_ptr().cast(), 2) });
        assert_eq!(early.bytes(), text);
        early.add(vec![0; ENOUGH - text.len() - 1]);
        assert!(!early.is_full() && !early.is_empty());
        early.add(vec![0; 1000]);
        assert!(early.is_full());
        assert_eq!((&early.bytes()[..7], early.bytes().len()), (&text[..], ENOUGH + 999));
    }
}
