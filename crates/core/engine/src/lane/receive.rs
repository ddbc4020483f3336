//! Input from the driver, once it authenticated.

use alloc::string::{String, ToString};
use core::net::SocketAddr;

use longhaul_units::Instant;
use longhaul_wire::{BASE_DATAGRAM, CloseCode, DecodeError, Frame, Frames};

use super::{Lane, State};
use crate::address::Role;
use crate::event::Event;
use crate::path::{Path, Suspension};
use crate::reception::Arrival;
use crate::stream::Violation;

impl Lane {
    /// True if a packet with this number may be opened: no replay, and of a current key epoch
    /// (protocol.md 4.2, 4.4).
    #[inline]
    pub fn accepts(&self, number: u64) -> bool {
        self.reception.accepts(number)
    }

    /// OBJECT packets arrived from `from` and authenticated. Their payload is the driver's business.
    /// Returns whether they may be used: a client refuses a server that moved.
    pub fn handle_objects(&mut self, now: Instant, from: SocketAddr, arrival: &Arrival) -> bool {
        self.on_arrival(now, from, arrival, true)
    }

    /// A CONTROL packet with these frames arrived from `from` and authenticated.
    pub fn handle_control(
        &mut self,
        now: Instant,
        path: &mut Path,
        from: SocketAddr,
        arrival: &Arrival,
        frames: &[u8],
    ) {
        let eliciting =
            Frames::new(frames).any(|frame| frame.is_ok_and(|frame| frame.is_eliciting()));
        if !self.on_arrival(now, from, arrival, eliciting) || !matches!(self.state, State::Open) {
            return;
        }
        for frame in Frames::new(frames) {
            let handled = frame
                .map_err(Fault::from)
                .and_then(|frame| self.on_frame(now, arrival.at, path, from, &frame));
            if let Err(fault) = handled {
                self.close(now, CloseCode::PROTOCOL_VIOLATION, &fault.reason());
                return;
            }
        }
    }

    fn on_arrival(
        &mut self,
        now: Instant,
        from: SocketAddr,
        arrival: &Arrival,
        eliciting: bool,
    ) -> bool {
        let newest =
            self.reception.largest.is_none_or(|largest| arrival.numbers.end > largest.number + 1);
        let rng = &mut self.rng;
        let usable = self.addresses.on_received(now, from, arrival.wire_bytes, newest, || {
            rand_core::Rng::next_u64(rng).to_be_bytes()
        });
        if usable {
            self.liveness.on_received(now);
            let packets = arrival.numbers.end - arrival.numbers.start;
            let base = BASE_DATAGRAM as u64 + self.ip_overhead();
            self.received_base |= arrival.wire_bytes >= base * packets;
            self.reception.on_arrival(arrival, eliciting);
            self.paths.on_received(arrival.wire_bytes);
        }
        usable
    }

    fn on_frame(
        &mut self,
        now: Instant,
        arrived: Instant,
        path: &mut Path,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<(), Fault> {
        match *frame {
            Frame::Padding(_) => {}
            Frame::Feedback(ref feedback) => self.on_feedback(now, arrived, path, feedback)?,
            Frame::Ping => self.reception.request_report(),
            Frame::State(state) => self.reception.on_state(state.floor.get(), state.round_trip),
            Frame::Stream { stream, offset, fin, data } => {
                self.on_stream(stream, offset, data, fin)?;
            }
            Frame::StreamLimit { stream, limit } => self.on_stream_limit(stream, limit),
            Frame::StreamReset { stream, code } => self.on_stream_reset(stream, code),
            Frame::Challenge(data) => {
                if self.responses.len() < RESPONSES_MAX {
                    self.responses.push_back((from, data));
                }
            }
            Frame::Response(data) => {
                let before = self.addresses.is_validated();
                if self.addresses.on_response(from, data) && !before {
                    self.events.push_back(Event::Validated);
                }
            }
            Frame::RoundEnd { end, .. } => self.reception.on_round_end(end.get()),
            Frame::Close { code, reason } => self.closed_by_peer(code, reason),
            Frame::Suspend { order, duration } => {
                path.suspend(now, Suspension { order, until: now + duration });
            }
            Frame::Move { order, lane, beside } => {
                if self.config.role == Role::Server {
                    return Err(Fault::MoveAskedOfServer);
                }
                self.events.push_back(Event::MoveAsked { order, lane, beside });
            }
        }
        Ok(())
    }
}

/// The peer's fault, for the reason of CLOSE.
#[derive(Debug)]
pub(super) enum Fault {
    Frame(DecodeError),
    Stream(Violation),
    /// It reports packets that were never sent.
    UnsentReported,
    /// It counts more packets, bytes or marks than were sent.
    UnsentCounted,
    /// A client asks the server to move a lane.
    MoveAskedOfServer,
}

impl Fault {
    fn reason(&self) -> String {
        let text = match self {
            Self::Frame(error) => return error.to_string(),
            Self::Stream(Violation::BeyondLimit) => "stream bytes or streams beyond the limit",
            Self::Stream(Violation::BeyondFinal) => "stream bytes behind the end",
            Self::Stream(Violation::FinalMoved) => "the end of a stream moved",
            Self::MoveAskedOfServer => "MOVE from a client",
            Self::UnsentCounted => "feedback that counts more than was sent",
            Self::UnsentReported => "feedback about packets that were never sent",
        };
        text.to_string()
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Frame(error)
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Stream(violation)
    }
}

/// RESPONSEs that wait to be sent; more CHALLENGEs than this at once are noise.
const RESPONSES_MAX: usize = 8;
