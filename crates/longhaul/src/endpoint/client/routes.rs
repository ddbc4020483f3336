//! One route to the server after the other.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_carriers::tcp::JoinError;
use longhaul_control::ConnectError;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_units::Duration;
use longhaul_wire::CloseCode;

use super::{Client, Failure, Finished, Task};
use crate::connection::shared::Shared;
use crate::error::Error;
use crate::options::{Endpoint, Route};
use crate::progress::Progress;

/// Routes that were tried, and led to no end.
#[derive(Default)]
struct Tried {
    reasons: Vec<String>,
    notices: Vec<String>,
    /// One of them led to the server, which may not know yet that it is lost.
    was_there: bool,
}

impl Client<'_> {
    /// Does the task by the first route that can be had; where that is lost, by the next.
    pub(super) fn by_routes<T: Task>(
        &self,
        make: &impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let routes = match &self.options.routes[..] {
            [] => &[Route::Direct],
            routes => routes,
        };
        let mut tried = Tried::default();
        for (i, route) in routes.iter().enumerate() {
            let failure = match self.once_free(route, &tried, make, progress, stop) {
                Ok(mut finished) => {
                    let hops = route.via().into_iter().flat_map(|via| via.hops());
                    finished.link.via = hops.map(ToString::to_string).collect();
                    finished.link.notices.splice(..0, tried.notices);
                    if let Some(ssh) = &self.options.ssh {
                        ssh.let_go();
                    }
                    return Ok(finished);
                }
                Err(failure) => self.with_fault(failure, route, stop),
            };
            if routes.len() == 1 || !failure.is_of_route() {
                return Err(failure);
            }
            tried.was_there |= matches!(failure, Failure::Lost { .. });
            let reason = format!("{route}: {}", Error::of(failure, None));
            if let Some(next) = routes.get(i + 1) {
                let notice = format!("{reason}; going on {next}");
                progress.tell(&notice);
                tried.notices.push(notice);
            }
            tried.reasons.push(reason);
        }
        Err(Failure::NoRoute { reasons: tried.reasons, was_there: tried.was_there })
    }

    /// By one route, as soon as the server has ended the connection that was lost.
    fn once_free<T: Task>(
        &self,
        route: &Route,
        tried: &Tried,
        make: &impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let until = clock::now() + self.options.idle_timeout + ENDING;
        loop {
            match self.by_route(route.via(), make, progress, stop) {
                Err(Failure::Refused { code: CloseCode::BUSY, .. })
                    if tried.was_there && clock::now() < until && !stop.is_requested() =>
                {
                    std::thread::sleep(ASK_AGAIN);
                }
                result => return result,
            }
        }
    }

    /// The same failure; of a connection through gateways that was lost with the one that is at fault.
    fn with_fault(&self, failure: Failure, route: &Route, stop: &Stop) -> Failure {
        let Endpoint { host, port } = &self.options.server;
        match (failure, route) {
            (Failure::Lost { server, reason, again }, Route::Gateways(via)) => {
                let fault = via.fault(host, *port, stop);
                let fault = fault.unwrap_or_else(|| format!("the gateways {via} answer again"));
                Failure::Lost { server, reason: format!("{reason}; {fault}"), again }
            }
            (failure, _) => failure,
        }
    }
}

impl Failure {
    /// Another route may do better.
    pub(super) fn is_of_route(&self) -> bool {
        match self {
            Self::Lost { again, .. } => *again,
            Self::UdpBlocked { .. } => true,
            Self::Connect(error) | Self::Join(JoinError::Connect(error)) => !matches!(
                error,
                ConnectError::NotLonghaul { .. }
                    | ConnectError::Unauthorized { .. }
                    | ConnectError::Impostor { .. }
                    | ConnectError::Version { .. }
                    | ConnectError::Refused { .. }
                    | ConnectError::Handshake { .. }
                    | ConnectError::System(_)
                    | ConnectError::Stopped
            ),
            Self::Join(error) => {
                !matches!(error, JoinError::CongestionControl { .. } | JoinError::Stopped)
            }
            _ => false,
        }
    }
}

/// Time that a server may take, once it has missed its client for the idle timeout, to make durable what
/// it had received.
const ENDING: Duration = Duration::from_secs(15);
const ASK_AGAIN: Duration = Duration::from_millis(500);
