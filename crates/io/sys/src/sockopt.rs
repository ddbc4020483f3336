//! Socket options that neither `socket2` nor `rustix` wraps, as integers, words or bytes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};

/// Sets an option whose value is a C `int`.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> Result {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets an option whose value is `value`, byte for byte.
pub(crate) fn set_bytes(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &[u8]) -> Result {
    let length = value.len() as socklen_t;
    // SAFETY: the kernel reads `length` bytes from `value`, which lives through the call.
    let status =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option whose value is a C `int`.
pub(crate) fn int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value = [0; size_of::<c_int>()];
    bytes(fd, level, name, &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// Reads an option into `value` and returns how many bytes the kernel filled in.
pub(crate) fn bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length = value.len() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value` and the new length to `length`;
    // both outlive the call.
    let status = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length)
    };
    if status == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

type Result = io::Result<()>;
