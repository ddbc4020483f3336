//! The service manager that has started a server, as systemd: the states that it is given (`sd_notify(3)`), and the socket
//! that it passes on (`sd_listen_fds(3)`). Where there is none nothing is done.

use std::io;
use std::net::TcpListener;

use longhaul_sys::activation;
use sd_notify::NotifyState;

use crate::failure::Failure;
use crate::output::Output;

/// Clients are let in.
pub(super) fn is_ready(output: &Output) {
    note(&[NotifyState::Ready], output);
}

/// Settings are read again, until it [`is_ready`].
pub(super) fn reloads(output: &Output) {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => note(&[NotifyState::Reloading, now], output),
        Err(error) => unheard(&error, output),
    }
}

/// Nobody is let in any more.
pub(super) fn stops(output: &Output) {
    note(&[NotifyState::Stopping], output);
}

/// The socket to listen at.
///
/// # Errors
/// It passes on something else, or more.
pub(super) fn listener() -> Result<Option<TcpListener>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("the service manager's socket: {error}"))
    };
    let mut passed = sd_notify::listen_fds().map_err(|error| failed(&error))?;
    match (passed.next(), passed.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => activation::listener(one).map(Some).map_err(|error| failed(&error)),
        (Some(_), Some(_)) => {
            Err(failed(&"one ListenStream= is expected, since UDP is at its address"))
        }
    }
}

fn note(state: &[NotifyState<'_>], output: &Output) {
    if let Err(error) = sd_notify::notify(state) {
        unheard(&error, output);
    }
}

fn unheard(error: &io::Error, output: &Output) {
    output.say(format!("note: the service manager does not hear of this server: {error}"));
}
