//! The program `longhaul`: where it is, and commands of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;

/// Commands of the program, with a token of their own.
pub(crate) struct Commands {
    program: PathBuf,
    token: PathBuf,
}

impl Commands {
    /// Makes the token.
    pub(crate) fn new(
        session: &mut Session<'_>,
        presence: &Presence,
    ) -> Result<Self, ContenderError> {
        let program = presence.program.clone().unwrap_or_default();
        let made = Self { program, token: session.folder().join("token") };
        let keys = session.start(End::Receiver, made.command(&["keys", "new", "--quiet"]))?;
        session.finish(keys)?;
        Ok(made)
    }

    /// One that takes a token.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.without_token(words);
        command.args([OsStr::new("--token-file"), self.token.as_ref()]);
        command
    }

    /// One that does not.
    pub(crate) fn without_token(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }

    pub(crate) fn token(&self) -> &Path {
        &self.token
    }

    /// Starts a server for the copies of `files`, and waits until it listens.
    pub(crate) fn serve(
        &self,
        session: &mut Session<'_>,
        at: std::net::SocketAddr,
        files: &Files,
        words: &[&str],
    ) -> Result<(), ContenderError> {
        let at_address = ["serve", "--quiet", "--no-history", "--listen", &at.to_string()];
        let mut serve = self.command(&at_address);
        if let Some(nice) = session.job().nice {
            let (program, mut niced) = (serve, Command::new("nice"));
            niced.args(["-n", &nice.to_string()]).arg(program.get_program());
            niced.args(program.get_args());
            serve = niced;
        }
        if session.job().host_priority {
            serve.arg("--host-priority");
        }
        serve.args(words).args([OsStr::new("--root"), files.target().as_ref()]);
        if let Some(size) = session.job().socket_buffer {
            serve.args(["--socket-buffer", &size.to_string()]);
        }
        let server = session.start(End::Receiver, serve)?;
        session.listening(server, at.port())
    }
}

/// Has contenders that are Longhaul run this executable, whatever its name is. Without it they run
/// a `longhaul` beside this one or in PATH.
///
/// # Errors
/// This executable cannot be found.
pub fn run_this_executable() -> std::io::Result<()> {
    let own = std::env::current_exe()?;
    OWN.get_or_init(|| own);
    Ok(())
}

pub(crate) fn presence() -> Result<Presence, Absent> {
    let program = program()
        .ok_or_else(|| Absent::new("no program longhaul beside this one or in PATH", &[]))?;
    let version = programs::output(Command::new(&program).arg("--version"));
    Ok(Presence { version: version.trim().to_owned(), program: Some(program) })
}

/// This program if it is Longhaul, one beside it or (for tests) above it, or one in PATH.
fn program() -> Option<PathBuf> {
    if let Some(own) = OWN.get() {
        return Some(own.clone());
    }
    let own = std::env::current_exe().ok()?;
    let folders = own.ancestors().skip(1).take(2).map(|folder| folder.join(NAME));
    folders.chain(programs::find(NAME)).find(|program| program.is_file())
}

/// This executable, where it is Longhaul.
static OWN: OnceLock<PathBuf> = OnceLock::new();
const NAME: &str = "longhaul";
