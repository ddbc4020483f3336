//! UDT through libudt, by a small program of our own that is compiled where it is wanted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use longhaul_lab::Testbed;

use crate::contender::{Absent, Contender, ContenderError, End, Job, Medium, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;

pub(crate) struct Udt;

impl Udt {
    pub(crate) const USUAL: &[&str] = &["udt4"];

    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        Self::USUAL.contains(&name).then(|| Box::new(Self) as _)
    }
}

impl Contender for Udt {
    fn name(&self) -> &str {
        "udt4"
    }

    fn about(&self) -> String {
        "UDT4 (libudt), memory to memory or a file, buffers of 64 MiB".into()
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        presence()
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let program = presence.program.clone().unwrap_or_default();
        let mut session = Session::new(testbed, job)?;
        let files = match job.medium {
            Medium::Memory => None,
            Medium::Files { .. } => Some(Files::new(&session)?),
        };
        let buffer = job.socket_buffer.unwrap_or(SOCKET_BUFFER).to_string();
        let (port, bytes) = (PORT.to_string(), job.bytes.to_string());
        let mut receiver = Command::new(&program);
        receiver.args(["receive", &port, &bytes, &buffer]);
        if let Some(files) = &files {
            receiver.arg(files.target().join("copy"));
        }
        let receiver = session.start(End::Receiver, receiver)?;
        session.listening(receiver, PORT)?;
        let mut sender = Command::new(&program);
        let address = session.address(End::Receiver).to_string();
        let rate = job.rate.map_or(0, |rate| rate.as_bps() / 8).to_string();
        sender.args(["send", &address, &port, &bytes, &buffer, &rate]);
        if let Some(files) = &files {
            sender.arg(files.single()?);
        }
        session.begin()?;
        let sender = session.start(End::Sender, sender)?;
        let whole = session.finish_beside(receiver, sender)?;
        session.stop_clock();
        if !whole {
            session.ask_to_end(receiver);
            session.finish(receiver)?;
        }
        let arrived = session.output(receiver, "out").trim().parse();
        let arrived = arrived.map_err(|_| session.failed(receiver, "no count of bytes"))?;
        // It hears that the receiver has left, or not: then it is not waited for.
        session.ends_within(sender, PARTING)?;
        let counts = parse(&session.output(sender, "out"));
        let outcome = session.close()?.outcome(presence, job);
        if whole {
            files.map_or(Ok(()), |files| files.check("udt"))?;
        }
        Ok(Outcome {
            bytes: arrived,
            cut: !whole,
            congestion_control: Some("udt".into()),
            resent: counts.map(|counts| counts[1]),
            lost: counts.map(|counts| [("reported".to_owned(), counts[2])].into()),
            ..outcome
        })
    }
}

/// The driver, compiled where that was not done before.
pub(crate) fn presence() -> Result<Presence, Absent> {
    if !Path::new(HEADER).exists() {
        return Err(Absent::new(format!("no {HEADER}"), PACKAGES));
    }
    let [compiler] = programs::require(["g++"], PACKAGES)?;
    let program = compiled(&compiler)
        .map_err(|error| Absent::new(format!("its driver does not compile: {error}"), PACKAGES))?;
    let mut query = Command::new("dpkg-query");
    let printed = programs::output(query.args(["-W", "-f", "libudt ${Version}", "libudt-dev"]));
    let version = Some(printed).filter(|line| line.starts_with("libudt "));
    let version = version.unwrap_or_else(|| "libudt, version unknown".into());
    Ok(Presence { version, program: Some(program) })
}

/// Packets sent, sent again, reported lost.
fn parse(output: &str) -> Option<[u64; 3]> {
    let mut numbers = output.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// The driver, compiled unless that was done before from the same text.
fn compiled(compiler: &Path) -> io::Result<PathBuf> {
    let folder = cache()?.join("longhaul/peers");
    fs::create_dir_all(&folder)?;
    let (program, text) = (folder.join("udt"), folder.join("udt.cpp"));
    if program.exists() && fs::read_to_string(&text).is_ok_and(|text| text == SOURCE) {
        return Ok(program);
    }
    // Others may be at it: each puts a whole program in place, and the text only after it.
    let own = tempfile::tempdir_in(&folder)?;
    let [source, made] = ["udt.cpp", "udt"].map(|name| own.path().join(name));
    fs::write(&source, SOURCE)?;
    let mut command = Command::new(compiler);
    command.args(["-O2", "-o"]).args([&made, &source]).args(["-ludt", "-pthread"]);
    let output = programs::output_within(&mut command, COMPILING);
    if !made.exists() {
        let why = output.text.lines().next().unwrap_or("no reason given").to_owned();
        return Err(io::Error::other(why));
    }
    fs::rename(made, &program)?;
    fs::rename(source, &text)?;
    Ok(program)
}

/// The user's folder for what can be made again (XDG Base Directory Specification).
fn cache() -> io::Result<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let stated = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).and_then(absolute);
    let usual = || Some(std::env::home_dir()?.join(".cache"));
    stated.or_else(usual).ok_or_else(|| io::Error::other("no XDG_CACHE_HOME and no HOME"))
}

const SOURCE: &str = include_str!("udt.cpp");
const HEADER: &str = "/usr/include/udt/udt.h";
pub(crate) const PACKAGES: &[&str] = &["libudt-dev", "g++"];
const PORT: u16 = 9000;
/// Bytes to ask for; the kernel cuts them to its limit.
pub(crate) const SOCKET_BUFFER: u32 = 64 << 20;
const COMPILING: Duration = Duration::from_secs(120);
const PARTING: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_counts_are_read() {
        assert_eq!(parse("14046 39 57\n"), Some([14046, 39, 57]));
        assert_eq!(parse(""), None);
        assert_eq!(parse("1 2 x"), None);
    }

    #[test]
    fn a_driver_that_does_not_compile_says_why() {
        // Takes the place of a compiler, and only complains.
        let error = compiled(Path::new("/bin/false"));
        assert!(error.is_ok() || error.unwrap_err().to_string() == "no reason given");
    }
}
