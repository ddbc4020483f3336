//! The paths of a server: where its client takes lanes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use longhaul_connection::Offer;
use longhaul_engine::Path;
use longhaul_sys::clock;
use longhaul_units::{Bottleneck, Instant, LaneId, PathId};

use super::{Line, Lines, Opening, Owner, PATHS_MAX, Peer};
use crate::buffer::lock;

impl Lines {
    /// A server's `lane` has proven that its client is at `client`: the path that this is, if it is
    /// another one than `on`.
    pub fn follow(
        &self,
        lane: LaneId,
        client: IpAddr,
        on: PathId,
    ) -> Option<(PathId, Arc<Mutex<Path>>)> {
        let Owner::Server(opening) = &self.owner else { return None };
        let mut set = lock(&self.set);
        let known = |peer| set.lines.iter().position(|line| line.peer == peer);
        let number = known(Peer::Client(client)).or_else(|| known(Peer::Unknown));
        let number = match number {
            Some(number) => number,
            None if set.lines.len() == PATHS_MAX => 0,
            None => {
                let path = (opening.path)()?;
                let path = Arc::new(Mutex::new(path));
                set.lines.push(Line { path, peer: Peer::Unknown, limit: None });
                usize::from(set.paths.add(clock::now(), Offer::Share(1)).0)
            }
        };
        let line = &mut set.lines[number];
        if line.peer == Peer::Unknown {
            line.peer = Peer::Client(client);
        }
        let (path, number) = (line.path.clone(), PathId(number as u16));
        set.paths.note_place(lane, number);
        (number != on).then_some((number, path))
    }

    /// Each path has as much of the server's limit as it has of the lanes.
    pub(super) fn share_limit(&self, now: Instant) {
        let Owner::Server(Opening { limit: Some(all), .. }) = &self.owner else { return };
        let mut set = lock(&self.set);
        let counts = set.paths.counts();
        let lanes = counts.iter().sum::<u32>().max(1);
        let mut changed = Vec::new();
        for (line, count) in set.lines.iter_mut().zip(counts) {
            let limit = Some(all.scale(count.max(1), lanes));
            if line.limit != limit {
                line.limit = limit;
                changed.push(line.clone());
            }
        }
        drop(set);
        for Line { path, limit, .. } in changed {
            let limit = limit.unwrap_or(*all);
            lock(&path).govern(now, |governor| governor.set(Bottleneck::UserLimit, limit));
        }
    }
}
