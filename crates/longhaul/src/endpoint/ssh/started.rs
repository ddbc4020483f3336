//! A server that ssh has started, as a client knows it.

use std::fmt;
use std::process::{Child, ChildStdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_control::tunnel::Tunnel;
use longhaul_session::Token;
use longhaul_sys::clock;
use longhaul_sys::process::wait_for_end;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::threads::spawn;
use longhaul_wire::{SshEntry, SshTaken};

/// A server that ssh has started for this client, as long as this lives: see
/// [`start_by_ssh`](crate::start_by_ssh).
pub struct SshServer {
    /// Of records: the same for every server that the same words of the user start.
    name: String,
    found: Found,
    /// Without, another host has started it, and this one acts for that.
    own: Option<Own>,
    streams: Streams,
    served: AtomicBool,
}

/// A server of this host's own.
struct Own {
    child: Child,
    restart: Restart,
}

/// Streams of ssh. The server ends with its input.
pub(super) enum Streams {
    /// They carry connections.
    Tunnel(Arc<Tunnel>),
    /// Of a server that knows nothing of that.
    Input(Mutex<Option<ChildStdin>>),
    /// Those of another host are not for connections.
    Elsewhere,
}

/// Starts another server by the same words of the user, for the same.
pub(super) type Restart = Box<dyn Fn(&Stop) -> Result<Arc<SshServer>, NoServer> + Send + Sync>;

/// Why no other server was started.
#[derive(Debug)]
pub(crate) struct NoServer {
    pub reason: String,
    /// Trying again can help.
    pub may_pass: bool,
}

/// Knowledge of a client about its server.
pub(super) struct Found {
    /// As the user names it.
    pub host: String,
    /// The same, with the user's name there.
    pub destination: String,
    /// Paths that it was asked for, as people write them.
    pub asked: Vec<Vec<u8>>,
    pub entry: SshEntry,
    pub addresses: Vec<String>,
    pub paths: Vec<Vec<u8>>,
    /// It takes frames.
    pub frames: bool,
    /// Ports that it may listen at are not to be had.
    pub taken: Option<SshTaken>,
}

impl Found {
    /// In words that others have ports that it may listen at.
    pub(super) fn lacks_ports(&self) -> Option<String> {
        let use_of_it = match self.taken? {
            SshTaken::Udp => "both TCP and UDP",
            // Nobody knows of UDP where there is no TCP.
            SshTaken::All => "TCP",
        };
        Some(format!("{}: no port of --ports is free for {use_of_it} at the server", self.host))
    }
}

impl SshServer {
    /// That of `child`, which ends with its `streams`; `name` is that of records.
    pub(super) fn new(
        name: String,
        restart: Restart,
        found: Found,
        (child, streams): (Child, Streams),
    ) -> Self {
        let own = Some(Own { child, restart });
        Self { name, found, own, streams, served: AtomicBool::new(false) }
    }

    /// That of another host, which has started it and passes on frames of the tunnel, if there is one.
    pub(super) fn of_another(name: String, found: Found, tunnel: Option<Arc<Tunnel>>) -> Self {
        let streams = tunnel.map_or(Streams::Elsewhere, Streams::Tunnel);
        Self { name, found, own: None, streams, served: AtomicBool::new(false) }
    }

    /// Another host passes on what goes through ssh.
    pub(crate) const fn is_of_another(&self) -> bool {
        self.own.is_none()
    }

    /// Starts another one in its place.
    ///
    /// # Errors
    /// It cannot be started, or has other paths.
    pub(crate) fn again(&self, stop: &Stop) -> Result<Arc<Self>, NoServer> {
        let Some(own) = &self.own else {
            let reason = "the host that has started that server starts others".into();
            return Err(NoServer { reason, may_pass: false });
        };
        self.leave();
        let another = (own.restart)(stop)?;
        match another.paths() == self.paths() {
            true => Ok(another),
            false => {
                let reason = "the same paths lead elsewhere there now".into();
                Err(NoServer { reason, may_pass: false })
            }
        }
    }

    /// Lets it end, if ssh still holds it.
    fn leave(&self) {
        match &self.streams {
            Streams::Tunnel(tunnel) => tunnel.close(),
            Streams::Input(input) => drop(lock(input).take()),
            Streams::Elsewhere => {}
        }
    }

    /// Everything is done: nobody has to wait for it to end.
    pub(crate) fn let_go(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// The tunnel, which carries connections where nothing else does.
    pub(crate) const fn tunnel(&self) -> Option<&Arc<Tunnel>> {
        match &self.streams {
            Streams::Tunnel(tunnel) => Some(tunnel),
            Streams::Input(_) | Streams::Elsewhere => None,
        }
    }

    /// The paths that it was started for, as requests have to name them.
    pub fn paths(&self) -> &[Vec<u8>] {
        &self.found.paths
    }

    /// As the user names it.
    pub(crate) fn host(&self) -> &str {
        &self.found.host
    }

    /// As the user names it, with the user's name there.
    pub(crate) fn destination(&self) -> &str {
        &self.found.destination
    }

    /// Paths that it was asked for, as people write them.
    pub(crate) fn asked(&self) -> &[Vec<u8>] {
        &self.found.asked
    }

    pub(crate) const fn port(&self) -> u16 {
        self.found.entry.port
    }

    pub(crate) fn token(&self) -> Token {
        Token::from_random(self.found.entry.token)
    }

    /// Where it may be found, the best first.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.found.addresses
    }

    /// Others have ports that it may listen at.
    pub(crate) const fn taken(&self) -> Option<SshTaken> {
        self.found.taken
    }

    /// The same, in words.
    pub(crate) fn lacks_ports(&self) -> Option<String> {
        self.found.lacks_ports()
    }

    /// The same for every server that the same words of the user start.
    pub(crate) fn record_name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for SshServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { addresses, entry, .. } = &self.found;
        write!(f, "SshServer({} at {addresses:?}:{})", self.name, entry.port)
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let Some(Own { child, .. }) = self.own.take() else { return };
        self.leave();
        await_end(child, *self.served.get_mut());
    }
}

/// Waits for ssh to end, whose input has ended; where it has `served`, elsewhere.
pub(super) fn await_end(mut child: Child, served: bool) {
    if served {
        // Two round trips, for which no user should wait. Where there is no thread, ssh ends all the same.
        let _ = spawn("ssh-end", move || await_end(child, false));
        return;
    }
    // Others may share its connection: it is not ended at once.
    if !wait_for_end(&child, clock::now() + ENDING).unwrap_or(false) {
        let _ = child.kill();
    }
    let _ = child.wait();
}

/// For what was sent to be on its way, the server to end, and ssh after it.
const ENDING: Duration = Duration::from_secs(2);
