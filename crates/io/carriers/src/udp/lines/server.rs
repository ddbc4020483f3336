//! The paths of a server: where its client takes lanes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use longhaul_connection::Offer;
use longhaul_engine::Path;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{LaneId, PathId};

use super::{Line, Lines, Owner, PATHS_MAX, Peer};

impl Lines {
    /// A server's `lane` has proven that its client is at `from` and reaches this host at `to`: the path
    /// that this is, if it is another one than `on`.
    pub fn follow(
        &self,
        lane: LaneId,
        (to, from): (IpAddr, IpAddr),
        on: PathId,
    ) -> Option<(PathId, Arc<Mutex<Path>>)> {
        let Owner::Server(opening) = &self.owner else { return None };
        let mut set = lock(&self.set);
        let known = |peer| set.lines.iter().position(|line| line.peer == peer);
        let client = Peer::Client { to, from };
        let number = known(client).or_else(|| known(Peer::Unknown));
        let number = match number {
            Some(number) => number,
            None if set.lines.len() == PATHS_MAX => 0,
            None => {
                let path = (opening.0)()?;
                let path = Arc::new(Mutex::new(path));
                set.lines.push(Line { path, peer: Peer::Unknown });
                usize::from(set.paths.add(clock::now(), Offer::Share(1)).0)
            }
        };
        let line = &mut set.lines[number];
        if line.peer == Peer::Unknown {
            line.peer = client;
        }
        let (path, number) = (line.path.clone(), PathId(number as u16));
        set.paths.note_place(lane, number);
        drop(set);
        // A new one has its part of the limits from the first packet on.
        self.hold_limits(clock::now());
        (number != on).then_some((number, path))
    }
}
