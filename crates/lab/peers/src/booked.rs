//! Longhaul over a circuit that it books: a booking service that has what the link carries at each
//! time, and copies that follow their vectors (VBTP), or send at the one rate that they booked.

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

use crate::contender::{
    Absent, Booking, Contender, End, Failure, Followed, Job, Outcome, Presence,
};
use crate::files::Files;
use crate::longhaul::{self, Commands, PORT, copied, said, said_in_json};
use crate::session::Session;

/// One copy, or several that begin half a second apart.
pub(crate) struct Booked {
    name: String,
    /// Booked at one rate and sent at it, in place of a vector that is followed.
    fixed: bool,
    /// In percent of the bytes; what the program takes by itself unless told.
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
        let how = if self.fixed { "at the rate booked (FBLS)" } else { "as booked (VBLS, VBTP)" };
        format!(
            "Longhaul over a circuit, {copies} {how}; needs a link `circuit` and another beside it"
        )
    }

    fn presence(&self) -> Result<Presence, Absent> {
        longhaul::presence()
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, Failure> {
        let presence = self.presence()?;
        let circuit = Circuit::find(testbed, job)?;
        let limits = self.limits(job);
        if self.fixed && limits.contains(&None) {
            return Err(Failure::unsuitable(format!("{} has to be told a rate", self.name)));
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
        let copies = (0..).zip(limits).zip(sources).map(|((number, limit), source)| Copy {
            number,
            limit,
            source,
            due: began + APART * number,
            planned: None,
        });
        let mut waiting: Vec<Copy> = copies.collect();
        let mut started = Vec::new();
        // Whoever is next asks for a circuit, or begins when that does.
        while let Some(next) = (0..waiting.len()).min_by_key(|&at| waiting[at].due) {
            let mut copy = waiting.swap_remove(next);
            session.wait_until(copy.due)?;
            if self.fixed && copy.planned.is_none() {
                let (start, finish) = self.reserve(&mut session, &commands, &copy)?;
                (copy.due, copy.planned) = (start, Some(finish));
                waiting.push(copy);
            } else {
                let cp = self.cp(&session, &commands, &circuit, &copy);
                let at = clock::now();
                started.push((session.start(End::Sender, cp)?, at, copy));
            }
        }
        started.sort_by_key(|(_, _, copy)| copy.number);
        let (mut reports, mut bookings) = (Vec::new(), Vec::new());
        for (client, at, copy) in started {
            let report = copied(&mut session, client)?;
            let since = |time: Instant| time.since(began).as_secs_f64();
            let booking = booking(&report, since(at), copy.planned.map(since));
            let asked = APART.as_secs_f64() * f64::from(copy.number);
            bookings.push(Booking {
                asked,
                ..booking.ok_or_else(|| session.failed(client, "it says nothing of its circuit"))?
            });
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
    /// When it asks for a circuit or, where that was done for it, begins.
    due: Instant,
    /// The end of what was booked for it.
    planned: Option<Instant>,
}

impl Booked {
    /// Books a copy's bytes at one rate: from when until when.
    fn reserve(
        &self,
        session: &mut Session<'_>,
        commands: &Commands,
        copy: &Copy,
    ) -> Result<(Instant, Instant), Failure> {
        let size = copy.source.metadata().map_err(Failure::system("look at a file"))?.len();
        let bytes = size / PAYLOAD * PACKET + PACKET;
        let mut request = commands.command(&["circuits", "request", "--json", "--quiet"]);
        request.args(["--links", LINK, "--policy", "fixed", "--bytes", &bytes.to_string()]);
        request.args(["--max-rate", &said(copy.limit.unwrap_or_default())]);
        request.args(["--margin", &self.margin.unwrap_or(MARGIN).to_string()]);
        let request = session.start(End::Sender, request)?;
        let made = said_in_json(session, request)?;
        let time = |value: &Value| {
            let time: Timestamp = value.as_str()?.parse().ok()?;
            let ahead = time.duration_since(Timestamp::now());
            Some(clock::now() + Duration::try_from(ahead).unwrap_or_default())
        };
        let booking = &made["bookings"][0];
        time(&booking["start"])
            .zip(time(&booking["finish"]))
            .ok_or_else(|| session.failed(request, "it does not say when"))
    }

    fn cp(
        &self,
        session: &Session<'_>,
        commands: &Commands,
        circuit: &Circuit,
        copy: &Copy,
    ) -> Command {
        let mut cp = commands.command(&["cp", "--json", "--quiet"]);
        // What earlier copies of this user have learnt is no part of the run.
        cp.env("XDG_STATE_HOME", session.folder());
        if let Some(limit) = copy.limit {
            cp.args(["--rate", &said(limit)]);
        }
        let to = if self.fixed {
            cp.args(["--profile", "trc"]);
            circuit.far
        } else {
            let url = format!("http://{SERVICE}/{NEAR}/{FAR}");
            cp.args(["--circuit", &url, "--circuit-to", &circuit.far.to_string()]);
            if let Some(margin) = self.margin {
                cp.args(["--margin", &margin.to_string()]);
            }
            circuit.far_over_ip
        };
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
    /// What it carries, from when on after the testbed was made.
    rates: Vec<(Duration, Rate)>,
    patience: Duration,
}

impl Circuit {
    fn find(testbed: &Testbed, job: &Job) -> Result<Self, Failure> {
        let links = &testbed.topology().links;
        let joins = |number: &usize| {
            let between = &links[*number].between;
            between.contains(&job.from) && between.contains(&job.to)
        };
        let (circuits, others): (Vec<usize>, Vec<usize>) =
            (0..links.len()).filter(joins).partition(|number| links[*number].name == LINK);
        let (Some(&circuit), Some(&other)) = (circuits.first(), others.first()) else {
            let why = format!("it takes a link `{LINK}` between the two nodes, and another one");
            return Err(Failure::unsuitable(why));
        };
        let receiver = testbed.host(&job.to);
        let receiver = receiver.ok_or_else(|| Failure::unsuitable("there is no receiver"))?;
        let end = |link: usize| usize::from(links[link].between[1] == job.to);
        let both =
            links[circuit].paths().map_err(|error| Failure::unsuitable(error.to_string()))?;
        let way = if end(circuit) == 1 { both.forward } else { both.backward };
        let schedule = way.bottleneck.map(|bottleneck| bottleneck.rate);
        let schedule = schedule.ok_or_else(|| Failure::unsuitable("the circuit has no rate"))?;
        let rates = [(Duration::ZERO, schedule.initial)].into_iter().chain(schedule.changes);
        Ok(Self {
            far: receiver.ipv4_on(circuit, end(circuit)),
            far_over_ip: receiver.ipv4_on(other, end(other)),
            rates: rates.collect(),
            patience: job.patience,
        })
    }

    fn most(&self) -> Rate {
        self.rates.iter().map(|(_, rate)| *rate).max().unwrap_or_default()
    }

    /// Starts the booking service, beside the sender.
    fn serve(&self, session: &mut Session<'_>, commands: &Commands) -> Result<(), Failure> {
        let folder = session.folder();
        let path = |name: &str| folder.join(name).display().to_string();
        let (config, store, token) = (path("circuits.toml"), path("book.db"), commands.token());
        let text = format!(
            "store = {store:?}\n[rules]\nguard = \"{}ms\"\n[[link]]\nname = \"{LINK}\"\nfrom = \
             \"{NEAR}\"\nto = \"{FAR}\"\ncapacity = \"{}\"\n[[project]]\nname = \"lab\"\n\
             [[access]]\ntoken_file = {token:?}\nproject = \"lab\"\nrole = \"operator\"\n",
            GUARD.as_millis(),
            said(self.most()),
        );
        std::fs::write(&config, text).map_err(Failure::system("write a configuration"))?;
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
    ) -> Result<(), Failure> {
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
            request.args(["--links", LINK, "--max-rate", &said(Rate::from_bps(taken))]);
            request.args(["--time", &format!("{length}ms"), "--start", &start]);
            request.args(["--latest-start", &start]);
            let request = session.start(End::Sender, request)?;
            session.finish(request)?;
        }
        Ok(())
    }
}

/// From what `cp --json` says of its circuit, or from the plan that was made for it; `started`,
/// `planned` and all that comes of it in seconds from the start of the run.
fn booking(report: &Value, started: f64, planned: Option<f64>) -> Option<Booking> {
    let done = started + report["seconds"].as_f64()?;
    let circuit = &report["circuit"];
    let time = |field: &str| Some(started + circuit[field].as_f64()?);
    let (planned, followed) = match planned {
        Some(planned) => (planned, None),
        None => {
            let followed = Followed {
                left: time("left_seconds")?,
                released: circuit["released_seconds"].is_number(),
                allowed_bytes: circuit["allowed_bytes"].as_u64()?,
                sent_bytes: circuit["sent_bytes"].as_u64()?,
                ip_bytes: circuit["ip_bytes"].as_u64()?,
            };
            (time("planned_seconds")?, Some(followed))
        }
    };
    Some(Booking { asked: started, planned, done, followed })
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
/// What a copy that follows its vector books beyond its bytes before it has learnt, in percent.
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
        assert!(about.contains("2 copies at the rate booked (FBLS)"), "{about}");
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
        let made = booking(&report, 1.0, None).unwrap();
        assert_eq!((made.asked, made.planned, made.done), (1.0, 8.5, 9.0));
        let followed = made.followed.unwrap();
        assert_eq!((followed.left, followed.released, followed.ip_bytes), (8.0, false, 3));
        let fixed = booking(&json!({ "seconds": 8.0 }), 1.0, Some(4.0)).unwrap();
        assert_eq!((fixed.planned, fixed.done, fixed.followed), (4.0, 9.0, None));
        assert!(booking(&json!({ "seconds": 8.0 }), 1.0, None).is_none());
    }
}
