//! The right of the one client of a server.

use longhaul_wire::SshPurpose;

/// Rights of the one client of a server: this, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The kind of its requests.
    pub purpose: SshPurpose,
    /// The paths that requests have to name.
    pub paths: Vec<Vec<u8>>,
}

impl Grant {
    /// True for a request for `purpose` of `paths`.
    pub(crate) fn covers(&self, purpose: SshPurpose, paths: &[Vec<u8>]) -> bool {
        self.purpose == purpose && self.paths == paths
    }

    /// True for either end of the pipe of that name.
    pub(crate) fn covers_pipe(&self, name: &[u8]) -> bool {
        matches!(self.purpose, SshPurpose::Send | SshPurpose::Receive) && self.paths == [name]
    }

    /// The refusal of all else.
    pub(crate) const ELSE: &'static str = "this server was started for another request";
}
