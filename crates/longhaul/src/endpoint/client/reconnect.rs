//! A connection that was lost is dialled again, for as long as the user has patience.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_control::ConnectError;
use longhaul_files::DestinationError;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_units::{Duration, Instant};
use longhaul_wire::CloseCode;

use super::{Client, Failure, Finished, Task};
use crate::connection::shared::Shared;
use crate::progress::Progress;

/// Connections that were lost so far, or, at a server that was busy, not to be had.
#[derive(Default)]
struct Losses {
    count: u32,
    /// The last of them behind which something had moved, or the first; until then when the server was busy.
    at: Option<Instant>,
    /// Bytes that had moved until then.
    bytes_done: u64,
    notices: Vec<String>,
    /// Bytes that had been there before the first connection.
    resumed: u64,
}

impl Client<'_> {
    /// Does the task; where the connection is lost, over another one that goes on from there.
    pub(super) fn reconnecting<T: Task>(
        &self,
        make: &impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let mut losses = Losses::default();
        let mut pause = PAUSE_FIRST;
        loop {
            let failure = match self.once(losses.at.is_some(), make, progress, stop) {
                Ok(mut finished) => {
                    finished.link.notices.splice(..0, losses.notices);
                    finished.link.reconnects = losses.count;
                    finished.resumed_first = (losses.count > 0).then_some(losses.resumed);
                    return Ok(finished);
                }
                Err(failure) => failure,
            };
            let now = clock::now();
            let retry = self.retry();
            let loss = failure.as_loss().filter(|_| !retry.is_zero());
            let may_pass = loss.is_some() || failure.may_pass();
            let mut notice = None;
            if let Some(loss) = loss {
                let snapshot = progress.snapshot();
                if losses.count == 0 {
                    losses.resumed = snapshot.resumed_bytes;
                }
                losses.count += 1;
                progress.connection_lost();
                if losses.count == 1 || snapshot.bytes_done > losses.bytes_done {
                    (losses.at, losses.bytes_done) = (Some(now), snapshot.bytes_done);
                    pause = PAUSE_FIRST;
                }
                notice = Some(format!("{loss}; dialling again"));
            } else if losses.at.is_none()
                && let Some(busy) = failure.as_busy().filter(|_| !retry.is_zero())
            {
                losses.at = Some(now);
                notice = Some(format!("{busy}; trying again"));
            }
            notice.iter().for_each(|notice| progress.tell(notice));
            losses.notices.extend(notice);
            let Some(at) = losses.at else { return Err(failure) };
            let goes_on = may_pass && now + pause <= at + retry && wait(pause, stop);
            if !goes_on {
                return Err(match stop.is_requested() {
                    true => Failure::Stopped,
                    false => Failure::Gone { last: Box::new(failure), tried: now - at },
                });
            }
            // A path that is back is used soon, and a server at its limit not asked much.
            let most = if losses.count > 0 { PAUSE_MOST } else { PAUSE_MOST_BUSY };
            pause = (pause * 2).min(most);
        }
    }

    /// Does the task over one connection, `again` where another was lost or refused: ssh starts another server then.
    fn once<T: Task>(
        &self,
        again: bool,
        make: &impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let Some(ssh) = self.options.ssh.as_ref().filter(|_| again) else {
            return self.by_routes(make, progress, stop);
        };
        let server = ssh.again(stop).map_err(Failure::Ssh)?;
        let Client { ref profile, memory, ref wish, started, .. } = *self;
        let options = &self.options.clone().through(&server);
        let (profile, wish) = (profile.clone(), wish.clone());
        Client { options, profile, memory, wish, started }.by_routes(make, progress, stop)
    }

    /// A circuit would be booked once more.
    fn retry(&self) -> Duration {
        match self.options.circuit.is_some() {
            true => Duration::ZERO,
            false => self.options.retry,
        }
    }
}

impl Failure {
    /// The loss of a connection behind which another one goes on, in words.
    pub(crate) fn as_loss(&self) -> Option<String> {
        match self {
            Self::Lost { server, reason, again: true }
            | Self::Closed {
                server,
                reason,
                code: CloseCode::SHUTDOWN | CloseCode::BUSY | CloseCode::TIMEOUT,
                by_peer: true,
            } => Some(format!("the connection to {server} ended: {reason}")),
            Self::NoRoute { reasons, was_there: true } => {
                Some(format!("no route is left: {}", reasons.join("; ")))
            }
            _ => None,
        }
    }

    /// A server that was there may be there again, or notice that the lost connection is over.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NoRoute { .. } => true,
            Self::Ssh(failure) => failure.may_pass,
            failure => failure.as_busy().is_some() || failure.is_of_route(),
        }
    }

    /// In words that the server is there and has no place now, or stops, perhaps to start again, or another transfer
    /// has what this one wants, at either end.
    pub(crate) fn as_busy(&self) -> Option<String> {
        match self {
            Self::Destination(error @ DestinationError::Busy { .. }) => Some(error.to_string()),
            Self::Refused { code, words } if is_for_a_while(*code) => Some(words.clone()),
            Self::Connect(error @ ConnectError::Refused { code, .. }) if is_for_a_while(*code) => {
                Some(error.to_string())
            }
            _ => None,
        }
    }
}

/// A server that refuses for this reason may take the same client later.
fn is_for_a_while(code: CloseCode) -> bool {
    matches!(code, CloseCode::BUSY | CloseCode::SHUTDOWN)
}

/// Waits so long. False where the user has stopped it.
fn wait(pause: Duration, stop: &Stop) -> bool {
    let until = clock::now() + pause;
    while clock::now() < until {
        if stop.is_requested() {
            return false;
        }
        std::thread::sleep(LOOK.min(until - clock::now()));
    }
    true
}

/// From a loss to the next try, and between later ones.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(1);
const PAUSE_MOST_BUSY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
