//! `longhaul gateway`.

pub mod args;
mod configured;
mod run;
mod status;

use longhaul_sys::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul::Stop;
use longhaul_gateway::{Ending, Event, Gateway, StartError};
use longhaul_units::{Bytes, counted, shown};
use serde_json::{Map, Value, json};

use self::args::{GatewayArgs, GatewayCommand, ServeArgs};
use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::serve::refused_clients::{RefusedClients, left_out};
use crate::signals::{Held, Orders};

pub(crate) fn run(args: &GatewayArgs, output: &Output, held: Held) -> Result<(), Failure> {
    match &args.command {
        GatewayCommand::Serve(args) => serve(args, output, held),
        GatewayCommand::Status(args) => {
            held.release()?;
            status::show(args, output)
        }
        GatewayCommand::Check(args) => {
            held.release()?;
            let checked = configured::read_file(&args.file)?;
            let shown = args.file.display();
            for notice in &checked.notices {
                output.say(format!("note: {shown}: {notice}"));
            }
            output
                .result(&json!({ "file": shown.to_string() }), format!("{shown}: nothing is wrong"))
        }
        GatewayCommand::Run(args) => held.release().and_then(|()| run::run(args)),
    }
}

/// Says in which respects the operator gets less than he wished for.
fn say_notices(notices: &[String], gateway: &Gateway, wanted: usize, output: &Output) {
    for notice in notices {
        output.say(format!("note: {notice}"));
    }
    let most = gateway.max_sessions();
    if most < wanted {
        output.say(format!(
            "note: there are descriptors (ulimit -n) and memory (--memory) for {}, not {wanted}",
            counted(most as u64, "session")
        ));
    }
}

fn serve(args: &ServeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let account = Arc::new(Mutex::new(Account::new()));
    let (stop, reload) = (Stop::default(), Arc::new(AtomicBool::new(false)));
    let known = account.clone();
    let again = args.config.is_some().then(|| reload.clone());
    let orders = Orders { stop: stop.clone(), drain: None, reload: again };
    held.follow(&orders, output, move || lock(&known).fields())?;
    let mut checked = configured::read(args)?;
    let (shown, noted) = (*output, account.clone());
    let report = Arc::new(move |event: Event| lock(&noted).note(&event, &shown));
    let settings = std::mem::take(&mut checked.settings);
    let wanted = settings.max_sessions;
    let mut gateway = Gateway::start(settings, report).map_err(explain)?;
    say_notices(&checked.notices, &gateway, wanted, output);
    let broken = |error: std::io::Error| Failure::failed(format!("the gateway failed: {error}"));
    for address in gateway.addresses().map_err(broken)? {
        output.say(format!("listening on {address}"));
    }
    if let Some(address) = gateway.metrics() {
        output.say(format!("metrics at http://{address}/metrics"));
    }
    while !stop.is_requested() && !gateway.is_finished() {
        if reload.swap(false, Ordering::Relaxed) {
            let new = configured::read(args).and_then(|mut new| {
                let settings = std::mem::take(&mut new.settings);
                let wanted = settings.max_sessions;
                gateway.reload(settings).map_err(explain)?;
                say_notices(&new.notices, &gateway, wanted, output);
                Ok(new.drain)
            });
            match new {
                Ok(drain) => {
                    checked.drain = drain;
                    output.say("the configuration was read again");
                }
                Err(failure) => complain(format!(
                    "the configuration stays as it was, since the new one cannot be used: {failure}"
                )),
            }
        }
        std::thread::sleep(ATTENTION);
    }
    gateway.drain();
    let until = Instant::now() + checked.drain;
    while !gateway.is_finished() && Instant::now() < until {
        std::thread::sleep(ATTENTION);
    }
    gateway.stop();
    gateway.join().map_err(broken)?;
    let (rest, reset, fields) = {
        let mut account = lock(&account);
        (account.refusals.rest(), account.open(), account.fields())
    };
    rest.map(left_out).into_iter().for_each(complain);
    if reset > 0 {
        complain(format!("open at the end, and reset: {}", counted(reset, "session")));
    }
    if output.json {
        output.print_json(&Value::Object(fields))?;
    }
    Ok(())
}

