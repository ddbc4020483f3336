use std::ffi::{CString, c_char, c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use longhaul_relay::ParsePlaceError;
use longhaul_relay_client::{self as client, Attempt, Gateways, SessionError, Step};
use rustix::net::{RecvFlags, SendFlags};

use crate::route::Route;
use crate::words::{TextError, Words, owned, text};

/// `longhaul_relay_dial`.
pub(crate) struct Dial {
    gateways: Arc<Gateways>,
    attempt: Attempt,
    failure: Option<(c_int, CString)>,
}

/// Why no set-up begins: the caller gave something wrong, but for the header.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0}")]
    Text(#[from] TextError),
    #[error("{target}: {error}")]
    Target { target: String, error: ParsePlaceError },
    #[error("{0}: no address with a port")]
    Gateway(String),
    #[error("{0}")]
    Header(#[from] client::DialError),
}

pub(crate) const FAILED: c_int = -1;
pub(crate) const CONNECTED: c_int = 0;
pub(crate) const WANT_READ: c_int = 1;
pub(crate) const WANT_WRITE: c_int = 2;
pub(crate) const AGAIN: c_int = 3;

impl Dial {
    pub fn new(
        gateways: Arc<Gateways>,
        target: &str,
        gateway: SocketAddr,
    ) -> Result<Self, DialError> {
        let wrong = |error| DialError::Target { target: target.to_owned(), error };
        let attempt = gateways.dial(target.parse().map_err(wrong)?, gateway)?;
        Ok(Self { gateways, attempt, failure: None })
    }

    pub fn advance(&mut self, fd: BorrowedFd<'_>) -> c_int {
        let flags = (SendFlags::NOSIGNAL | SendFlags::DONTWAIT, RecvFlags::DONTWAIT);
        let step = self.attempt.advance(
            |bytes| Ok(rustix::net::send(fd, bytes, flags.0)?),
            |buffer| Ok(rustix::net::recv(fd, buffer, flags.1)?.0),
        );
        self.outcome(step)
    }

    /// When the answer is given up.
    pub const fn until(&self) -> Instant {
        self.attempt.until()
    }

    fn outcome(&mut self, step: Step) -> c_int {
        match step {
            Step::Waiting if self.attempt.unsent().is_empty() => WANT_READ,
            Step::Waiting => WANT_WRITE,
            Step::Connected(_) => CONNECTED,
            Step::WrongClock(clock, failure) => match self.gateways.believe(clock) {
                true => AGAIN,
                false => self.fail(failure),
            },
            Step::Failed(failure) => self.fail(failure),
        }
    }

    fn fail(&mut self, failure: SessionError) -> c_int {
        self.failure = Some((failure.errno, owned(&failure.words)));
        FAILED
    }

    pub fn failure(&self) -> Option<SessionError> {
        let (errno, words) = self.failure.as_ref()?;
        Some(SessionError::own(*errno, words.to_string_lossy()))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_new(
    route: *const Route,
    target: *const c_char,
    gateway: *const c_char,
    error: *mut c_char,
    error_len: usize,
) -> *mut Dial {
    // SAFETY: as the header demands.
    let (route, target, gateway, words) =
        unsafe { (&*route, text(target), text(gateway), Words::new(error, error_len)) };
    let dial = || -> Result<Dial, DialError> {
        let gateway = gateway?;
        let address = gateway.parse().map_err(|_| DialError::Gateway(gateway.to_owned()))?;
        Dial::new(route.gateways.clone(), target?, address)
    };
    match dial() {
        Ok(dial) => Box::into_raw(Box::new(dial)),
        Err(error) => {
            words.write(error);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_free(dial: *mut Dial) {
    if !dial.is_null() {
        // SAFETY: it comes from `longhaul_relay_dial_new`, and is used no more.
        drop(unsafe { Box::from_raw(dial) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_advance(dial: *mut Dial, fd: c_int) -> c_int {
    if fd < 0 {
        return FAILED;
    }
    // SAFETY: as the header demands; the caller keeps the socket open meanwhile.
    unsafe { (*dial).advance(BorrowedFd::borrow_raw(fd)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_header(
    dial: *const Dial,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: as the header demands.
    unsafe {
        let header = (*dial).attempt.unsent();
        *len = header.len();
        header.as_ptr().cast()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_left(dial: *const Dial) -> c_int {
    // SAFETY: as the header demands.
    let until = unsafe { (*dial).until() };
    let left = until.saturating_duration_since(Instant::now());
    // Rounded up: who has slept so long finds the time over.
    c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_wanted(dial: *const Dial) -> usize {
    // SAFETY: as the header demands.
    unsafe { (*dial).attempt.wanted() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_receive(
    dial: *mut Dial,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    let bytes = match len {
        0 => &[][..],
        // SAFETY: as the header demands.
        _ => unsafe { std::slice::from_raw_parts(bytes.cast(), len) },
    };
    // SAFETY: as the header demands.
    let dial = unsafe { &mut *dial };
    let unsent = dial.attempt.unsent().len();
    dial.attempt.sent(unsent);
    let step = dial.attempt.receive(bytes);
    dial.outcome(step)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_errno(dial: *const Dial) -> c_int {
    // SAFETY: as the header demands.
    unsafe { (*dial).failure.as_ref().map_or(0, |failure| failure.0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_dial_message(dial: *const Dial) -> *const c_char {
    // SAFETY: as the header demands.
    unsafe { (*dial).failure.as_ref().map_or(c"".as_ptr(), |failure| failure.1.as_ptr()) }
}
