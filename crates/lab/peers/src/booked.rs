//! Longhaul over a circuit that it books: a booking service that has what the link carries at each
//! time, and copies that follow what they booked (VBTP): a vector, or one rate throughout.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use longhaul_lab::Testbed;
use longhaul_sys::clock;
use longhaul_units::{Instant, Rate};
use serde_json::Value;

use crate::contender::{Absent, Booking, Contender, ContenderError, End, Job, Outcome, Presence};
use crate::files::Files;
use crate::longhaul::commands::{self, Commands};
use crate::longhaul::{self, PORT, copied, json_of, rate_argument};
use crate::session::Session;

/// One copy, or several that begin half a second apart.
pub(crate) struct Booked {
    name: String,
    /// Booked at one rate throughout (FBLS), before the copy, in place of what is free (VBLS).
    fixed: bool,
    /// In percent of the bytes; the program's own default if there is none.
    margin: Option<u8>,
    /// The most that each copy books; of one copy the job's rate, if it has one.
    rates: Vec<Rate>,
}

impl Booked {
    pub(crate) const USUAL: &[&str] =
        &["trc booked", "trc booked at 300,400,600", "trc booked fixed at 300,400,600"];

    /// `trc booked`, then `fixed`, `margin PERCENT`, `at MBPS,MBPS,...`, as far as they are wanted.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let mut made =
            Self { name: name.to_owned(), fixed: false, margin: None, rates: Vec::new() };
        let mut words = name.strip_prefix("trc booked")?.split(' ');
        if !words.next()?.is_empty() {
            return None;
        }
        while let Some(word) = words.next() {
            match word {
                "fixed" if !made.fixed => made.fixed = true,
                "margin" if made.margin.is_none() => {
                    made.margin = Some(words.next()?.parse().ok().filter(|part| *part <= 100)?);
                }
                "at" if made.rates.is_empty() => {
                    let rate = |text: &str| text.parse().ok().filter(|mbps| *mbps > 0);
                    let rates =
                        words.next()?.split(',').map(|text| rate(text).map(Rate::from_mbps));
                    made.rates = rates.collect::<Option<_>>()?;
                }
                _ => return None,
            }
        }
        Some(Box::new(made))
    }

    /// The most that each copy books.
    fn limits(&self, job: &Job) -> Vec<Option<Rate>> {
        match &self.rates[..] {
            [] => vec![job.rate],
            rates => rates.iter().copied().map(Some).collect(),
        }
    }
}

impl Contender for Booked {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        let copies = match self.rates.len() {
            0 | 1 => "a copy".to_owned(),
            count => format!("{count} copies"),
        };
        let how = if self.fixed { "at one rate (FBLS)" } else { "as it is free (VBLS)" };
        format!(
            "Longhaul over a circuit, {copies} booked {how} and followed (VBTP); needs a link `circuit` and another beside it"
        )
    }

    fn presence(&self) -> Result<Presence, Absent> {
        commands::presence()
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let circuit = Circuit::find(testbed, job)?;
        let limits = self.limits(job);
        if self.fixed && limits.contains(&None) {
            return Err(ContenderError::unsuitable(format!("{} needs a rate", self.name)));
        }
        let mut session = Session::new(testbed, job)?;
        let files = Files::several(&session, limits.len() as u64)?;
        let sources = files.each(limits.len())?;
        let commands = Commands::new(&mut session, &presence)?;
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
        commands.serve(&mut session, everywhere, &files, &[])?;
        circuit.serve(&mut session, &commands)?;
        circuit.occupy(&mut session, &commands, testbed.began())?;
        session.begin()?;
        let began = session.began().unwrap_or_else(clock::now);
        let mut started = Vec::new();
        for ((number, limit), source) in (0..).zip(limits).zip(sources) {
            let due = began + APART * number;
            session.wait_until(due)?;
            let copy = Copy { number, limit, source };
            let booking = match self.fixed {
                true => Some(self.reserve(&mut session, &commands, &circuit, &copy)?),
                false => None,
            };
            let cp = self.cp(&commands, &circuit, &copy, booking);
            let at = clock::now();
            started.push((session.start(End::Sender, cp)?, at, due));
        }
        let (mut reports, mut bookings) = (Vec::new(), Vec::new());
        for (client, at, due) in started {
            let report = copied(&mut session, client)?;
            let since = |time: Instant| time.since(began).as_secs_f64();
            let booking = booking(&report, since(due), since(at));
            let absent = || session.failed(client, "its report has no circuit");
            bookings.push(booking.ok_or_else(absent)?);
            reports.push(report);
        }
        let account = session.close()?;
        files.check(&self.name)?;
        let total = |field: &str| reports.iter().filter_map(|one| one[field].as_u64()).sum();
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, count) in reports.iter().filter_map(longhaul::lost).flatten() {
            *lost.entry(cause).or_default() += count;
        }
        Ok(Outcome {
            congestion_control: Some("trc".to_owned()),
            resent: Some(total("packets_resent")),
            lost: Some(lost),
            bookings,
            ..account.outcome(presence, job)
        }
        .detailed("cp", reports.into()))
    }
}

