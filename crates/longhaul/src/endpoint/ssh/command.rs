//! The command line of ssh, and what its end means.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use longhaul_units::shown;

use crate::error::{Error, ErrorKind, Side};

/// A host, as ssh is to reach it: its configuration may know more of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHost {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// Why something is no host for ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSshHost {
    /// Nothing is where it should be.
    #[error("the host is missing")]
    NoHost,
    /// The same, before an `@`.
    #[error("the user is missing before the @")]
    NoUser,
    /// ssh, or a program that its configuration runs, could take it for an option.
    #[error("neither a host nor a user begins with -")]
    Option,
    /// It holds what no name of a host or user does.
    #[error("a host or user has no blanks, control characters or slashes")]
    Character,
}

impl SshHost {
    /// The host that `text` names, as `[user@]host`; without a `port` it is ssh's choice.
    ///
    /// # Errors
    /// A name that would be something else to ssh.
    pub fn new(text: &str, port: Option<u16>) -> Result<Self, InvalidSshHost> {
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        if user == Some("") {
            return Err(InvalidSshHost::NoUser);
        }
        if host.is_empty() {
            return Err(InvalidSshHost::NoHost);
        }
        if host.starts_with('-') || user.is_some_and(|user| user.starts_with('-')) {
            return Err(InvalidSshHost::Option);
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
            return Err(InvalidSshHost::Character);
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, where one was named.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// `[user@]host`.
    pub fn destination(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }

    /// The name in records: the same for the same words, whatever port the server gets.
    pub(super) fn record_name(&self) -> String {
        let user = self.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let port = self.port.map_or(String::new(), |port| format!(":{port}"));
        format!("ssh://{user}{}{port}", self.host.to_ascii_lowercase())
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.host))
    }
}

/// How ssh starts a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SshOptions {
    /// The host.
    pub host: SshHost,
    /// The program that is run, and its options: `ssh`.
    pub program: Vec<OsString>,
    /// `longhaul` at the host; without, it is looked for.
    pub remote_path: Option<String>,
    /// First and last port that the server may take.
    pub ports: Option<(u16, u16)>,
}

impl SshOptions {
    /// By the system's ssh.
    pub fn new(host: SshHost) -> Self {
        Self { host, program: vec!["ssh".into()], remote_path: None, ports: None }
    }

