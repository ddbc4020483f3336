//! The lanes that a handshake agreed on.

use longhaul_connection::{LaneHalf, RecordHalf, Sealer};
use longhaul_engine::{LaneConfig, Role};
use longhaul_rate_control::{FeedbackSchedule, Repair};
use longhaul_session::Session;
use longhaul_units::{Instant, LaneId, PathId};
use longhaul_wire::{Carrier, Protect};

use crate::lane::udp::UdpLane;
use crate::lane::{Carrying, LaneState};
use crate::network::server;
use crate::protection::Protection;
use crate::records::Records;
use crate::scenario::{End, Scenario};

/// Properties that the lanes of an end share.
pub(super) struct Opening<'o> {
    pub scenario: &'o Scenario,
    pub session: &'o Session,
    pub end: End,
    pub repair: Repair,
    pub feedback: FeedbackSchedule,
    pub seed: u64,
}

impl Opening<'_> {
    /// All lanes, over `carrier`. The host's time is `local`.
    pub fn lanes(&self, [now, local]: [Instant; 2], carrier: Carrier) -> Vec<LaneState> {
        let carrying = |number: u16| match carrier == Carrier::Tcp {
            true => self.tcp(local, LaneId(number)),
            false => self.udp([now, local], LaneId(number)),
        };
        let lanes = 0..self.session.lanes;
        lanes.map(|number| LaneState::new(local, carrying(number))).collect()
    }

    fn tcp(&self, local: Instant, lane: LaneId) -> Carrying {
        let rate = self.scenario.rate.or(self.scenario.limit);
        let rate = rate.map(|rate| rate.scale(1, u32::from(self.session.lanes)));
        let bare = self.session.protect == Protect::Clear;
        let seals = bare.then(|| Records::new(self.session, lane));
        Carrying::Tcp(Box::new(RecordHalf::new(local, lane, rate, seals)))
    }

    fn udp(&self, [now, local]: [Instant; 2], lane: LaneId) -> Carrying {
        let Self { scenario, session, .. } = self;
        let role = if self.end == End::Client { Role::Client } else { Role::Server };
        let seed = self.seed ^ u64::from(lane.0) << 32;
        let mut config = LaneConfig::new(session.connection, lane, role, seed);
        if self.end == End::Client {
            let home = scenario.homes[usize::from(lane.0)];
            (config.path, config.remote) = (PathId(home), Some(server(scenario, home)));
        }
        config.repair = self.repair;
        config.feedback = self.feedback;
        let seal = Protection::new(session.send_keys(lane), session.protect);
        let open = Protection::new(session.receive_keys(lane), session.protect);
        config.object_tag = Sealer::object_tag(&seal);
        config.datagram_max = scenario.datagram_max;
        config.socket_buffer = Some(scenario.socket_buffer);
        config.stream_buffer = scenario.stream_buffer;
        let half = LaneHalf::new(local, config);
        Carrying::Udp(Box::new(UdpLane::new(half, lane, [seal, open], now)))
    }
}
