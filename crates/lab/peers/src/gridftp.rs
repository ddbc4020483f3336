//! GridFTP by the Grid Community Toolkit: `globus-gridftp-server` and `globus-url-copy`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_lab::Testbed;

use crate::contender::{
    Absent, Contender, ContenderError, End, Job, Outcome, Passage, Presence, Transport,
};
use crate::files::Files;
use crate::gateways;
use crate::longhaul::commands::{self, Commands};
use crate::programs;
use crate::session::Session;
use crate::tcp::{control, kernel_has};

/// With so many connections, or over UDT.
pub(crate) struct GridFtp {
    name: String,
    channel: DataChannel,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DataChannel {
    /// Where it is `relayed`: between two servers, the sending one with Longhaul's Globus XIO driver.
    Tcp {
        congestion_control: String,
        streams: u16,
        relayed: bool,
    },
    Udt,
}

impl GridFtp {
    pub(crate) const USUAL: &[&str] =
        &["gridftp -p 1", "gridftp -p 4", "gridftp -p 8", "gridftp bbr -p 4", "gridftp -udt"];

    /// `gridftp -p 4`, which uses CUBIC; `gridftp bbr -p 4`; `gridftp -udt`; and through gateways
    /// `gridftp-gateways -p 4`, `gridftp-gateways bbr -p 4`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let words: Vec<&str> = name.split(' ').collect();
        let (program, name_of_control, count) = match words[..] {
            ["gridftp", "-udt"] => return Some(Self::over(name, DataChannel::Udt)),
            [program, "-p", count] => (program, "cubic", count),
            [program, name, "-p", count] => (program, name, count),
            _ => return None,
        };
        let streams = count.parse().ok().filter(|count| (1..=128).contains(count))?;
        let congestion_control = control(name_of_control)?;
        let relayed = match program {
            "gridftp" => false,
            "gridftp-gateways" => true,
            _ => return None,
        };
        Some(Self::over(name, DataChannel::Tcp { congestion_control, streams, relayed }))
    }

    fn over(name: &str, channel: DataChannel) -> Box<dyn Contender> {
        Box::new(Self { name: name.to_owned(), channel })
    }

    /// A server whose data channels are of the kind asked for.
    fn server(&self, program: &Path, address: &str) -> Command {
        let mut server = Command::new(program);
        server.args(["-aa", "-allow-root", "-anonymous-user", "root", "-threads", "1"]);
        server.args(["-p", PORT_TEXT, "-control-interface", address, "-data-interface", address]);
        if self.channel == DataChannel::Udt {
            // The client's `-udt` has no effect on ftp:// addresses (globus_url_copy.c heeds it only
            // where there is a GSI driver too), so the servers make it their default.
            server.args(["-allow-udt", "-dc-whitelist", "udt", "-dc-default", "udt"]);
        }
        server
    }
}

