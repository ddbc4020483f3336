//! `longhaul gateway`.

pub mod args;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_gateway::entry::Passwords;
use longhaul_gateway::policy::{Destinations, Prefix};
use longhaul_gateway::transport::SegmentSettings;
use longhaul_gateway::{Ending, Event, Gateway, GatewaySettings, StartError};
use longhaul_relay::{GATEWAY_PORT, Hop, Place, Target};
use longhaul_session::Token;
use longhaul_transfer::Stop;
use longhaul_units::Bytes;
use serde_json::{Map, Value, json};

use self::args::{GatewayArgs, GatewayCommand, ServeArgs};
use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::serve::refusals::Refusals;
use crate::signals::Held;
use crate::token;

pub(crate) fn run(args: &GatewayArgs, output: &Output, held: Held) -> Result<(), Failure> {
    match &args.command {
        GatewayCommand::Serve(args) => serve(args, output, held),
    }
}

fn serve(args: &ServeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let account = Arc::new(Mutex::new(Account::new()));
    let stop = Stop::default();
    let known = account.clone();
    held.stop_in_order(&stop, output, move || lock(&known).fields())?;
    let settings = settings(args)?;
    let (shown, noted) = (*output, account.clone());
    let report = Arc::new(move |event: Event| lock(&noted).note(&event, &shown));
    let mut gateway = Gateway::start(settings, report).map_err(explain)?;
    let broken = |error: std::io::Error| Failure::failed(format!("the gateway failed: {error}"));
    for address in gateway.addresses().map_err(broken)? {
        output.say(format!("listening on {address}"));
    }
    while !stop.is_requested() && !gateway.is_finished() {
        std::thread::sleep(ATTENTION);
    }
    gateway.drain();
    let until = Instant::now() + Duration::from_secs(args.drain);
    while !gateway.is_finished() && Instant::now() < until {
        std::thread::sleep(ATTENTION);
    }
    let reset = gateway.sessions();
    gateway.stop();
    gateway.join().map_err(broken)?;
    let (rest, mut fields) = {
        let mut account = lock(&account);
        (account.refusals.rest(), account.fields())
    };
    rest.into_iter().for_each(complain);
    if reset > 0 {
        complain(format!("{reset} sessions were still open and are reset"));
    }
    fields.insert("reset".into(), json!(reset));
    if output.json {
        output.print_json(&Value::Object(fields))?;
    }
    Ok(())
}

fn settings(args: &ServeArgs) -> Result<GatewaySettings, Failure> {
    let usage = |option: &str, text: &str, error: &dyn std::fmt::Display| {
        Failure::usage(format!("--{option} {text}: {error}"))
    };
    let tokens = match &args.token_file {
        Some(file) => token::read_at_server(file)?,
        None => Vec::new(),
    };
    let via_token = match &args.via_token_file {
        Some(file) => token::read(file)?.into_iter().next(),
        None => tokens.first().cloned(),
    };
    if !args.via.is_empty() && via_token.is_none() {
        return Err(Failure::usage("--via needs the token of that gateway: --via-token-file FILE"));
    }
    let passwords = match &args.socks_password_file {
        None => None,
        Some(file) => {
            let shown = file.display();
            let text = fs::read_to_string(file)
                .map_err(|error| Failure::failed(format!("cannot read {shown}: {error}")))?;
            let passwords = Passwords::parse(&text);
            Some(passwords.map_err(|error| Failure::failed(format!("{shown}: {error}")))?)
        }
    };
    let mut allow = Vec::new();
    for text in &args.allow {
        allow.push(text.parse().map_err(|error| usage("allow", text, &error))?);
    }
    let mut from: Vec<Prefix> = Vec::new();
    for text in &args.from {
        from.push(text.parse().map_err(|error| usage("from", text, &error))?);
    }
    let mut via: Vec<Hop> = Vec::new();
    for text in &args.via {
        via.push(text.parse().map_err(|error| usage("via", text, &error))?);
    }
    let listen = |option: &str, texts: &[String], port| {
        let parse =
            |text: &String| address(text, port).map_err(|error| usage(option, text, &error));
        texts.iter().map(parse).collect::<Result<Vec<SocketAddr>, Failure>>()
    };
    let mut forwards = Vec::new();
    for text in &args.forward {
        forwards.push(forward(text).map_err(|error| usage("forward", text, &error))?);
    }
    Ok(GatewaySettings {
        listen: listen("listen", &args.listen, Some(GATEWAY_PORT))?,
        socks: listen("socks", &args.socks, None)?,
        forwards,
        name: args.name.clone(),
        keys: tokens.iter().collect(),
        via_key: via_token.as_ref().map(Token::key),
        via,
        destinations: Destinations::new(allow),
        passwords,
        from,
        segment: SegmentSettings {
            congestion_control: args.congestion.clone(),
            ..SegmentSettings::default()
        },
        max_sessions: args.max_sessions as usize,
        ..GatewaySettings::default()
    })
}

