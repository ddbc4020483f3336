//! `longhaul serve`.

mod account;
pub(crate) mod log;
mod manager;
mod metrics;
mod outcome;
pub(crate) mod refused_clients;
mod settings;

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul::{DEFAULT_PORT, ErrorKind, ServeEvent, ServeOptions, Server, SshServeOptions, Stop};
use longhaul_sys::reasons::unbound;
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use serde_json::{Map, Value, json};

use crate::args::ServeArgs;
use crate::cp;
use crate::failure::Failure;
use crate::output::{self, Output, complain};
use crate::signals::{Held, Orders};
use account::Account;
use log::LogFormat;
use longhaul_pages::Pages;
use metrics::Metrics;
use settings::Settings;

pub(crate) fn run(args: &ServeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    if args.check && args.config.is_none() {
        return Err(Failure::usage("--check looks at a file of settings: --config FILE names it"));
    }
    if let Some(file) = args.config.as_ref().filter(|_| args.check) {
        held.release()?;
        Settings::of_file(file, |_| {})?;
        let shown = file.display();
        return output
            .result(&json!({ "file": shown.to_string() }), format!("{shown}: nothing is wrong"));
    }
    let account = Arc::new(Mutex::new(Account::default()));
    let orders = Orders {
        stop: Stop::default(),
        drain: (!args.ssh).then(Stop::default),
        reload: args.config.is_some().then(Arc::<AtomicBool>::default),
    };
    let known = account.clone();
    held.follow(&orders, output, move || lock(&known).fields())?;
    let settings = Settings::read(args, if args.ssh { |_| {} } else { write_log })?;
    lock(&account).log = settings.log;
    let mut options = settings.with_history(output);
    if args.ssh {
        return by_ssh(args, options, &orders.stop);
    }
    options.listener = manager::listener()?.map(Arc::new);
    let metrics = Arc::new(Metrics::default());
    let _pages = show(&metrics, settings.metrics, output)?;
    let events = |event: ServeEvent| {
        metrics.take(&event);
        if let ServeEvent::Listening(at) = &event {
            announce(*at, &settings, output);
            manager::is_ready(output);
        }
        lock(&account).take(&event, output);
    };
    let once = options.once;
    let server = Server::new(options).map_err(|error| Failure::of(&error, Map::new))?;
    let over = Stop::default();
    let done = std::thread::scope(|scope| {
        let attend = || {
            let drained = || {
                metrics.set_ready(false);
                manager::stops(output);
            };
            attend(&server, (args, &settings), (&orders, &over), &drained, output);
        };
        threads::spawn_scoped(scope, "orders", attend)
            .map_err(|error| Failure::failed(error.to_string()))?;
        let drain = orders.drain.clone().unwrap_or_default();
        let done = server.run(&events, &orders.stop, &drain);
        over.request();
        done.map_err(|error| Failure::of(&error, || lock(&account).fields()))
    });
    let (fields, last_failure) = {
        let mut account = lock(&account);
        if let Some(count) = account.refusals.rest() {
            account.complain_of_rest(count);
        }
        (account.fields(), account.last_failure.take())
    };
    done?;
    if once && let Some(reason) = last_failure {
        return Err(Failure::failed(format!("the transfer failed: {reason}")).with_fields(fields));
    }
    if output.json {
        output.print_json(&Value::Object(fields))?;
    }
    Ok(())
}

/// From now on each line has this form. Over ssh lines are words for who runs the client.
fn write_log(format: LogFormat) {
    if format == LogFormat::Json {
        output::complain_in_json();
    }
}

/// Shows metrics and state at `address`, if there is one.
fn show(
    metrics: &Arc<Metrics>,
    address: Option<SocketAddr>,
    output: &Output,
) -> Result<Option<Pages>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let pages = metrics.show(address).map_err(|error| {
        Failure::failed(format!("cannot show metrics at {address}: {}", unbound(&error)))
    })?;
    output.say(format!("metrics at http://{}/metrics", pages.address()));
    Ok(Some(pages))
}