impl Contender for GridFtp {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        match &self.channel {
            DataChannel::Tcp { congestion_control, streams, relayed: false } => {
                format!("GridFTP, MODE E, {congestion_control} x{streams}, from file to file")
            }
            DataChannel::Tcp { congestion_control, streams, relayed: true } => format!(
                "GridFTP between two servers, MODE E, {congestion_control} x{streams}, through Longhaul's \
                 gateways by its Globus XIO driver, from file to file"
            ),
            DataChannel::Udt => "GridFTP over UDT, between two servers, from file to file".into(),
        }
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        if let DataChannel::Tcp { congestion_control, .. } = &self.channel {
            kernel_has(congestion_control)?;
        }
        let [copy, _] = programs::require([COPY, SERVER], PACKAGES)?;
        match self.channel {
            DataChannel::Tcp { relayed: true, .. } => _ = driver(&commands::presence()?)?,
            DataChannel::Udt if folder_of(UDT_DRIVER, None).is_none() => {
                return Err(Absent::new(format!("no {UDT_DRIVER}"), PACKAGES));
            }
            _ => {}
        }
        Ok(programs::presence(copy, "-version", version))
    }

    fn passage(&self) -> Passage {
        match self.channel {
            DataChannel::Tcp { relayed: true, .. } => Passage::Relayed,
            DataChannel::Tcp { relayed: false, .. } | DataChannel::Udt => Passage::Direct,
        }
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let [copy, server] = programs::require([COPY, SERVER], PACKAGES)?;
        job.without_rate()?;
        let mut session = Session::new(testbed, job)?;
        let files = Files::new(&session)?;
        let [here, there] =
            [End::Sender, End::Receiver].map(|end| session.address(end).to_string());
        let receiving = session.start(End::Receiver, self.server(&server, &there))?;
        session.listening(receiving, PORT)?;
        let mut command = Command::new(copy);
        command.arg("-fast");
        if let DataChannel::Tcp { congestion_control, streams, .. } = &self.channel {
            session.use_congestion_control(congestion_control)?;
            command.args(["-p", &streams.to_string()]);
        }
        let sending = match self.channel {
            DataChannel::Tcp { relayed: false, .. } => None,
            DataChannel::Tcp { relayed: true, .. } => {
                let program = commands::presence()?;
                let commands = Commands::new(&mut session, &program)?;
                let gateways = gateways::start(&mut session, &commands, &there)?;
                let via: Vec<_> = gateways.iter().map(SocketAddr::to_string).collect();
                let mut server = self.server(&server, &here);
                server.args(["-dc-whitelist", "tcp,longhaul", "-dc-default", "tcp,longhaul"]);
                server.env("LD_LIBRARY_PATH", driver(&program)?);
                server.env("LONGHAUL_VIA", via.join(","));
                server.env("LONGHAUL_VIA_TOKEN_FILE", commands.token());
                Some(server)
            }
            DataChannel::Udt => Some(self.server(&server, &here)),
        };
        let source = match sending {
            None => format!("file://{}", files.source.display()),
            Some(server) => {
                let sending = session.start(End::Sender, server)?;
                session.listening(sending, PORT)?;
                format!("ftp://{here}:{PORT}{}", files.source.display())
            }
        };
        for (flag, value) in [("-bs", job.block), ("-tcp-bs", job.socket_buffer.map(u64::from))] {
            if let Some(value) = value {
                command.args([flag, &value.to_string()]);
            }
        }
        // A list, since asking a server for one would take a data channel to the client.
        let target = format!("ftp://{there}:{PORT}{}", files.target().display());
        let pair = |name: String| format!("{source}/{name} {target}/{name}\n");
        let list = session.folder().join("list");
        std::fs::write(&list, files.names().map(pair).collect::<String>())
            .map_err(ContenderError::system("write a file"))?;
        command.arg("-f").arg(list);
        session.begin()?;
        let client = session.start(End::Sender, command)?;
        session.finish(client)?;
        let account = session.close()?;
        files.check(&self.name)?;
        let outcome = account.outcome(presence, job);
        let congestion_control = match (&self.channel, outcome.transport) {
            (DataChannel::Tcp { congestion_control, .. }, _) => Some(congestion_control.clone()),
            (DataChannel::Udt, Transport::Udp) => Some("udt".into()),
            // It fell back, to whatever the system's default is.
            (DataChannel::Udt, Transport::Tcp) => None,
        };
        Ok(Outcome { congestion_control, ..outcome })
    }
}

/// The folder of a library: `beside` the program, or where Debian and others have theirs.
fn folder_of(library: &str, beside: Option<&Path>) -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let usual = ["/usr/local/lib", "/usr/lib", "/usr/lib64", &multiarch].map(PathBuf::from);
    let mut folders = beside.map(Path::to_owned).into_iter().chain(usual);
    folders.find(|folder| folder.join(library).exists())
}

/// The folder of Longhaul's driver.
fn driver(longhaul: &Presence) -> Result<PathBuf, Absent> {
    let found = folder_of(DRIVER, longhaul.program.as_deref().and_then(Path::parent));
    found.ok_or_else(|| Absent::new(format!("no {DRIVER}: make xio"), &[]))
}

/// `globus-url-copy: 10.12`, with more behind it in some versions.
fn version(output: &str) -> Option<String> {
    let version = output.trim().strip_prefix("globus-url-copy: ")?.split_whitespace().next()?;
    Some(format!("globus-url-copy {version}"))
}

const COPY: &str = "globus-url-copy";
const SERVER: &str = "globus-gridftp-server";
/// Its name is given to the server, which finds it by itself.
const UDT_DRIVER: &str = "libglobus_xio_udt_driver.so";
const DRIVER: &str = "libglobus_xio_longhaul_driver.so";
const PACKAGES: &[&str] =
    &["globus-gass-copy-progs", "globus-gridftp-server-progs", "libglobus-xio-udt-driver"];
const PORT: u16 = 5000;
const PORT_TEXT: &str = "5000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let about = |name| GridFtp::named(name).map(|contender| contender.about());
        assert!(about("gridftp -p 8").unwrap().contains("cubic x8"));
        assert!(about("gridftp bbr -p 1").unwrap().contains("bbr x1"));
        assert!(about("gridftp -udt").unwrap().contains("UDT"));
        assert!(about("gridftp-gateways bbr -p 8").unwrap().contains("bbr x8, through"));
        assert_eq!(GridFtp::named("gridftp-gateways -p 1").unwrap().passage(), Passage::Relayed);
        for wrong in ["gridftp", "gridftp -p", "gridftp -p 0", "gridftp -p x", "gridftp -udt -p 2"]
        {
            assert!(about(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_version_is_read() {
        assert_eq!(version("globus-url-copy: 10.12\n").unwrap(), "globus-url-copy 10.12");
        assert_eq!(version("sh: not found"), None);
    }
}
