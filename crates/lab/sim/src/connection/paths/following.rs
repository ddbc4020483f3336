//! Opens and closes paths: at a client by its booking, at a server by its client.

use longhaul_connection::Offer;
use longhaul_units::{Instant, PathId};

use super::ConnectionPaths;
use crate::lane::LaneState;
use crate::scenario::Scenario;

impl ConnectionPaths {
    /// Opens and closes the circuit as it is booked.
    pub(super) fn follow_booking(
        &mut self,
        scenario: &Scenario,
        [now, local]: [Instant; 2],
    ) -> bool {
        let Some(circuit) =
            scenario.circuit.as_ref().filter(|_| self.change.is_some_and(|at| at <= now))
        else {
            return false;
        };
        let since = now - self.start;
        self.change = circuit.next_change(since).map(|at| self.start + at);
        let (data, ip) = match circuit.is_booked(since) {
            true if circuit.beside_ip => (Offer::Share(1), Offer::Share(1)),
            true => (Offer::Share(1), Offer::Standby),
            false => (Offer::Closed, Offer::Share(1)),
        };
        let last = self.entries.len() - 1;
        for path in 0..last {
            self.set.offer(local, PathId(path as u16), ip);
        }
        self.set.offer(local, PathId(last as u16), data);
        true
    }

    /// A server's lanes are where the client has taken them.
    pub(super) fn follow_client(
        &mut self,
        scenario: &Scenario,
        times: [Instant; 2],
        lanes: &mut [LaneState],
    ) -> bool {
        let mut moved = false;
        for lane in lanes {
            let Some(udp) = lane.udp() else { continue };
            let engine = udp.half.engine();
            let Some(remote) = engine.remote().filter(|_| engine.is_validated()) else { continue };
            let (number, before) = (udp.lane_id, engine.path());
            let known = self.entries.iter().position(|entry| entry.client == Some(remote.ip()));
            let path = match known {
                Some(path) => path,
                None if self.entries[0].client.is_none() => 0,
                None => {
                    self.set.add(times[1], Offer::Share(1));
                    self.open(scenario, times, 0, None);
                    self.entries.len() - 1
                }
            };
            self.entries[path].client = Some(remote.ip());
            let path = PathId(path as u16);
            if path != before {
                self.set.note_place(number, path);
                self.go(times[1], lane, path, None, scenario);
                moved = true;
            }
        }
        moved
    }
}
