//! Settings that are well written and cannot work.

use std::net::IpAddr;

use longhaul_relay::{GATEWAY_PORT, Hop, Place, Prefix};

use longhaul_settings::{At, Written};

use super::Config;
use super::check::{Check, address, forward};
use crate::gateway::{GatewaySettings, StartError};
use crate::policy::is_of_this_host;
use crate::routes::Destination;

impl Check {
    /// Judges `settings` as a whole, which were read from `config`.
    pub(super) fn judge(&mut self, config: &Config, settings: &GatewaySettings) {
        // What could not be read would be missed here.
        if !self.mistakes.is_empty() {
            return;
        }
        if let Err(error) = settings.judge() {
            match place(config, &error) {
                Some(at) => self.mistakes.at(&at, &error),
                None => self.mistakes.add(&error),
            }
        }
        self.path(&config.via, settings);
        for route in &config.routes {
            self.path(&route.via, settings);
        }
        let entries = config.listen.iter().chain(&config.socks).chain(&config.forward);
        let at = |text: &str| {
            let forwarded = || forward(text).ok().map(|(address, _)| address);
            let address = address(text, Some(GATEWAY_PORT)).ok().or_else(forwarded);
            // The kernel chooses the port.
            address.filter(|address| address.port() != 0)
        };
        self.twice(entries, at, |one, other| one == other);
        let segments = config.classes.iter().flat_map(|class| &class.to);
        self.twice(segments, |text| text.parse().ok(), Prefix::is_same);
        let routes = config.routes.iter().flat_map(|route| &route.to);
        self.twice(routes, |text| text.parse().ok(), Destination::is_same);
    }

    /// Gateways in the order in which they are passed.
    fn path(&mut self, via: &[Written], settings: &GatewaySettings) {
        let hops: Vec<Hop> = via.iter().filter_map(|written| written.value.parse().ok()).collect();
        for (number, (hop, written)) in hops.iter().zip(via).enumerate() {
            let address = hop.place.address();
            if is_own(hop, settings) {
                self.mistakes
                    .wrong(written, "a session would come back here, and be refused as a loop");
            } else if hops[..number].iter().any(|other| other.place == hop.place) {
                self.mistakes.wrong(written, "it stands on this route already: a loop");
            } else if number == 0 && address.is_some_and(|at| !settings.destinations.allow(at)) {
                self.mistakes.wrong(written, "it may not be dialled, since allow does not name it");
            }
        }
    }

    /// Values of which one takes another's place.
    fn twice<'w, T>(
        &mut self,
        all: impl Iterator<Item = &'w Written>,
        read: impl Fn(&str) -> Option<T>,
        is_same: impl Fn(&T, &T) -> bool,
    ) {
        let mut seen: Vec<(T, At)> = Vec::new();
        for written in all {
            let Some(value) = read(&written.value) else { continue };
            match seen.iter().find(|(other, _)| is_same(other, &value)) {
                Some((_, At { line: Some(line), .. })) => {
                    self.mistakes.wrong(written, format_args!("line {line} names it already"));
                }
                Some(_) => self.mistakes.wrong(written, "it is named already"),
                None => seen.push((value, written.at)),
            }
        }
    }
}

/// The gateway is this one, by an address at which it listens or by its name.
fn is_own(hop: &Hop, settings: &GatewaySettings) -> bool {
    let Place { host, .. } = hop.written();
    let named = settings.name.as_ref();
    let by_address = hop.place.address().is_some_and(|at| {
        let is_here = |ip: IpAddr| match ip.is_unspecified() {
            true => ip.is_ipv4() == at.is_ipv4() && is_of_this_host(at.ip()),
            false => ip.to_canonical() == at.ip(),
        };
        settings.listen.iter().any(|own| own.port() == at.port() && is_here(own.ip()))
    });
    by_address || named.is_some_and(|name| host.to_string().eq_ignore_ascii_case(name))
}

/// Where the cause of an error stands, or what it misses.
fn place(config: &Config, error: &StartError) -> Option<At> {
    let entry = || [&config.listen, &config.socks, &config.forward].into_iter().flatten().next();
    let found = match error {
        StartError::NoToken => config.listen.first(),
        StartError::NoDestination => entry(),
        StartError::Open { passwords: true, address } => {
            config.socks.iter().find(|entry| entry.value == address.to_string())
        }
        StartError::Open { passwords: false, address } => {
            // On loopback it would not be open: the address stands there.
            let begin = format!("{address}=");
            config.forward.iter().find(|entry| entry.value.starts_with(&begin))
        }
        _ => None,
    };
    let first = config.is_file.then_some(At { key: "listen", line: Some(1) });
    found.map(|written| written.at).or(first)
}