fn explain(error: StartError) -> Failure {
    match &error {
        StartError::Listen { .. } | StartError::NoRoom { .. } | StartError::System(_) => {
            Failure::failed(error.to_string())
        }
        _ => Failure::usage(error.to_string()),
    }
}

/// Counts of what happened so far.
#[derive(Debug)]
struct Account {
    started: Instant,
    /// Clients that were let in.
    sessions: u64,
    /// Those of them whose session ended well.
    done: u64,
    failed: u64,
    refused: u64,
    bytes: [u64; 2],
    refusals: RefusedClients,
}

impl Account {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            sessions: 0,
            done: 0,
            failed: 0,
            refused: 0,
            bytes: [0; 2],
            refusals: RefusedClients::default(),
        }
    }

    fn note(&mut self, event: &Event, output: &Output) {
        let line = words(event);
        match event {
            Event::Entered => {
                self.sessions += 1;
                return;
            }
            Event::Ended { summary, ending } => {
                self.bytes = [0, 1].map(|i| self.bytes[i] + summary.bytes[i]);
                match ending {
                    Ending::Clean | Ending::Left(_) => {
                        self.done += 1;
                        return output.detail(line);
                    }
                    Ending::Stopped => return output.detail(line),
                    Ending::NotEntered(_) => self.refused += 1,
                    _ => self.failed += 1,
                }
            }
            Event::Stranger { .. } => self.refused += 1,
            _ => {}
        }
        let (others, shows) = self.refusals.note(Instant::now());
        others.map(left_out).into_iter().chain(shows.then_some(line)).for_each(complain);
    }

    /// Sessions that have not ended: a stop resets them.
    const fn open(&self) -> u64 {
        self.sessions - self.done - self.failed
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for (name, value) in [
            ("sessions", json!(self.sessions)),
            ("failed", json!(self.failed)),
            ("refused", json!(self.refused)),
            ("reset", json!(self.open())),
            ("bytes_there", json!(self.bytes[0])),
            ("bytes_back", json!(self.bytes[1])),
            ("seconds", json!(self.started.elapsed().as_millis() as f64 / 1e3)),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }
}

/// A line for the log, whatever clients and other gateways call themselves.
fn words(event: &Event) -> String {
    shown(&match event {
        Event::Ended { summary, ending } => {
            let (client, target) = (&summary.client, &summary.target);
            match ending {
                Ending::NotEntered(why) => format!("a client was not let in: {why}"),
                Ending::Clean | Ending::Left(_) => {
                    let [there, back] = summary.bytes.map(Bytes::new);
                    format!("{client}: {target}: {ending}, {there} there, {back} back")
                }
                ending => format!("{client}: {target}: {ending}"),
            }
        }
        Event::Stranger { from } => {
            format!("{}: refused: not among the addresses of --from", from.ip())
        }
        Event::AcceptFailed { error } => format!("clients wait: {error}"),
        other => format!("{other:?}"),
    })
}

/// Signals are looked for this often.
const ATTENTION: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use longhaul_gateway::Summary;

    use super::*;

    #[test]
    fn names_and_reasons_of_others_forge_no_line_of_the_log() {
        let summary = Summary {
            client: "alice\n10.0.0.7".into(),
            target: "data\r\n:443".into(),
            ..Summary::default()
        };
        let why = "far: refused to a\nb: c\n\u{1b}[2Jd".to_owned();
        for ending in [Ending::Clean, Ending::NotEntered(why.clone()), Ending::NotConnected(why)] {
            let line = words(&Event::Ended { summary: summary.clone(), ending });
            assert!(!line.contains(char::is_control), "{line}");
        }
    }
}
