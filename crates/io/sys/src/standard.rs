//! The standard streams as this process was given them.
//!
//! Rust's library opens `/dev/null` for those that are closed when a program starts, before `main`. What
//! is written there is lost without an error, and nobody can tell it from a `/dev/null` that somebody
//! wants: Python's `subprocess.DEVNULL` is open for reading and writing too. So this looks before the library does.

use std::sync::atomic::{AtomicU8, Ordering};

/// One of the standard streams; its number is that of its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
}

impl Stream {
    /// True if it was closed when this process started, as by `<&-` or `>&-` of a shell.
    pub fn was_closed(self) -> bool {
        CLOSED.load(Ordering::Relaxed) & 1 << self as u8 != 0
    }
}

/// Bits, by descriptor.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the C library calls each function of this section once, before `main`. This one calls nothing
// but `fcntl`, and takes no arguments, which its convention lets it ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for stream in [Stream::Input, Stream::Output] {
        // SAFETY: it asks about a number, and touches no memory.
        let flags = unsafe { libc::fcntl(stream as i32, libc::F_GETFD) };
        if flags < 0 {
            CLOSED.fetch_or(1 << stream as u8, Ordering::Relaxed);
        }
    }
}
