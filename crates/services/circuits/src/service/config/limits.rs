//! What a client may take of the service.

use std::time::Duration;

use serde::Deserialize;

/// Bounds of the REST interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. No more than half as many as the process may have files are used.
    pub connections: usize,
    /// How long the head of a request may take, and a connection be idle. Longer than clients keep
    /// idle connections, so that they do not ask on one that is being closed.
    pub head: Duration,
    /// How long a body may take.
    pub body: Duration,
    /// How long a client may read nothing of what it is sent.
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
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
}

impl Default for File {
    fn default() -> Self {
        Self { connections: Limits::default().connections }
    }
}

impl File {
    pub(super) fn check(self) -> Result<Limits, String> {
        if self.connections == 0 {
            return Err("limits: connections: expected at least 1".into());
        }
        Ok(Limits { connections: self.connections, ..Limits::default() })
    }
}