/// A copy that has not begun.
struct Copy {
    number: u32,
    /// The most that it books.
    limit: Option<Rate>,
    source: PathBuf,
}

impl Booked {
    /// Books at one rate what a copy books by itself: its bytes with headers, and a round trip.
    fn reserve(
        &self,
        session: &mut Session<'_>,
        commands: &Commands,
        circuit: &Circuit,
        copy: &Copy,
    ) -> Result<u64, ContenderError> {
        let size = copy.source.metadata().map_err(ContenderError::system("look at a file"))?.len();
        let limit = copy.limit.unwrap_or_default();
        let bytes = size / PAYLOAD * PACKET + PACKET + limit.bytes_in(circuit.rtt);
        let mut request = commands.command(&["circuits", "request", "--json", "--quiet"]);
        request.args(["--links", LINK, "--policy", "fixed", "--bytes", &bytes.to_string()]);
        request.args(["--max-rate", &rate_argument(limit)]);
        request.args(["--margin", &self.margin.unwrap_or(MARGIN).to_string()]);
        let request = session.start(End::Sender, request)?;
        let made = json_of(session, request)?;
        let id = made["bookings"][0]["id"].as_u64();
        id.ok_or_else(|| session.failed(request, "it does not say what it booked"))
    }

    fn cp(
        &self,
        commands: &Commands,
        circuit: &Circuit,
        copy: &Copy,
        booking: Option<u64>,
    ) -> Command {
        // What earlier copies of this user have learnt is no part of the run.
        let mut cp = commands.command(&["cp", "--json", "--quiet", "--no-history"]);
        if let Some(limit) = copy.limit {
            cp.args(["--rate", &rate_argument(limit)]);
        }
        cp.args(["--circuit-to", &circuit.far.to_string()]);
        cp.arg("--circuit-token-file").arg(commands.token());
        match booking {
            Some(id) => {
                let url = format!("http://{SERVICE}");
                cp.args(["--circuit", &url, "--booking", &id.to_string()]);
            }
            None => {
                cp.args(["--circuit", &format!("http://{SERVICE}/{NEAR}/{FAR}")]);
                if let Some(margin) = self.margin {
                    cp.args(["--margin", &margin.to_string()]);
                }
            }
        }
        let to = circuit.far_over_ip;
        cp.arg(&copy.source).arg(format!("lh://{to}:{PORT}/copy-{}", copy.number));
        cp
    }
}

/// The link `circuit` between the two nodes, which is booked, and another for everything else.
struct Circuit {
    /// The receiver's address at its end.
    far: IpAddr,
    /// The receiver's address on the other link.
    far_over_ip: IpAddr,
    /// Its rates, each from a time after the testbed was made.
    rates: Vec<(Duration, Rate)>,
    rtt: Duration,
    patience: Duration,
}

impl Circuit {
    fn find(testbed: &Testbed, job: &Job) -> Result<Self, ContenderError> {
        let links = &testbed.topology().links;
        let joins = |number: &usize| {
            let between = &links[*number].between;
            between.contains(&job.from) && between.contains(&job.to)
        };
        let (circuits, others): (Vec<usize>, Vec<usize>) =
            (0..links.len()).filter(joins).partition(|number| links[*number].name == LINK);
        let (Some(&circuit), Some(&other)) = (circuits.first(), others.first()) else {
            let why = format!("it takes a link `{LINK}` between the two nodes, and another one");
            return Err(ContenderError::unsuitable(why));
        };
        let receiver = testbed.host(&job.to);
        let receiver =
            receiver.ok_or_else(|| ContenderError::unsuitable("there is no receiver"))?;
        let end = |link: usize| usize::from(links[link].between[1] == job.to);
        let both = links[circuit]
            .paths()
            .map_err(|error| ContenderError::unsuitable(error.to_string()))?;
        let rtt = both.forward.delay + both.backward.delay;
        let direction = if end(circuit) == 1 { both.forward } else { both.backward };
        let schedule = direction.bottleneck.map(|bottleneck| bottleneck.rate);
        let schedule =
            schedule.ok_or_else(|| ContenderError::unsuitable("the circuit has no rate"))?;
        let rates = [(Duration::ZERO, schedule.initial)].into_iter().chain(schedule.changes);
        Ok(Self {
            far: receiver.ipv4_on(circuit, end(circuit)),
            far_over_ip: receiver.ipv4_on(other, end(other)),
            rates: rates.collect(),
            rtt,
            patience: job.patience,
        })
    }

    fn most(&self) -> Rate {
        self.rates.iter().map(|(_, rate)| *rate).max().unwrap_or_default()
    }