/// Reads `ADDR:PORT`, or an address alone where there is a usual port.
fn address(text: &str, port: Option<u16>) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let alone = || bare.parse::<IpAddr>().ok().zip(port).map(SocketAddr::from);
    text.parse().ok().or_else(alone).ok_or_else(|| {
        "expected an address and port of this host, like 192.0.2.7:1080 or [::1]:1080".into()
    })
}

/// Reads `[ADDR:]PORT=HOST:PORT`.
fn forward(text: &str) -> Result<(SocketAddr, Target), String> {
    let expected = || "expected [ADDR:]PORT=HOST:PORT, like 8443=data.example:443".to_owned();
    let (here, there) = text.split_once('=').ok_or_else(expected)?;
    let on_loopback = || {
        let port = here.parse().ok()?;
        Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
    };
    let listen = here.parse().ok().or_else(on_loopback).ok_or_else(expected)?;
    let place: Place = there.parse().map_err(|_| expected())?;
    Ok((listen, Target { place, aware: false }))
}

fn explain(error: StartError) -> Failure {
    match &error {
        StartError::Listen { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage("this kernel does not have that congestion control (--congestion)")
        }
        StartError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::failed(format!("{error}: another program uses the port"))
        }
        StartError::Listen { .. } | StartError::System(_) => Failure::failed(error.to_string()),
        _ => Failure::usage(error.to_string()),
    }
}

/// Counts of what happened so far.
#[derive(Debug)]
struct Account {
    started: Instant,
    sessions: u64,
    failed: u64,
    refused: u64,
    bytes: [u64; 2],
    refusals: Refusals,
}

impl Account {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            sessions: 0,
            failed: 0,
            refused: 0,
            bytes: [0; 2],
            refusals: Refusals::default(),
        }
    }

    fn note(&mut self, event: &Event, output: &Output) {
        let line = match event {
            Event::Ended { summary, ending } => {
                self.sessions += 1;
                let [there, back] = summary.bytes;
                self.bytes = [self.bytes[0] + there, self.bytes[1] + back];
                let (client, target) = (&summary.client, &summary.target);
                match ending {
                    Ending::NotEntered(why) => {
                        self.refused += 1;
                        format!("a client was not let in: {why}")
                    }
                    Ending::Clean => {
                        let (there, back) = (Bytes::new(there), Bytes::new(back));
                        let done = format!("{client}: {target}: done, {there} there, {back} back");
                        return output.detail(done);
                    }
                    ending => {
                        self.failed += 1;
                        format!("{client}: {target}: {ending}")
                    }
                }
            }
            Event::Stranger { from } => {
                self.refused += 1;
                format!("{}: refused: not among the addresses of --from", from.ip())
            }
            Event::Full { from } => {
                self.refused += 1;
                format!("{}: refused: all places are taken (--max-sessions)", from.ip())
            }
            Event::AcceptFailed { error } => format!("clients wait: {error}"),
            other => format!("{other:?}"),
        };
        self.refusals.note(Instant::now(), line).for_each(complain);
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for (name, value) in [
            ("sessions", json!(self.sessions)),
            ("failed", json!(self.failed)),
            ("refused", json!(self.refused)),
            ("bytes_there", json!(self.bytes[0])),
            ("bytes_back", json!(self.bytes[1])),
            ("seconds", json!(self.started.elapsed().as_millis() as f64 / 1e3)),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }
}

fn lock(account: &Mutex<Account>) -> std::sync::MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals are looked for this often.
const ATTENTION: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_name_a_port_and_a_target() {
        for (text, listen) in [
            ("8443=data.example:443", "127.0.0.1:8443"),
            ("0.0.0.0:8443=data.example:443", "0.0.0.0:8443"),
            ("[::1]:8443=data.example:443", "[::1]:8443"),
        ] {
            let (address, target) = forward(text).unwrap();
            assert_eq!(address.to_string(), listen);
            assert_eq!(target.place.to_string(), "data.example:443");
        }
        for text in ["", "8443", "8443=", "8443=host", "x=host:1", "70000=host:1", "1=host:0"] {
            assert!(forward(text).unwrap_err().starts_with("expected"), "{text}");
        }
    }

    #[test]
    fn addresses_have_the_usual_port_where_there_is_one() {
        assert_eq!(address("::1", Some(7421)), Ok("[::1]:7421".parse().unwrap()));
        assert_eq!(address("[::1]", Some(7421)), Ok("[::1]:7421".parse().unwrap()));
        assert_eq!(address("192.0.2.1:5", None), Ok("192.0.2.1:5".parse().unwrap()));
        assert!(address("192.0.2.1", None).is_err());
        assert!(address("host:5", Some(1)).is_err());
    }
}
