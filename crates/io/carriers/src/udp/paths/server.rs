//! The paths of a server: where its client takes lanes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use longhaul_connection::Offer;
use longhaul_engine::Path;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{LaneId, PathId};

use super::{ConnectionPaths, Owner, PATHS_MAX, PathEntry, Peer};

impl ConnectionPaths {
    /// Finds the path of a server's `lane` that has proven that its client is at `from` and reaches this host at
    /// `to`; nothing if that is the path `on` which it is.
    pub fn follow(
        &self,
        lane: LaneId,
        (to, from): (IpAddr, IpAddr),
        on: PathId,
    ) -> Option<(PathId, Arc<Mutex<Path>>)> {
        let Owner::Server(opening) = &self.owner else { return None };
        let mut set = lock(&self.set);
        let known = |peer| set.entries.iter().position(|entry| entry.peer == peer);
        let client = Peer::Client { to, from };
        let number = known(client).or_else(|| known(Peer::Unknown));
        let number = match number {
            Some(number) => number,
            None if set.entries.len() == PATHS_MAX => 0,
            None => {
                let path = (opening.0)()?;
                let path = Arc::new(Mutex::new(path));
                set.entries.push(PathEntry { path, peer: Peer::Unknown });
                usize::from(set.paths.add(clock::now(), Offer::Share(1)).0)
            }
        };
        let entry = &mut set.entries[number];
        if entry.peer == Peer::Unknown {
            entry.peer = client;
        }
        let (path, number) = (entry.path.clone(), PathId(number as u16));
        set.paths.note_place(lane, number);
        drop(set);
        // A new one has its part of the limits from the first packet on.
        self.hold_limits(clock::now());
        (number != on).then_some((number, path))
    }
}
