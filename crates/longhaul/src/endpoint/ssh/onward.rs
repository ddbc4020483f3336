//! A copy that another host asks for: from here to a server that it has started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use longhaul_control::tunnel::Tunnel;
use longhaul_files::{expand_sources, means_several};
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::stop::Stop;
use longhaul_wire::SshOnward;

use super::started::{Found, SshServer};
use crate::error::{Error, ErrorKind, Side};
use crate::memory::budget::Budget;
use crate::options::{ConnectOptions, Endpoint};

/// A copy from this host to a server that another host has started by ssh, for which this one acts.
pub struct OnwardCopy {
    onward: SshOnward,
    /// Below the root of this host.
    paths: Vec<Vec<u8>>,
    tunnel: Arc<Tunnel>,
}

impl OnwardCopy {
    /// As `onward` says; frames go by both streams, and `stop` is asked for when `input` ends.
    pub(super) fn new(
        onward: SshOnward,
        paths: Vec<Vec<u8>>,
        (input, output): (File, File),
        stop: &Stop,
    ) -> std::io::Result<Self> {
        let gone = stop.clone();
        let tunnel = Tunnel::of_asked(input.into(), output.into(), move || gone.request())?;
        Ok(Self { onward, paths, tunnel: Arc::new(tunnel) })
    }

    /// To the other server, otherwise as [`ConnectOptions::new`]. It is dialled once: who has started it starts
    /// another one. `asked` is the destination as people have written it behind the host.
    pub fn connect(&self, asked: Vec<u8>) -> ConnectOptions {
        let SshOnward { entry, frames, host, name, addresses, .. } = &self.onward;
        let found = Found {
            host: host.clone(),
            destination: host.clone(),
            asked: vec![asked],
            entry: *entry,
            addresses: addresses.clone(),
            paths: vec![self.onward.destination.clone()],
            frames: *frames,
            taken: None,
        };
        let tunnel = frames.then(|| self.tunnel.clone());
        let server = SshServer::of_another(name.clone(), found, tunnel);
        let endpoint = Endpoint::new(host.clone(), entry.port);
        ConnectOptions::new(endpoint, server.token()).through(&Arc::new(server))
    }

    /// Its sources, and whether they need a directory as their destination, which `is_directory` says already of
    /// what was written; `copy_contents` as of a copy.
    ///
    /// # Errors
    /// A pattern that is none, or names that do not go together.
    pub fn sources(
        &self,
        copy_contents: bool,
        is_directory: bool,
    ) -> Result<(Vec<PathBuf>, bool), Error> {
        let refused = |words: String| Error::new(ErrorKind::Refused, Side::Here, words);
        let root = ConfinedDir::open_root("/").map_err(|error| Error::here(error.to_string()))?;
        let memory = Budget::new(None).of_names();
        let found = expand_sources(&root, &self.paths, copy_contents, memory)
            .map_err(|end| refused(end.reason))?;
        let is_directory = is_directory || self.paths.iter().any(|path| means_several(path));
        if found.len() > self.paths.len() && !copy_contents && !is_directory {
            let count = found.len();
            return Err(refused(format!(
                "{count} names match: write a slash behind DST, a directory"
            )));
        }
        let whole = |path: Vec<u8>| PathBuf::from("/").join(OsStr::from_bytes(&path));
        Ok((found.into_iter().map(whole).collect(), is_directory))
    }

    /// Its destination, as requests have to name it.
    pub fn destination(&self) -> &[u8] {
        &self.onward.destination
    }

    /// The command's words.
    pub fn words(&self) -> Vec<OsString> {
        self.onward.words.iter().map(|word| OsString::from_vec(word.clone())).collect()
    }

    /// Says a line to the host that asked, as long as this lives.
    pub fn reporter(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let tunnel: Weak<Tunnel> = Arc::downgrade(&self.tunnel);
        move |line| {
            if let Some(tunnel) = tunnel.upgrade() {
                // Where nobody is left who reads it, the copy ends.
                let _ = tunnel.report(format!("{line}\n").as_bytes());
            }
        }
    }
}
