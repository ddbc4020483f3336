//! The one error of the public calls.

use std::fmt;

use longhaul_carriers::tcp::JoinError;
use longhaul_connection::HostFailure;
use longhaul_control::ConnectError;
use longhaul_files::DestinationError;
use longhaul_units::{Duration, counted, without_numbers};
use longhaul_wire::{CloseCode, PipeRole};

use crate::api::Snapshot;
use crate::endpoint::client::{Failure, TooNarrow};

/// Why a copy, pipe, probe or server did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Error {
    /// The failure, for programs.
    pub kind: ErrorKind,
    /// Where it failed.
    pub side: Side,
    /// The file or directory of this host that it is about.
    pub path: Option<String>,
    /// The failure, what is kept and what to do next, for people.
    pub message: String,
    /// State that a copy or pipe has left, where that is known.
    pub kept: Option<Kept>,
    /// Next step, where that is known; part of `message` too.
    pub hint: Option<&'static str>,
    /// The same may pass when it is tried again, although nobody mends anything.
    pub may_pass: bool,
}

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Options that do not fit each other, an unknown profile. Nothing was done.
    Usage,
    /// The server, or a gateway on the path, cannot be reached or does not answer as one.
    Unreachable,
    /// The server or a gateway does not accept the token.
    Unauthorized,
    /// The server does not grant the request, or is busy.
    Refused,
    /// No UDP packet comes through.
    UdpBlocked,
    /// Packets as UDP needs them do not pass, or pass no more.
    TooNarrow,
    /// The connection, or the other end of a pipe, was gone before the end.
    Lost,
    /// The server did what no server may do.
    Violation,
    /// The destination of a copy, or the root of a server, cannot be used.
    Path,
    /// An address is in use or not of this host.
    Listen,
    /// A host cannot go on: disk full, limits of its system, ...
    Failed,
    /// The user stopped it.
    Stopped,
}

/// Where something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On this host.
    Here,
    /// At the server.
    There,
    /// On the path between them.
    Between,
}

/// State that a copy or pipe has left that did not come to its end, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// A copy has moved no contents of files, and found none at the destination. Directories may be there.
    Nothing,
    /// A dry run has changed nothing.
    Unchanged,
    /// All that a copy made durable.
    Written,
    /// Bytes of a pipe that are verified at the server. What the receiver has is not the whole.
    Sent(u64),
    /// Bytes of a pipe that were written to this end's file.
    Received(u64),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no contents of files were written"),
            Self::Unchanged => f.write_str("nothing was changed"),
            Self::Written => f.write_str("what was written is kept"),
            Self::Sent(bytes) => write!(f, "{} had reached the server", counted(*bytes, "byte")),
            Self::Received(bytes) => {
                write!(f, "{} came through, not the whole", counted(*bytes, "byte"))
            }
        }
    }
}

impl Kept {
    /// By a copy, perhaps a dry run, that came as far as `reached`.
    pub(crate) fn of_copy(dry_run: bool, reached: &Snapshot) -> Self {
        match (dry_run, reached.bytes_done, reached.files_done) {
            (true, ..) => Self::Unchanged,
            (false, 0, 0) => Self::Nothing,
            (false, ..) => Self::Written,
        }
    }

    /// By a pipe of which this end plays `role`.
    pub(crate) fn of_pipe(role: PipeRole, bytes: u64) -> Self {
        match role {
            PipeRole::Send => Self::Sent(bytes),
            PipeRole::Receive => Self::Received(bytes),
        }
    }

    fn is_of_pipe(self) -> bool {
        matches!(self, Self::Sent(_) | Self::Received(_))
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, side: Side, message: impl Into<String>) -> Self {
        let message = without_numbers(&message.into());
        Self { kind, side, path: None, message, kept: None, hint: None, may_pass: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, Side::Here, message)
    }