    /// Starts the booking service, beside the sender.
    fn serve(&self, session: &mut Session<'_>, commands: &Commands) -> Result<(), ContenderError> {
        let folder = session.folder();
        let path = |name: &str| folder.join(name).display().to_string();
        let (config, store, token) = (path("circuits.toml"), path("book.db"), commands.token());
        let text = format!(
            "store = {store:?}\n[rules]\nguard = \"{}ms\"\n[[link]]\nname = \"{LINK}\"\nfrom = \
             \"{NEAR}\"\nto = \"{FAR}\"\ncapacity = \"{}\"\n[[project]]\nname = \"lab\"\n\
             [[access]]\ntoken_file = {token:?}\nproject = \"lab\"\nrole = \"operator\"\n",
            GUARD.as_millis(),
            rate_argument(self.most()),
        );
        std::fs::write(&config, text).map_err(ContenderError::system("write a configuration"))?;
        let at = SERVICE.to_string();
        let words = ["circuits", "serve", "--quiet", "--config", &config, "--listen", &at];
        let service = session.start(End::Sender, commands.without_token(&words))?;
        session.listening(service, SERVICE.port())
    }

    /// Books, for others, what the link does not carry. Ticks of the service are not those of the
    /// emulation, which is up to a tick behind: the guard covers that.
    fn occupy(
        &self,
        session: &mut Session<'_>,
        commands: &Commands,
        began: Instant,
    ) -> Result<(), ContenderError> {
        let most = self.most();
        let ends = self.rates.iter().skip(1).map(|(from, _)| *from);
        let last = self.rates.last().map_or(Duration::ZERO, |(from, _)| *from);
        let ends = ends.chain([last + self.patience]);
        for ((from, rate), to) in self.rates.iter().zip(ends) {
            let from = (began + *from).max(clock::now() + SOON);
            let length = (began + to).since(from).saturating_sub(GUARD).as_millis();
            let taken = most.as_bps() - rate.as_bps();
            if taken == 0 || length == 0 {
                continue;
            }
            let start = (Timestamp::now() + from.since(clock::now())).to_string();
            let mut request = commands.command(&["circuits", "request", "--quiet"]);
            request.args(["--links", LINK, "--max-rate", &rate_argument(Rate::from_bps(taken))]);
            request.args(["--time", &format!("{length}ms"), "--start", &start]);
            request.args(["--latest-start", &start]);
            let request = session.start(End::Sender, request)?;
            session.finish(request)?;
        }
        Ok(())
    }
}

/// Reads the booking from `cp --json`'s report of its circuit; `asked`, `started` and all times of
/// the booking are in seconds from the start of the run.
fn booking(report: &Value, asked: f64, started: f64) -> Option<Booking> {
    let circuit = &report["circuit"];
    let time = |field: &str| Some(started + circuit[field].as_f64()?);
    Some(Booking {
        asked,
        planned: time("planned_seconds")?,
        done: started + report["seconds"].as_f64()?,
        left: time("left_seconds")?,
        released: circuit["released_seconds"].is_number(),
        allowed_bytes: circuit["allowed_bytes"].as_u64()?,
        sent_bytes: circuit["sent_bytes"].as_u64()?,
        ip_bytes: circuit["ip_bytes"].as_u64()?,
    })
}

/// The link that is booked, in the testbed and at the service.
const LINK: &str = "circuit";
/// Its ends, at the service.
const NEAR: &str = "here";
const FAR: &str = "there";
/// Where the service listens, at the sender.
const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7430);
/// Left idle at each change of rate.
const GUARD: Duration = Duration::from_millis(1);
/// For a request to reach the service.
const SOON: Duration = Duration::from_millis(500);
/// From copy to copy.
const APART: Duration = Duration::from_millis(500);
/// Percent that a copy that follows its vector books beyond its bytes before it has learnt.
const MARGIN: u8 = 2;
/// Bytes of a file in a packet, and of the packet.
const PAYLOAD: u64 = 1424;
const PACKET: u64 = 1500;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_read() {
        let all = [&["trc booked margin 20", "trc booked fixed at 300"], Booked::USUAL].concat();
        for name in all {
            assert_eq!(Booked::named(name).unwrap().name(), name);
        }
        let about = Booked::named("trc booked fixed at 1,2").unwrap().about();
        assert!(about.contains("2 copies booked at one rate (FBLS)"), "{about}");
        for wrong in ["trc", "trc booked ", "trc bookedx", "trc booked at", "trc booked at 0"] {
            assert!(Booked::named(wrong).is_none(), "{wrong}");
        }
        for wrong in ["trc booked margin 101", "trc booked fixed fixed", "trc booked at 1,x"] {
            assert!(Booked::named(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn reports_are_read() {
        let report = json!({ "seconds": 8.0, "circuit": {
            "left_seconds": 7.0, "released_seconds": null, "planned_seconds": 7.5,
            "allowed_bytes": 100, "sent_bytes": 98, "ip_bytes": 3,
        }});
        let made = booking(&report, 0.5, 1.0).unwrap();
        assert_eq!((made.asked, made.planned, made.done), (0.5, 8.5, 9.0));
        assert_eq!((made.left, made.released, made.ip_bytes), (8.0, false, 3));
        assert!(booking(&json!({ "seconds": 8.0 }), 0.5, 1.0).is_none());
    }
}
