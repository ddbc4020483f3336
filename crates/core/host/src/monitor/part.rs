use longhaul_units::{Duration, Instant, Rate};

use super::{Announcement, MonitorConfig, Part};
use crate::signals::{Batch, Socket, Turn};
use crate::{Paptc, Rapid};

/// What a paper's receiver does with the samples of one reader.
#[derive(Clone, Debug)]
pub(super) enum PartState {
    /// Nothing: the monitor speaks.
    Limits,
    Rapid(Rapid),
    Paptc(Paptc),
}

impl PartState {
    pub(super) fn new(now: Instant, config: &MonitorConfig) -> Self {
        match config.part {
            Part::Limits => Self::Limits,
            Part::Rapid(rapid) => Self::Rapid(Rapid::new(now, rapid)),
            Part::Paptc => Self::Paptc(Paptc::new(now, config.service)),
        }
    }

    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        match self {
            Self::Limits => {}
            Self::Rapid(rapid) => rapid.set_round_trip(round_trip),
            Self::Paptc(paptc) => paptc.set_round_trip(round_trip),
        }
    }

    pub(super) fn on_turn(&mut self, now: Instant, turn: &Turn) {
        match self {
            Self::Limits => {}
            Self::Rapid(rapid) => rapid.handle_turn(now, turn),
            Self::Paptc(paptc) => paptc.handle_turn(now, turn),
        }
    }

    pub(super) fn on_batch(&mut self, batch: &Batch) {
        match self {
            Self::Limits => {}
            Self::Rapid(rapid) => rapid.handle_read(),
            Self::Paptc(paptc) => paptc.handle_batch(batch),
        }
    }

    pub(super) fn on_socket(&mut self, socket: &Socket) {
        if let Self::Rapid(rapid) = self {
            rapid.handle_socket(socket);
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Announcement> {
        match self {
            Self::Rapid(rapid) => rapid.poll_announcement(now),
            _ => None,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Rapid(rapid) => rapid.next_timeout(),
            _ => None,
        }
    }

    pub(super) fn capacity(&self) -> Option<Rate> {
        match self {
            Self::Paptc(paptc) => paptc.capacity(),
            _ => None,
        }
    }
}
