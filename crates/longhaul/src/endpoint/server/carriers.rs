//! The carriers of a client's data: UDP lanes, or TCP connections that join.

use std::sync::Arc;

use longhaul_carriers::carrier::Carrier;
use longhaul_carriers::host_monitor::{Priority, part_of};
use longhaul_carriers::tcp::{Expected, JoinError, TcpLanes};
use longhaul_carriers::udp::lane::LaneSocket;
use longhaul_carriers::udp::lanes::{Duty, Hosting, LaneRules, Monitoring, UdpLanes};
use longhaul_carriers::udp::paths::{ConnectionPaths, Opening, Owner};
use longhaul_carriers::upper_layer::{Mailbox, UpperLayer};
use longhaul_control::pending::ExpectedConnections;
use longhaul_control::{Control, ControlEnd};
use longhaul_session::Session;
use longhaul_units::{Duration, LaneId};
use longhaul_wire::{CloseCode, MONITOR_LANE};

use super::Running;
use super::datagrams::KnownLanes;
use super::peer::{Peer, text};
use crate::connection::shared::Shared;
use crate::endpoint::client::tcp_options;
use longhaul_carriers::udp::path;

/// TCP connections that come, or may come in the place of UDP lanes.
pub(super) struct Joining<'s> {
    pub expected: Expected<'s>,
    /// Room for them at the door.
    pub coming: ExpectedConnections<'s>,
    /// Why they are to take the place of UDP lanes.
    pub instead: Option<String>,
}

impl Joining<'_> {
    /// True where one has come that proves to be of `session`.
    pub fn has_begun(&mut self, session: &Session) -> bool {
        self.expected.has_begun(session)
    }
}

impl Running<'_> {
    /// Starts the lanes of a client, and has its datagrams find them.
    pub(super) fn udp_lanes(
        &self,
        peer: &Peer<'_>,
        shared: &Arc<Shared>,
        boxes: Vec<Arc<Mailbox>>,
        known: &KnownLanes<'_>,
    ) -> Result<Box<dyn Carrier>, (CloseCode, String)> {
        let Peer { session, profile, local, .. } = *peer;
        known.add((0..).map(LaneId).zip(&boxes));
        let monitor = match part_of(profile) {
            Some(part) => {
                let mailbox = Mailbox::new().map(Arc::new).map_err(text)?;
                known.add([(MONITOR_LANE, &mailbox)]);
                let socket = LaneSocket::Shared(self.udp.clone(), local);
                let path = path(profile, INITIAL_RTT);
                Some(Monitoring { part, mailbox, socket, remote: None, path })
            }
            None => None,
        };
        let end = |lane| (LaneId(lane), LaneSocket::Shared(self.udp.clone(), local), None);
        let sockets = (0..session.lanes).map(end).collect();
        let first = path(profile, INITIAL_RTT);
        let priority = Priority::wished(self.options.host_priority);
        let hosting = Hosting { monitor, priority };
        let (feedback, repair) = (profile.feedback(), profile.repair());
        let idle_timeout = self.options.idle_timeout;
        let rules = LaneRules { repair, feedback, idle_timeout, duty: Duty::Any };
        // A rate that is booked is that of one controller.
        let played = profile.clone();
        let open = move || (!played.is_reserved()).then(|| path(&played, INITIAL_RTT));
        let owner = Owner::Server(Opening(Box::new(open)));
        let upper: Arc<dyn UpperLayer> = shared.clone();
        let (lines, upper) = (ConnectionPaths::new(owner, first, boxes.clone()), (upper, boxes));
        let lanes = UdpLanes::start(session, sockets, lines, |_| rules, hosting, upper, None);
        Ok(Box::new(lanes.map_err(text)?))
    }

    /// Waits for the connections of a client, while its control connection lives.
    pub(super) fn tcp_lanes(
        &self,
        peer: &Peer<'_>,
        shared: &Arc<Shared>,
        boxes: Vec<Arc<Mailbox>>,
        joining: Joining<'_>,
        control: &Control,
    ) -> Result<Box<dyn Carrier>, (CloseCode, String)> {
        let Joining { expected, coming, instead } = joining;
        let tcp = tcp_options(peer.profile.rate, self.options.idle_timeout, None);
        let is_over = || self.stop.is_requested() || control.ended().is_some();
        let joined = expected.collect(peer.session, &tcp, is_over);
        drop(coming);
        let joined = joined.map_err(|error| match control.ended() {
            Some(ControlEnd::Closed { code, reason, .. }) if reason.is_empty() => {
                (code, code.to_string())
            }
            Some(ControlEnd::Closed { code, reason, .. }) => (code, reason),
            Some(ControlEnd::Lost(reason)) => (CloseCode::TIMEOUT, reason),
            None => match (error, instead) {
                // The client may believe in UDP still.
                (JoinError::Missing { .. }, Some(reason)) => (CloseCode::PATH_MTU, reason),
                (error, _) => (CloseCode::INTERNAL, error.to_string()),
            },
        })?;
        let upper: Arc<dyn UpperLayer> = shared.clone();
        let lanes = TcpLanes::start(joined, &tcp, &upper, boxes).map_err(text)?;
        let in_tunnel = self.options.ssh.as_ref().is_some_and(|ssh| ssh.carries());
        Ok(Box::new(if in_tunnel { lanes.in_tunnel() } else { lanes }))
    }
}

/// Until the first sample.
pub(super) const INITIAL_RTT: Duration = Duration::from_millis(100);
