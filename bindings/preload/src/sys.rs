//! System calls of the library's own, past its hooks.

use std::ffi::{c_int, c_short};
use std::io;
use std::time::{Duration, Instant};

use libc::{c_void, size_t, sockaddr, socklen_t, ssize_t};

use crate::next::next;

/// `errno` of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: the address is valid for the life of the thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}

fn outcome(result: ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(errno()))
}

pub(crate) fn receive(fd: c_int, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
    type Recv = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    let recv = next!(recv as Recv);
    // SAFETY: the buffer is as long as it says.
    outcome(unsafe { recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) })
}

pub(crate) fn send(fd: c_int, bytes: &[u8]) -> io::Result<usize> {
    type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    let send = next!(send as Send);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the bytes are as many as it says.
    outcome(unsafe { send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
}

pub(crate) fn write_words(words: &str) {
    type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
    let line = format!("longhaul: {words}\n");
    let write = next!(write as Write);
    // SAFETY: the bytes are as many as it says. Where standard error is closed nobody can learn of it.
    let _ = unsafe { write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// # Safety
/// `address` points to `len` bytes.
pub(crate) unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    type Connect = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    // SAFETY: as promised by the caller.
    unsafe { next!(connect as Connect)(fd, address, len) }
}

/// Takes the socket back to where it can connect again.
pub(crate) fn disconnect(fd: c_int) {
    // SAFETY: an address of zeros is of the family AF_UNSPEC, which means just that.
    unsafe {
        let nowhere: sockaddr = std::mem::zeroed();
        connect(fd, &raw const nowhere, size_of::<sockaddr>() as socklen_t);
    }
    // The errors of this connection are not to befall the next: one that came by ICMP stands in a queue
    // besides, and `poll` shows POLLERR for as long as it does.
    let _ = option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    for _ in 0..QUEUED_ERRORS {
        if receive(fd, &mut [0], libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT).is_err() {
            break;
        }
    }
}

/// An option of the socket that is a number.
pub(crate) fn option(fd: c_int, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: value and length are valid for the call.
    let result = unsafe { get_option(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    outcome(result as ssize_t).map(|_| value)
}

/// # Safety
/// As `getsockopt` of the C library.
pub(crate) unsafe fn get_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    type Get =
        unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    // SAFETY: as promised by the caller.
    unsafe { next!(getsockopt as Get)(fd, level, name, value, len) }
}

/// Sets an option of the socket; `false` where the kernel does not have it.
pub(crate) fn set_option<T>(fd: c_int, level: c_int, name: c_int, value: &T) -> bool {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: value and length are valid for the call.
    unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), len) == 0 }
}

pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    control(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0
}

pub(crate) fn set_nonblocking(fd: c_int, on: bool) {
    let flags = control(fd, libc::F_GETFL, 0);
    let wanted = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    control(fd, libc::F_SETFL, wanted as usize);
}

/// `fcntl` with one argument more, a number or an address.
pub(crate) fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    type Control = unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int;
    // SAFETY: the argument is the program's own, or flags.
    unsafe { next!(fcntl as Control)(fd, command, argument) }
}

/// True where a TCP socket is neither connected, nor being connected, nor listening.
pub(crate) fn is_closed(fd: c_int) -> bool {
    const CLOSE: u8 = 7;
    // The state is the first byte of what the kernel tells.
    let info = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
    info.is_ok_and(|info| info.to_ne_bytes()[0] == CLOSE)
}

/// `shutdown` of what is sent.
pub(crate) fn shut_down(fd: c_int) {
    type Shutdown = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
    // SAFETY: two numbers. What is not connected any more has ended, too.
    unsafe { next!(shutdown as Shutdown)(fd, libc::SHUT_WR) };
}

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`, where the program has set it.
pub(crate) fn time_limit(fd: c_int, name: c_int) -> Option<Duration> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    // SAFETY: value and length are valid for the call.
    let result =
        unsafe { get_option(fd, libc::SOL_SOCKET, name, (&raw mut limit).cast(), &raw mut len) };
    let micros = limit.tv_sec as u64 * 1_000_000 + limit.tv_usec as u64;
    (result == 0 && micros > 0).then(|| Duration::from_micros(micros))
}

/// Waits until something comes or the socket breaks; `false` where that takes longer. Signals
/// interrupt it, unless it `may_go_on` behind handlers that want that.
pub(crate) fn sleep(fd: c_int, until: Instant, may_go_on: bool) -> Result<bool, c_int> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll(fd, libc::POLLIN, left) {
            0 => return Ok(false),
            -1 if errno() == libc::EINTR && may_go_on && handlers_restart() => {}
            -1 => return Err(errno()),
            _ => return Ok(true),
        }
    }
}

/// The handlers of all signals that may have come here want system calls to go on (`SA_RESTART`):
/// `poll` never does that by itself.
fn handlers_restart() -> bool {
    // SAFETY: zeros are a valid value of both; nothing is changed, only read.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
        (1..=libc::SIGRTMAX()).all(|signal| {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0
                || libc::sigismember(&raw const blocked, signal) == 1
                || [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
                || action.sa_flags & libc::SA_RESTART != 0
        })
    }
}

fn poll(fd: c_int, events: c_short, most: Duration) -> c_int {
    let mut wait = libc::pollfd { fd, events, revents: 0 };
    // Rounded up, so that nobody turns in circles for the last part of a millisecond.
    let millis = c_int::try_from(most.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
    // SAFETY: one entry, as it says.
    unsafe { libc::poll(&raw mut wait, 1, millis) }
}

/// Waits until the socket is ready for `events`, or broken; `false` where it takes longer.
pub(crate) fn wait_for(fd: c_int, events: c_short, most: Duration) -> bool {
    let until = Instant::now() + most;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll(fd, events, left) {
            // A signal: short as this is, it is not worth an end.
            -1 if errno() == libc::EINTR => {}
            0 | -1 => return false,
            _ => return true,
        }
    }
}

/// One for each SYN that was sent again, and more.
const QUEUED_ERRORS: usize = 64;
