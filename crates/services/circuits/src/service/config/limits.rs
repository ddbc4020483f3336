//! Limits on what a client may take of the service.

use std::time::Duration;

use longhaul_settings::{WrongValue, wrong_value};
use serde::Deserialize;

/// Bounds of the REST interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. No more than half as many as the process may have files are used.
    pub connections: usize,
    /// Watches that a token may have at a time.
    pub watchers: usize,
    /// Most requests of a token in a time.
    pub pace: Pace,
    /// Longest time of the head of a request, and of an idle connection. Longer than clients keep
    /// idle connections, so that they do not ask on one that is being closed.
    pub head: Duration,
    /// Longest time of a body.
    pub body: Duration,
    /// Longest time in which a client reads nothing of what it is sent.
    pub stalled: Duration,
}

/// Most requests of a token in a time. Of a recurring request each occurrence counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests a second.
    pub rate: u32,
    /// Requests at once, after a pause.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            watchers: 16,
            // A log that such a token writes all day grows by some gigabytes.
            pace: Pace { rate: 20, burst: 1000 },
            head: Duration::from_secs(30),
            body: Duration::from_secs(10),
            stalled: Duration::from_secs(30),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    connections: usize,
    watchers: usize,
    requests_per_second: u32,
    requests_at_once: u32,
}

impl Default for File {
    fn default() -> Self {
        let Limits { connections, watchers, pace: Pace { rate, burst }, .. } = Limits::default();
        Self { connections, watchers, requests_per_second: rate, requests_at_once: burst }
    }
}

impl File {
    pub(super) fn check(self) -> Result<Limits, WrongValue> {
        let Self { connections, watchers, requests_per_second: rate, requests_at_once: burst } =
            self;
        if connections == 0 || rate == 0 || burst == 0 {
            let names = "connections, requests_per_second and requests_at_once";
            return Err(wrong_value!("limits: {names} are at least 1"));
        }
        Ok(Limits { connections, watchers, pace: Pace { rate, burst }, ..Limits::default() })
    }
}
