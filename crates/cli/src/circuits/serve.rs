//! `longhaul circuits serve` and `longhaul circuits audit`.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use longhaul::Stop;
use longhaul_circuits::archive;
use longhaul_circuits::ledger::{Ledger, Record, audit};
use longhaul_circuits::server::{Server, Tokens};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::{Config, ConfigError, Role};
use longhaul_circuits::store::{self, Location};
use longhaul_sys::reasons::unbound;
use serde_json::{Map, json};

use super::args::{AuditArgs, ServeArgs};
use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::signals::{self, Again};
use crate::token;

pub(super) fn run(args: &ServeArgs, output: &Output) -> Result<(), Failure> {
    if !args.listen.ip().is_loopback() && !args.plain_http {
        return Err(Failure::usage(format!(
            "--listen {}: tokens would cross the network unhidden. Listen at 127.0.0.1 with a \
             proxy that ends TLS in front, or say --plain-http",
            args.listen
        )));
    }
    let config = configured(args)?;
    let mut tokens = Tokens::default();
    for access in &config.access {
        for token in token::read_at_server(&access.token_file)? {
            tokens.insert(&token, &access.project, access.role);
        }
    }
    let mut made = None;
    if tokens.is_empty() {
        let token = token::generate()?;
        tokens.insert(&token, LOCAL_PROJECT, Role::Operator);
        made = Some(token);
    }
    let listener = TcpListener::bind(args.listen).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; choose one with --listen",
            _ => "",
        };
        Failure::failed(format!("cannot listen at {}: {}{hint}", args.listen, unbound(&error)))
    })?;
    let stop = Stop::default();
    let again = Again::Exit(*output, Box::new(Map::new));
    signals::install(&stop, Some(signals::STOPPING), again)
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    let place = config.place();
    let service = Service::start(config, Box::new(|text| complain(format!("warning: {text}"))))
        .map_err(|error| Failure::failed(error.to_string()))?;
    let server = Server::start(listener, service.clone(), tokens)
        .map_err(|error| Failure::failed(format!("cannot serve: {error}")))?;
    let at = server.address();
    output.say(format!("listening on http://{at}, bookings in {place}"));
    let status = service.status();
    if !status.ready {
        output.say(&status.text);
    }
    if let Some(token) = made {
        complain("no access is configured, so this token is new and dies with this service:");
        complain(format!("  (umask 077; echo {token} > circuits.token)"));
        complain(format!("  longhaul circuits list --url http://{at} --token-file circuits.token"));
    }
    let mut shown = status;
    while !stop.is_requested() {
        std::thread::sleep(GLANCE);
        let status = service.status();
        if status != shown {
            output.say(&status.text);
            shown = status;
        }
    }
    let ended = server.stop();
    let seq = service.view().seq;
    service.stop();
    ended.map_err(|error| Failure::failed(format!("the server failed: {error}")))?;
    if output.json {
        output.print_json(&json!({ "records": seq }))?;
    }
    Ok(())
}

fn configured(args: &ServeArgs) -> Result<Config, Failure> {
    if let Some(file) = &args.config {
        return Config::read(file).map_err(|error| match error {
            ConfigError::Mistaken { .. } => Failure::usage(error.to_string()),
            _ => Failure::failed(error.to_string()),
        });
    }
    let mut text = String::new();
    if let Some(store) = &args.store {
        text += &format!("store = {}\n", json!(store));
    }
    text += &format!("[[project]]\nname = \"{LOCAL_PROJECT}\"\n");
    for link in &args.link {
        let parts = link.split_once('=').and_then(|(name, rest)| {
            let (ends, capacity) = rest.rsplit_once(':')?;
            let (from, to) = ends.split_once('-').filter(|(_, to)| !to.contains('-'))?;
            Some((name, from, to, capacity))
        });
        let Some((name, from, to, capacity)) = parts else {
            return Err(Failure::usage(format!(
                "--link {link}: expected NAME=FROM-TO:RATE, like l=a-b:10Gbps (nodes with a - in \
                 their names need a configuration)"
            )));
        };
        text += &format!(
            "[[link]]\nname = {}\nfrom = {}\nto = {}\ncapacity = {}\n",
            json!(name),
            json!(from),
            json!(to),
            json!(capacity)
        );
    }
    Config::parse(&text).map_err(|why| Failure::usage(format!("--link or --store: {why}")))
}

pub(super) fn audit(args: &AuditArgs, output: &Output) -> Result<(), Failure> {
    let failed = |why: String| Failure::failed(format!("{}: {why}", args.store));
    let location = match args.store.contains("://") {
        true => Location::Postgres { url: args.store.clone(), lease: Duration::ZERO },
        false if !Path::new(&args.store).is_file() => return Err(failed("no such file".into())),
        false => Location::Sqlite { path: args.store.clone().into(), max_bytes: None },
    };
    let mut store =
        store::open(&location, "audit", "").map_err(|error| failed(error.to_string()))?;
    let state = store.state().map_err(|error| failed(error.to_string()))?;
    let state = state.map(|(_, text)| Ledger::from_snapshot(&text)).transpose();
    let state = state.map_err(|error| failed(error.to_string()))?;
    let mut records = BTreeMap::new();
    for folder in &args.archive {
        let found = archive::read(folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
        records.extend(found);
    }
    let kept = store::read_all(store.as_mut()).map_err(|error| failed(error.to_string()))?;
    records.extend(kept.into_iter().map(|record| (record.seq, record)));
    let records: Vec<Record> = records.into_values().collect();
    let found =
        audit::verify(&records, state.as_ref()).map_err(|error| failed(error.to_string()))?;
    let since = match (&state, records.first()) {
        (Some(state), first) if first.is_none_or(|first| first.seq > 1) => format!(
            " since record {}, up to which the log was compacted (--archive checks those too),",
            state.seq()
        ),
        _ => String::new(),
    };
    let json = serde_json::to_value(&found)
        .map_err(|error| Failure::failed(format!("no JSON: {error}")))?;
    output.result(
        &json,
        format!(
            "{} records{since} decide themselves again: {} bookings; at most {:.1} % of a link \
         was held",
            found.records,
            found.booked,
            found.peak_ppm as f64 / 1e4
        ),
    )
}

/// The project of a service without a configuration.
const LOCAL_PROJECT: &str = "local";
/// How often the end of the service and its state are looked for.
const GLANCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::circuits::args::CircuitsCommand;

    #[test]
    fn a_link_names_two_nodes() {
        let links = |link: &str| {
            let words = ["longhaul", "circuits", "serve", "--link", link];
            let Command::Circuits(args) = Cli::try_parse_from(words).unwrap().command else {
                panic!("{link}")
            };
            let CircuitsCommand::Serve(args) = args.command else { panic!("{link}") };
            configured(&args).map(|config| config.links).map_err(|failure| failure.message)
        };
        let found = links("gva-chi=gva-chi:10Gbps").unwrap().remove(0);
        let names = [found.name, found.from, found.to];
        assert_eq!(names, ["gva-chi", "gva", "chi"]);
        // Which of the two would have the hyphen?
        let refused = links("l=gva-1-chi:10Gbps").unwrap_err();
        assert!(refused.contains("need a configuration"), "{refused}");
    }
}