    /// This host cannot go on.
    pub(crate) fn here(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, Side::Here, message)
    }

    /// A path of this host cannot be used.
    pub(crate) fn path(path: impl Into<String>, message: String) -> Self {
        Self { path: Some(path.into()), ..Self::new(ErrorKind::Path, Side::Here, message) }
    }

    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Stopped, Side::Here, "stopped")
    }

    /// With what to do next.
    pub(crate) fn hint(self, hint: &'static str) -> Self {
        let message = format!("{}; {hint}", self.message);
        Self { message, hint: Some(hint), ..self }
    }

    fn keeping(self, kept: Option<Kept>) -> Self {
        let Some(all) = kept else { return self };
        let message = format!("{}; {all}", self.message);
        // Where something else has to be done first, the same command does not help.
        let (message, hint) = match self.hint {
            None if all == Kept::Unchanged => (format!("{message}, {AGAIN}"), Some(AGAIN)),
            None if !all.is_of_pipe() => (format!("{message}, {AGAIN} to go on"), Some(AGAIN)),
            hint => (message, hint),
        };
        Self { message, kept, hint, ..self }
    }

    /// The same, tried again for so long.
    fn after(self, tried: Duration) -> Self {
        let message = match tried.as_secs() {
            0 => self.message,
            seconds => format!("{}; tried again for {seconds} s", self.message),
        };
        Self { message, hint: None, ..self }
    }

    /// Of a transfer that has `kept` so much.
    pub(crate) fn of(failure: Failure, kept: Option<Kept>) -> Self {
        let may_pass = failure.as_loss().is_some() || failure.may_pass();
        Self { may_pass, ..Self::of_failure(failure, kept) }
    }

    fn of_failure(failure: Failure, kept: Option<Kept>) -> Self {
        let between = Side::Between;
        match failure {
            Failure::Usage(reason) => Self::usage(reason),
            Failure::Connect(error) | Failure::Join(JoinError::Connect(error)) => error.into(),
            Failure::Join(JoinError::Stopped) => Self::stopped(),
            Failure::Join(error) => Self::new(ErrorKind::Unreachable, between, error.to_string()),
            Failure::Destination(error) => error.into(),
            Failure::Gone { last, tried } => {
                // Another run writes there.
                let none = matches!(kept, Some(Kept::Nothing | Kept::Unchanged));
                let other = last.as_busy().is_some() && none;
                Self::of(*last, None).after(tried).keeping(kept.filter(|_| !other))
            }
            Failure::Ssh(failure) => {
                Self::new(ErrorKind::Lost, between, failure.reason).keeping(kept)
            }
            Failure::Refused { words, .. } => Self::new(ErrorKind::Refused, Side::There, words),
            Failure::Lost { server, reason, .. } => {
                Self::ended((ErrorKind::Lost, between), &server, &reason, kept)
            }
            Failure::NoRoute { reasons, was_there } => {
                let message = format!("no route is left: {}", reasons.join("; "));
                match was_there {
                    true => Self::new(ErrorKind::Lost, between, message).keeping(kept),
                    false => Self::new(ErrorKind::Unreachable, between, message),
                }
            }
            Failure::UdpBlocked { server } => {
                let message = format!(
                    "no UDP packet comes through to {server} (blocked by a firewall?); nothing was \
                     sent"
                );
                Self::new(ErrorKind::UdpBlocked, between, message).hint("try --carrier tcp")
            }
            Failure::TooNarrow(TooNarrow { server, reason, by_tcp: false, .. }) => {
                let message = format!("UDP does not fit the path to {server}: {reason}");
                let error = Self::new(ErrorKind::TooNarrow, between, message);
                error.hint("use --carrier tcp").keeping(kept)
            }
            Failure::NoUdp(reason) => {
                Self::here(reason).hint("--carrier tcp does without it").keeping(kept)
            }
            Failure::Local(HostFailure::Destination { path, reason }) => Self::path(path, reason),
            Failure::Local(failure @ HostFailure::NoCircuit(_)) => {
                let error = Self::here(failure.to_string());
                error.hint("--circuit-or-ip copies over IP where there is none").keeping(kept)
            }
            Failure::Local(failure) => Self::here(failure.to_string()).keeping(kept),
            Failure::TooManyErrors { failed, first } => {
                let failed =
                    if failed == 1 { "an entry".into() } else { format!("{failed} entries") };
                let message =
                    format!("given up (--max-errors), because {failed} failed, the first: {first}");
                Self::here(message).hint(BEAR_MORE).keeping(kept)
            }
            Failure::Stopped => Self::stopped().keeping(kept),
            Failure::TooNarrow(TooNarrow { server, reason, .. }) => {
                Self::ended((ErrorKind::Lost, between), &server, &reason, kept)
            }
            Failure::Closed { server, code, by_peer, reason } => {
                let kind = match (code, by_peer) {
                    (CloseCode::STORAGE, true) => (ErrorKind::Failed, Side::There),
                    (CloseCode::PROTOCOL_VIOLATION, false) => (ErrorKind::Violation, Side::There),
                    _ => (ErrorKind::Lost, between),
                };
                Self::ended(kind, &server, &reason, kept)
            }
        }
    }
    /// A transfer that `server`, or the connection to it, has ended.
    fn ended(
        (kind, side): (ErrorKind, Side),
        server: &str,
        reason: &str,
        kept: Option<Kept>,
    ) -> Self {
        let message = match kind {
            _ if kept.is_some_and(Kept::is_of_pipe) => format!("the pipe broke: {reason}"),
            ErrorKind::Failed => format!("{server} cannot go on: {reason}"),
            ErrorKind::Violation => {
                let message = format!(
                    "{server} breaks the protocol: {reason}; the copy was ended, what was written \
                     before stays"
                );
                return Self { kept, ..Self::new(kind, side, message) };
            }
            _ => format!("the connection to {server} ended: {reason}"),
        };
        Self::new(kind, side, message).keeping(kept)
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        let (kind, side) = match &error {
            ConnectError::Stopped => return Self::stopped(),
            ConnectError::System(_) => (ErrorKind::Failed, Side::Here),
            ConnectError::Unauthorized { .. } => (ErrorKind::Unauthorized, Side::There),
            ConnectError::GatewayUnauthorized { .. } => (ErrorKind::Unauthorized, Side::Between),
            ConnectError::Refused { .. } => (ErrorKind::Refused, Side::There),
            ConnectError::HungUp { .. }
            | ConnectError::NotLonghaul { .. }
            | ConnectError::Impostor { .. }
            | ConnectError::Version { .. } => (ErrorKind::Unreachable, Side::There),
            _ => (ErrorKind::Unreachable, Side::Between),
        };
        Self::new(kind, side, error.to_string())
    }
}

