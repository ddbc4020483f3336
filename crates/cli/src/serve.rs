//! `longhaul serve`.

pub(crate) mod refusals;

use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul::{DEFAULT_PORT, ServeEvent, ServeOptions, Served, SshServeOptions, Stop};
use longhaul_units::Bytes;
use serde_json::{Map, Value, json};

use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::figures;
use crate::history;
use crate::output::{Output, complain};
use crate::signals::Held;
use crate::token;
use refusals::Refusals;

pub(crate) fn run(args: &ServeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let (stop, account) = (Stop::default(), Arc::new(Mutex::new(Account::new())));
    let known = account.clone();
    held.stop_in_order(&stop, output, move || lock(&known).fields())?;
    let listen = match &args.listen {
        Some(text) => address(text).map_err(Failure::usage)?,
        None if args.ssh => SocketAddr::new(any_address(), 0),
        None => SocketAddr::new(any_address(), DEFAULT_PORT),
    };
    let made = match args.token_file {
        Some(_) => None,
        None if args.ssh => None,
        None => Some(token::generate()?),
    };
    let tokens = match (&args.token_file, &made) {
        (Some(file), _) => token::read_at_server(file)?,
        (None, made) => made.iter().cloned().collect(),
    };
    let either = args.allow_read || args.allow_write;
    let root = args.directory.as_ref().or(args.root.as_ref());
    let root = root.cloned().unwrap_or_else(|| ".".into());
    let mut options = ServeOptions::new(listen, root, tokens);
    options.once = args.once;
    // A user who comes by ssh has all rights of his own there, unless the command of his key says less.
    let is_own = args.ssh && !either && args.directory.is_none() && args.root.is_none();
    options.allow_delete = args.allow_delete || is_own;
    options.allow_read = args.allow_read || !either;
    options.allow_write = args.allow_write || !either;
    options.memory = args.memory;
    options.direct = args.direct;
    options.socket_buffer = args.socket_buffer;
    options.stall_timeout = Duration::from_secs(args.stall_timeout);
    options.excuse_timeout = Duration::from_secs(args.excuse_timeout);
    options.profiles.clone_from(&args.profiles);
    options.history = history::open(args.no_history, output);
    options.host_priority = args.host_priority;
    options.trust_proxy.clone_from(&args.trust_proxy);
    if args.ssh {
        return by_ssh(args, options, &stop);
    }
    let events = |event: ServeEvent| {
        if let ServeEvent::Listening(at) = &event {
            announce(*at, &options, made.as_ref().map(ToString::to_string), output);
        }
        lock(&account).take(&event, output);
    };
    let done = longhaul::serve(&options, &events, &stop);
    let (rest, fields, last_failure) = {
        let mut account = lock(&account);
        (account.refusals.rest(), account.fields(), account.last_failure.take())
    };
    rest.into_iter().for_each(complain);
    if let Err(error) = done {
        return Err(Failure::of(&error, || fields));
    }
    if options.once
        && let Some(reason) = last_failure
    {
        return Err(Failure::failed(format!("the transfer failed: {reason}")).with_fields(fields));
    }
    if output.json {
        output.print_json(&Value::Object(fields))?;
    }
    Ok(())
}

/// Serves the client that asks on standard input. Whatever it has to hear, it hears over its connection.
fn by_ssh(args: &ServeArgs, serve: ServeOptions, stop: &Stop) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::usage(
            "serve --ssh: nobody asks; `longhaul cp SRC HOST:PATH` starts this by ssh",
        ));
    }
    let gone = stop.clone();
    let end = move || {
        while !gone.is_requested() {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(ENDING);
        std::process::exit(1);
    };
    let here = |error: io::Error| Failure::failed(error.to_string());
    threads::spawn("end", end).map_err(here)?;
    let root = args.directory.as_ref().or(args.root.as_ref()).cloned();
    let mut options = SshServeOptions::new(serve, root);
    options.serve.ports = args.ports;
    longhaul::serve_over_ssh(&options, io::stdin(), io::stdout(), &|_| {}, stop)
        .map_err(|error| Failure::of(&error, Map::new))
}

/// How often is looked if ssh is there; how long what is under way may take to become durable without it,
/// so that all is over within 5 s.
const LOOK: Duration = Duration::from_millis(100);
const ENDING: Duration = Duration::from_millis(4500);

/// What happened so far.
#[derive(Debug)]
struct Account {
    started: Instant,
    transfers: u64,
    failed: u64,
    refused: u64,
    bytes: u64,
    refusals: Refusals,
    /// Why the latest transfer failed, if it did.
    last_failure: Option<String>,
}

