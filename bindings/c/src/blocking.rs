//! A `connect` that waits.

use std::ffi::{c_char, c_int};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_relay_client::{Gateways, SessionError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::dial::{AGAIN, CONNECTED, Dial, FAILED, WANT_WRITE};
use crate::route::Route;
use crate::words::{TextError, Words, text};

#[unsafe(no_mangle)]
unsafe extern "C" fn longhaul_relay_connect(
    route: *const Route,
    target: *const c_char,
    timeout_ms: c_int,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    // SAFETY: as the header demands.
    let (route, target, words) = unsafe { (&*route, text(target), Words::new(error, error_len)) };
    match connect(&route.gateways, target, timeout_ms) {
        Ok(fd) => fd,
        Err(failure) => {
            words.write(failure.words);
            // SAFETY: the address is valid for the life of the thread.
            unsafe { *libc::__errno_location() = failure.errno };
            -1
        }
    }
}

fn connect(
    gateways: &Arc<Gateways>,
    target: Result<&str, TextError>,
    timeout_ms: c_int,
) -> Result<c_int, SessionError> {
    let target = target.map_err(|error| SessionError::own(libc::EINVAL, error))?;
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let until = limit.map(|limit| Instant::now() + limit);
    let mut is_second = false;
    loop {
        let (stream, gateway) = reach(gateways, until)?;
        let dial = Dial::new(gateways.clone(), target, gateway);
        let mut dial = dial.map_err(|error| SessionError::own(libc::EINVAL, error))?;
        stream.set_nonblocking(true).map_err(|error| of(&error))?;
        // At the end of the dial's own time it says so itself.
        let answer_by = dial.until();
        let wait = |for_| {
            let came = wait(&stream, for_, until.map_or(answer_by, |until| until.min(answer_by)))?;
            if came || until.is_none_or(|until| answer_by <= until) {
                Ok(())
            } else {
                Err(timed_out())
            }
        };
        loop {
            match dial.advance(stream.as_fd()) {
                CONNECTED => {
                    stream.set_nonblocking(false).map_err(|error| of(&error))?;
                    return Ok(stream.into_raw_fd());
                }
                AGAIN if is_second => {
                    let words = "the gateway says another time than a moment ago";
                    return Err(SessionError::own(libc::ECONNABORTED, words));
                }
                AGAIN => {
                    is_second = true;
                    break;
                }
                FAILED => {
                    let unknown = || SessionError::own(libc::EIO, "no reason");
                    return Err(dial.failure().unwrap_or_else(unknown));
                }
                WANT_WRITE => wait(PollFlags::OUT)?,
                _ => wait(PollFlags::IN)?,
            }
        }
    }
}

fn of(error: &io::Error) -> SessionError {
    SessionError::own(error.raw_os_error().unwrap_or(libc::EIO), error)
}

fn timed_out() -> SessionError {
    SessionError::own(libc::ETIMEDOUT, "no answer in time")
}

fn left(until: Option<Instant>) -> Result<Option<Duration>, SessionError> {
    let Some(until) = until else { return Ok(None) };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(timed_out()) } else { Ok(Some(left)) }
}

/// A connection to the first gateway, and which of its addresses that is.
fn reach(
    gateways: &Gateways,
    until: Option<Instant>,
) -> Result<(TcpStream, SocketAddr), SessionError> {
    let place = gateways.first();
    let addresses = (place.host.to_string(), place.port).to_socket_addrs();
    let addresses = addresses.map_err(|error| {
        SessionError::own(libc::ENETUNREACH, format!("cannot resolve {place}: {error}"))
    })?;
    let mut last = "it has no address".to_owned();
    for address in addresses {
        let connected = match left(until)? {
            Some(left) => TcpStream::connect_timeout(&address, left),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => last = error.to_string(),
        }
    }
    let words = last.split(" (os error").next().unwrap_or_default().to_lowercase();
    Err(SessionError::own(libc::ENETUNREACH, format!("gateway {place} does not answer: {words}")))
}

/// Waits for readiness; `false` where it takes longer.
fn wait(stream: &TcpStream, for_: PollFlags, until: Instant) -> Result<bool, SessionError> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(stream, for_)], left.as_ref()) {
        Ok(0) => Ok(false),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(SessionError::own(error.raw_os_error(), error)),
    }
}