/// Passes on what signals ask for, until all is over.
fn attend(
    server: &Server,
    (args, started): (&ServeArgs, &Settings),
    (orders, over): (&Orders, &Stop),
    drains: &dyn Fn(),
    output: &Output,
) {
    let (mut until, mut drain) = (None, started.drain);
    while !over.is_requested() {
        if orders.reload.as_ref().is_some_and(|reload| reload.swap(false, Ordering::Relaxed)) {
            manager::reloads(output);
            match reload(server, (args, started), output) {
                Ok(new) => {
                    drain = new;
                    output.say("the configuration was read again");
                }
                Err(failure) => complain(format!(
                    "the configuration stays as it was, since the new one cannot be used: {failure}"
                )),
            }
            manager::is_ready(output);
        }
        if orders.drain.as_ref().is_some_and(Stop::is_requested) {
            let ends = until.get_or_insert_with(|| {
                drains();
                Instant::now() + drain
            });
            if Instant::now() >= *ends {
                orders.stop.request();
            }
        }
        std::thread::sleep(ATTENTION);
    }
}

/// Has clients that come from now on served as the file says now. Returns the time that SIGTERM leaves.
fn reload(
    server: &Server,
    (args, started): (&ServeArgs, &Settings),
    output: &Output,
) -> Result<Duration, Failure> {
    let settings = Settings::read(args, |_| {})?;
    let mut later =
        server.reload(&settings.options).map_err(|error| Failure::of(&error, Map::new))?;
    later.extend(started.kept_unlike(&settings));
    if !later.is_empty() {
        output.say(format!("note: from the next start on only: {}", later.join(", ")));
    }
    Ok(settings.drain)
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
    // Who may dial from here anyway.
    let is_own = options.root.is_none() && !args.allow_read && !args.allow_write;
    options.onward = is_own.then_some(cp::onward::run);
    let own = |stream: io::Result<OwnedFd>| stream.map_err(here);
    let input = own(io::stdin().as_fd().try_clone_to_owned())?;
    let output = own(io::stdout().as_fd().try_clone_to_owned())?;
    longhaul::serve_over_ssh(&options, input, output, &|_| {}, stop).map_err(|error| {
        let failure = Failure::of(&error, Map::new);
        // The client says it.
        if error.kind == ErrorKind::Refused { failure.without_words() } else { failure }
    })
}

/// Time between two looks for signals.
const ATTENTION: Duration = Duration::from_millis(50);
/// How often is looked if ssh is there; how long what is under way may take to become durable without it,
/// so that all is over within 5 s.
const LOOK: Duration = Duration::from_millis(100);
const ENDING: Duration = Duration::from_millis(4500);

/// Says where the server listens and, when its token is new, what to run on the other side.
fn announce(at: SocketAddr, settings: &Settings, output: &Output) {
    for access in &settings.options.access {
        let may = match (access.allow_read, access.allow_write) {
            (true, false) => "read only",
            (false, true) => "write only",
            _ => "read and write",
        };
        output.say(format!("{LISTENING}{at}, serving {} ({may})", access.root.display()));
    }
    let (Some(token), Some(access)) = (&settings.made, settings.options.access.first()) else {
        return;
    };
    let remote = format!("lh://{}/", authority(at));
    complain("no --token-file given, so this token is new and dies with this server. Elsewhere:");
    complain(format!("  (umask 077; echo {token} > longhaul.token)"));
    if access.allow_write {
        complain(format!("  longhaul cp --token-file longhaul.token FILE... {remote}"));
    }
    if access.allow_read {
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

/// How the line begins that tells the address; the demo waits for it.
pub(crate) const LISTENING: &str = "listening on ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_name_the_server_by_its_address_unless_it_listens_everywhere() {
        assert_eq!(authority("192.0.2.7:7420".parse().unwrap()), "192.0.2.7");
        assert_eq!(authority("[::1]:80".parse().unwrap()), "[::1]:80");
        assert!(!authority("[::]:7420".parse().unwrap()).contains(':'));
    }
}
