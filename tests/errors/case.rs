//! The cases that are tried: each call that `calls.txt` lists, with each error that `manual.toml` has for it, once and
//! for ever.

use std::collections::BTreeMap;
use std::fmt;

use longhaul_sys::faults::Call;

use crate::scene::{End, Kind};

/// One error.
#[derive(Clone, Debug)]
pub struct Case {
    pub site: Site,
    pub error: String,
    /// Which of these calls is the first to fail, counted from 1.
    pub at: u64,
    /// All after it fail, too.
    pub ever: bool,
}

/// A call that one of the processes makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub kind: Kind,
    pub tcp: bool,
    pub end: End,
    pub call: &'static str,
    /// The place it touches ([`crate::place`]).
    pub place: String,
}

/// Random numbers from a seed.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8) % end.max(1)
    }
}

/// The sites of `calls.txt`, and how often each call is made there, about.
pub fn sites() -> BTreeMap<Site, u64> {
    let parse = |line: &str| {
        let [scene, carrier, end, call, place, count] = *line.split(' ').collect::<Vec<_>>() else {
            panic!("calls.txt: {line}");
        };
        let kind = [Kind::Push, Kind::Pull, Kind::Pipe].into_iter().find(|k| k.name() == scene);
        let ends = [End::Server, End::Client, End::Receiver];
        let end = ends.into_iter().find(|known| known.name() == end);
        let call = Call::named(call).expect("calls.txt names known calls").name;
        let (kind, end) = (kind.expect("a scene"), end.expect("an end"));
        let site = Site { kind, tcp: carrier == "tcp", end, call, place: place.to_owned() };
        (site, count.parse().unwrap())
    };
    include_str!("calls.txt").lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

/// All of them, each once and for ever; which call fails is drawn.
pub fn all(draw: &mut Draw) -> Vec<Case> {
    let manual: BTreeMap<String, String> = toml::from_str(include_str!("manual.toml")).unwrap();
    let mut cases = Vec::new();
    for (site, count) in sites() {
        let named = manual.get(site.call).unwrap_or_else(|| panic!("manual.toml: {}", site.call));
        for error in named.split(' ').chain(["EPERM", "EIO", "ENOSYS"]) {
            for ever in [false, true] {
                // A program that tries again after these tries for ever.
                if ever && matches!(error, "EINTR" | "EAGAIN" | "EWOULDBLOCK") {
                    continue;
                }
                let at = 1 + draw.below(count);
                cases.push(Case { site: site.clone(), error: error.to_owned(), at, ever });
            }
        }
    }
    cases
}

impl Case {
    /// Parses what [`Case`] shows.
    pub fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [.., error, at, how] = words[..] else { panic!("not a case: {text}") };
        let found = sites().into_keys().find(|site| text.starts_with(&format!("{site} ")));
        let site = found.unwrap_or_else(|| panic!("calls.txt has no {text}"));
        Self { site, error: error.to_owned(), at: at.parse().unwrap(), ever: how == "ever" }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.ever { "ever" } else { "once" };
        write!(f, "{} {} {} {how}", self.site, self.error, self.at)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, end, call, place, .. } = self;
        let carrier = if self.tcp { "tcp" } else { "udp" };
        write!(f, "{} {carrier} {} {call} {place}", kind.name(), end.name())
    }
}