impl Account {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            transfers: 0,
            failed: 0,
            refused: 0,
            bytes: 0,
            refusals: Refusals::default(),
            last_failure: None,
        }
    }

    fn take(&mut self, event: &ServeEvent, output: &Output) {
        match event {
            ServeEvent::Listening(_) => {}
            ServeEvent::Began { client, what } => output.say(format!("{client}: {what}")),
            ServeEvent::Ended { client, outcome: Ok(served) } => {
                self.transfers += 1;
                let Served { bytes, failures, skipped, .. } = served;
                self.bytes += bytes;
                let mut done = format!("done, {}", Bytes::new(*bytes));
                if !skipped.is_empty() {
                    done += &format!(", {} skipped", figures::entries(skipped.count));
                }
                self.last_failure = failures.sample.first().map(|first| {
                    format!("{} not copied, first {first}", figures::entries(failures.count))
                });
                match &self.last_failure {
                    None => output.say(format!("{client}: {done}")),
                    Some(reason) => {
                        self.failed += 1;
                        complain(format!("{client}: {done}; {reason}"));
                    }
                }
            }
            ServeEvent::Ended { client, outcome: Err(failure) } => {
                self.transfers += 1;
                self.failed += 1;
                self.last_failure = Some(failure.to_string());
                complain(format!("{client}: failed: {failure}"));
            }
            ServeEvent::Refused { client, reason } => {
                self.refused += 1;
                let line = format!("{client}: refused: {reason}");
                self.refusals.note(Instant::now(), line).for_each(complain);
            }
            ServeEvent::Notice(text) => output.detail(format!("note: {text}")),
            other => output.detail(format!("{other:?}")),
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for (name, value) in [
            ("transfers", json!(self.transfers)),
            ("failed", json!(self.failed)),
            ("refused", json!(self.refused)),
            ("bytes", json!(self.bytes)),
            ("seconds", json!(self.started.elapsed().as_millis() as f64 / 1e3)),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }
}

/// Says where the server listens and, when its token is new, what to run on the other side.
fn announce(at: SocketAddr, options: &ServeOptions, made: Option<String>, output: &Output) {
    let access = match (options.allow_read, options.allow_write) {
        (true, false) => "read only",
        (false, true) => "write only",
        _ => "read and write",
    };
    let root = options.root.display();
    output.say(format!("{LISTENING}{at}, serving {root} ({access})"));
    let Some(token) = made else { return };
    let remote = format!("lh://{}/", authority(at));
    complain("no --token-file given, so this token is new and dies with this server. Elsewhere:");
    complain(format!("  (umask 077; echo {token} > longhaul.token)"));
    if options.allow_write {
        complain(format!("  longhaul cp --token-file longhaul.token FILE... {remote}"));
    }
    if options.allow_read {
        complain(format!("  longhaul cp --token-file longhaul.token {remote}FILE ."));
    }
}

/// How others name the server, as far as it can know.
fn authority(at: SocketAddr) -> String {
    let host = match at.ip() {
        ip if ip.is_unspecified() => {
            rustix::system::uname().nodename().to_string_lossy().into_owned()
        }
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    match at.port() {
        DEFAULT_PORT => host,
        port => format!("{host}:{port}"),
    }
}

/// Reads `ADDR:PORT`, `[ADDR]:PORT`, or an address alone.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let alone = |text: &str| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    text.parse().or_else(|_| alone(bracketed.unwrap_or(text))).map_err(|_| {
        format!(
            "--listen {text}: expected an address and port of this host, like 192.0.2.7:7420 \
                 or [::]:7420"
        )
    })
}

/// IPv6 and IPv4 where both work, else IPv4.
fn any_address() -> IpAddr {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// How the line begins that tells the address; the demo waits for it.
pub(crate) const LISTENING: &str = "listening on ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_at() {
        for (text, expected) in [
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("[::1]:80", "[::1]:80"),
            ("192.0.2.7", "192.0.2.7:7420"),
            ("::", "[::]:7420"),
            ("[::]", "[::]:7420"),
        ] {
            assert_eq!(address(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "7420", "dtn:7420", "::1:x", "192.0.2.7:70000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn others_name_the_server_by_its_address_unless_it_listens_everywhere() {
        assert_eq!(authority("192.0.2.7:7420".parse().unwrap()), "192.0.2.7");
        assert_eq!(authority("[::1]:80".parse().unwrap()), "[::1]:80");
        assert!(!authority("[::]:7420".parse().unwrap()).contains(':'));
    }
}