impl From<DestinationError> for Error {
    fn from(error: DestinationError) -> Self {
        Self::path(error.path(), error.to_string())
    }
}

/// Next step after a copy that did not come to its end: it goes on from what is durable.
const AGAIN: &str = "run the same command again";
/// Next step where more entries have failed than the user bears: until then it would end alike.
const BEAR_MORE: &str = "mend what failed or raise --max-errors, then run the same command again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_kind_and_side_and_its_text_ends_with_what_is_kept_and_what_to_do() {
        let server = || "192.0.2.7:7420".to_owned();
        let closed = |code, by_peer| Failure::Closed {
            server: server(),
            code,
            by_peer,
            reason: "no space left".into(),
        };
        let narrow = |by_tcp| {
            let reason = "1280 bytes pass".into();
            Failure::TooNarrow(TooNarrow {
                server: server(),
                reason,
                passed: None,
                moved: true,
                by_tcp,
            })
        };
        let (written, sent) = (Some(Kept::Written), Some(Kept::Sent(7)));
        let again = Some(AGAIN);
        for (failure, kept, kind, side, hint, text) in [
            (
                closed(CloseCode::STORAGE, true),
                written,
                ErrorKind::Failed,
                Side::There,
                again,
                "192.0.2.7:7420 cannot go on: no space left; what was written is kept, run the same \
                 command again to go on",
            ),
            (
                closed(CloseCode::STORAGE, true),
                sent,
                ErrorKind::Failed,
                Side::There,
                None,
                "the pipe broke: no space left; 7 bytes had reached the server",
            ),
            (
                closed(CloseCode::PROTOCOL_VIOLATION, false),
                written,
                ErrorKind::Violation,
                Side::There,
                None,
                "192.0.2.7:7420 breaks the protocol: no space left; the copy was ended, what was \
                 written before stays",
            ),
            (
                narrow(false),
                written,
                ErrorKind::TooNarrow,
                Side::Between,
                Some("use --carrier tcp"),
                "UDP does not fit the path to 192.0.2.7:7420: 1280 bytes pass; use --carrier tcp; \
                 what was written is kept",
            ),
            (
                narrow(true),
                Some(Kept::Nothing),
                ErrorKind::Lost,
                Side::Between,
                again,
                "the connection to 192.0.2.7:7420 ended: 1280 bytes pass; no contents of files were \
                 written, run the same command again to go on",
            ),
            (
                Failure::Local(HostFailure::NoCircuit("the service books nothing".into())),
                Some(Kept::Nothing),
                ErrorKind::Failed,
                Side::Here,
                Some("--circuit-or-ip copies over IP where there is none"),
                "no circuit: the service books nothing; --circuit-or-ip copies over IP where there is \
                 none; no contents of files were written",
            ),
            (
                Failure::Local(HostFailure::Storage("no space left".into())),
                Some(Kept::Received(7)),
                ErrorKind::Failed,
                Side::Here,
                None,
                "no space left; 7 bytes came through, not the whole",
            ),
            (
                Failure::TooManyErrors { failed: 2, first: "a: no".into() },
                written,
                ErrorKind::Failed,
                Side::Here,
                Some(BEAR_MORE),
                "given up (--max-errors), because 2 entries failed, the first: a: no; mend what failed or \
                 raise --max-errors, then run the same command again; what was written is kept",
            ),
            (
                closed(CloseCode::STORAGE, true),
                Some(Kept::Unchanged),
                ErrorKind::Failed,
                Side::There,
                again,
                "192.0.2.7:7420 cannot go on: no space left; nothing was changed, run the same command again",
            ),
            (
                Failure::Destination(DestinationError::NotDirectory { path: "out".into() }),
                Some(Kept::Nothing),
                ErrorKind::Path,
                Side::Here,
                None,
                "out: is not a directory",
            ),
        ] {
            let error = Error::of(failure, kept);
            assert_eq!((error.kind, error.side, error.hint), (kind, side, hint), "{error}");
            assert_eq!(error.to_string(), text);
            assert_eq!(error.path.is_some(), kind == ErrorKind::Path, "{error}");
        }
    }
}