    /// Command that starts the server.
    ///
    /// # Errors
    /// No program is named, or a remote path that a shell would take for something else.
    pub(super) fn command(&self) -> Result<Command, Error> {
        let mut command = self.program()?;
        if self.is_openssh() {
            command.args(ALONE);
        }
        let there = match &self.remote_path {
            None => FIND.to_owned(),
            Some(path) if is_plain(path) => format!("{path} serve --ssh"),
            Some(path) => {
                let message = format!(
                    "--remote-path {}: a path of letters, digits and / . _ - + ~ is wanted, which \
                     no shell changes",
                    shown(path)
                );
                return Err(Error::usage(message));
            }
        };
        command.args(["--", &self.host.destination(), &there]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Command that says to which host ssh resolves the name; nothing where another program is run.
    pub(super) fn configuration(&self) -> Option<Command> {
        let mut command = self.program().ok().filter(|_| self.is_openssh())?;
        command.args(["-G", "--", &self.host.destination()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Some(command)
    }

    fn program(&self) -> Result<Command, Error> {
        let [program, options @ ..] = &self.program[..] else {
            return Err(Error::usage("no program is named that is to be run as ssh"));
        };
        let mut command = Command::new(program);
        command.args(options);
        if let Some(port) = self.host.port {
            command.arg("-p").arg(port.to_string());
        }
        Ok(command)
    }

    fn is_openssh(&self) -> bool {
        self.program.first().is_some_and(|it| Path::new(it).file_name() == Some("ssh".as_ref()))
    }

    /// Meaning of the end of ssh before there was an answer, of which `words` were the last.
    pub(super) fn explain(&self, status: ExitStatus, words: &str) -> Error {
        let host = &self.host;
        let here = env!("CARGO_PKG_VERSION");
        let last = if words.is_empty() { String::new() } else { format!(": {words}") };
        let (side, message) = match (status.code(), &self.remote_path) {
            (Some(NOT_FOUND), None) => {
                let message = format!("{host}: longhaul is not installed ({SEARCHED})");
                let error = Error::new(ErrorKind::Unreachable, Side::There, message);
                return error.hint("--remote-path says where");
            }
            (Some(NOT_FOUND | NOT_EXECUTABLE), Some(path)) => {
                (Side::There, format!("{host}: {path} (--remote-path) is no program there{last}"))
            }
            (Some(OF_SSH), _) => (Side::Between, format!("{host}: ssh failed{last}")),
            (Some(USAGE), _) => (
                Side::There,
                format!("{host}: the longhaul there does not serve over ssh; here is {here}{last}"),
            ),
            _ => (
                Side::There,
                format!("{host}: `longhaul serve --ssh` did not start ({status}){last}"),
            ),
        };
        Error::new(ErrorKind::Unreachable, side, message)
    }
}

/// True if every shell passes it on as it is.
fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    !path.is_empty() && !path.starts_with('-') && path.chars().all(plain)
}

/// Every login shell passes on what is quoted, and `sh` is at every host.
const FIND: &str = "sh -c 'PATH=\"$PATH:$HOME/.local/bin:/usr/local/bin\"; export PATH; \
                    command -v longhaul >/dev/null || exit 127; exec longhaul serve --ssh'";
const SEARCHED: &str = "searched PATH, ~/.local/bin, /usr/local/bin";
/// Options against what a configuration adds for people who log in, which would be in the way here.
const ALONE: [&str; 5] = [
    "-x",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
];
/// Exit statuses of shells, of clap, and of ssh itself.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
const USAGE: i32 = 2;
const OF_SSH: i32 = 255;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn words(options: &SshOptions) -> Vec<String> {
        let command = options.command().unwrap();
        command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_host_stands_behind_what_ends_options_and_no_path_is_among_the_words() {
        let host = SshHost::new("me@dtn2", Some(22)).unwrap();
        let all = words(&SshOptions::new(host));
        assert_eq!(all[..2], ["-p", "22"], "{all:?}");
        assert_eq!(all[all.len() - 3..all.len() - 1], ["--", "me@dtn2"], "{all:?}");
    }

    #[test]
    fn what_could_be_an_option_is_no_host() {
        for (text, why) in [
            ("-oProxyCommand=x", InvalidSshHost::Option),
            ("me@-oProxyCommand=x", InvalidSshHost::Option),
            ("-l@dtn2", InvalidSshHost::Option),
            ("", InvalidSshHost::NoHost),
            ("me@", InvalidSshHost::NoHost),
            ("@dtn2", InvalidSshHost::NoUser),
            ("d tn", InvalidSshHost::Character),
            ("dtn\n2", InvalidSshHost::Character),
        ] {
            assert_eq!(SshHost::new(text, None), Err(why), "{text}");
        }
    }

    #[test]
    fn the_end_of_ssh_is_explained() {
        let mut options = SshOptions::new(SshHost::new("dtn2", None).unwrap());
        let explained = |options: &SshOptions, code: i32| {
            options.explain(ExitStatus::from_raw(code << 8), "the last words").to_string()
        };
        assert_eq!(
            explained(&options, 127),
            "dtn2: longhaul is not installed (searched PATH, ~/.local/bin, /usr/local/bin); \
             --remote-path says where"
        );
        assert_eq!(explained(&options, 255), "dtn2: ssh failed: the last words");
        assert!(explained(&options, 2).contains("does not serve over ssh; here is"));
        assert!(explained(&options, 1).ends_with("did not start (exit status: 1): the last words"));
        options.remote_path = Some("~/bin/longhaul".into());
        assert!(explained(&options, 127).contains("~/bin/longhaul (--remote-path) is no program"));
        for path in ["a b", "$(x)", "-x", "", "a;b", "a'b"] {
            options.remote_path = Some(path.into());
            assert!(options.command().is_err(), "{path}");
        }
    }
}
