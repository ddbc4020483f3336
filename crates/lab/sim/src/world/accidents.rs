//! Accidents of a world.

use longhaul_units::Duration;
use longhaul_wire::CloseCode;

use super::{Host, World};
use crate::scenario::{Accident, End};
use crate::trace::Kind;

impl World {
    /// Lets happen what is due, and brings hosts back.
    pub(super) fn accidents(&mut self) -> bool {
        let now = self.now;
        let mut effect = false;
        for end in [End::Client, End::Server] {
            let host = self.host(end);
            if host.down_until.is_some_and(|until| until <= now) {
                host.down_until = None;
                effect = true;
            }
        }
        while self.faults.last().is_some_and(|fault| self.start + fault.at <= now)
            && let Some(fault) = self.faults.pop()
        {
            effect = true;
            self.trace.event(now, Kind::Fault, [self.faults.len() as u64, 0, 0]);
            self.trace.note(now, || format!("accident: {:?}", fault.what));
            if !self.is_over() {
                self.idle.eventful = now;
                self.check_untouched();
                self.accident(fault.what);
                self.look_before();
            }
        }
        effect
    }

    fn accident(&mut self, what: Accident) {
        let now = self.now;
        match what {
            Accident::Kill(end) => self.crash(end, false),
            Accident::PowerCut(end) => self.crash(end, true),
            Accident::Stall(end, time) => {
                let until = now + time;
                let host = self.host(end);
                host.stalled_until = Some(host.stalled_until.map_or(until, |at| at.max(until)));
            }
            Accident::Disconnect => {
                if let Some(control) = &mut self.control {
                    control.up.close(now);
                    control.down.close(now);
                }
            }
            Accident::Vanish => {
                let choice = self.draw.word();
                self.files.vanish(choice);
            }
            Accident::Change => {
                let choice = self.draw.word();
                self.files.change(choice, &mut self.draw);
            }
            Accident::DiskFull(bytes) => self.disk.storage.limit_space(Some(bytes.get())),
            Accident::DiskFreed => self.disk.storage.limit_space(None),
            Accident::SyncFails => self.disk.sync_fails = true,
            Accident::Suspend(time) => {
                let sink = self.scenario.sink();
                if let Some(connection) = &mut self.host(sink).connection {
                    connection.suspend_peer(now, time);
                }
            }
            Accident::Cancel => {
                if let Some(connection) = &mut self.host(End::Client).connection {
                    connection.close(now, CloseCode::CANCELLED, "stopped by the user", false);
                }
            }
            Accident::Reroute(lane, path) => self.network.reroute(lane, &path, now),
        }
    }

    /// Everything that the process had in memory is gone; with the power, also what its disk had
    /// not synced.
    fn crash(&mut self, end: End, power: bool) {
        let now = self.now;
        let was_up = end == End::Server || self.redial_at.is_none();
        if power && end == self.scenario.sink() {
            self.disk.storage.crash(self.draw.rng());
            self.disk.boot += 1;
            self.disk.sync_fails = false;
            self.disk.cut_when_tidy |= self.disk.is_tidy;
            self.disk.lost_unsynced |= !self.scenario.fsync;
            if self.scenario.fsync
                && let Some(fault) = self.files.fault_of_names(&self.disk.storage)
            {
                self.checks.require(false, || format!("after the power cut {fault}"));
            }
        }
        if let Some(control) = &mut self.control {
            let pipe = if end == End::Client { &mut control.up } else { &mut control.down };
            if power { pipe.fall_silent() } else { pipe.close(now) }
        }
        self.data.wires.fall_silent(now, end);
        let down = Duration::from_micros(self.draw.scaled(1_000, 2_000_000));
        *self.host(end) = Host { down_until: Some(now + down), ..Host::default() };
        if end == End::Client {
            self.data.racing = None;
        }
        if end == End::Client && was_up {
            self.report.runs.push(CloseCode::INTERNAL);
            self.redial_at = Some(now + down);
            self.done_since = None;
        }
    }
}
