//! The route of a lane over one path, which outlives connections.

use std::net::SocketAddr;

use longhaul_pathsim::{Delivery, DuplexConfig, Link, PathConfig};
use longhaul_units::Instant;

use crate::draw::Draw;
use crate::packet::Datagram;
use crate::scenario::End;

#[derive(Debug)]
pub(super) struct Route {
    /// The present ones are the last; older ones deliver what is under way.
    up: Vec<Link<Datagram>>,
    down: Vec<Link<Datagram>>,
    /// Where the client's packets seem to come from, and are answered to.
    pub client: SocketAddr,
    pub server: SocketAddr,
}

impl Route {
    pub fn new(
        line: &DuplexConfig,
        (client, server): (SocketAddr, SocketAddr),
        draw: &mut Draw,
        now: Instant,
    ) -> Self {
        let mut link = |path: &PathConfig| {
            Link::new(path, draw.word(), now).expect("scenarios have possible paths")
        };
        Self { up: vec![link(&line.forward)], down: vec![link(&line.backward)], client, server }
    }

    /// Sends from now on over the links of `other`.
    pub fn go_on(&mut self, mut other: Self) {
        self.up.append(&mut other.up);
        self.down.append(&mut other.down);
    }

    /// The link that takes what the host at `from` sends.
    pub fn link(&mut self, from: End) -> &mut Link<Datagram> {
        let links = if from == End::Client { &mut self.up } else { &mut self.down };
        links.last_mut().expect("a route has links")
    }

    /// True if the client has another address from now on.
    pub fn poll_rebinding(&mut self, now: Instant) -> bool {
        self.up.iter_mut().any(|link| link.poll_rebinding(now))
    }

    /// The next packet that arrived, and where.
    pub fn poll(&mut self, now: Instant) -> Option<(End, Delivery<Datagram>)> {
        for (links, at) in [(&mut self.up, End::Server), (&mut self.down, End::Client)] {
            if let Some(delivery) = links.iter_mut().find_map(|link| link.poll(now)) {
                return Some((at, delivery));
            }
        }
        for links in [&mut self.up, &mut self.down] {
            let newest = links.len() - 1;
            let mut index = 0;
            links.retain(|link| {
                index += 1;
                index > newest || link.in_flight() > 0
            });
        }
        None
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.up.iter().chain(&self.down).filter_map(Link::next_timeout).min()
    }
}
