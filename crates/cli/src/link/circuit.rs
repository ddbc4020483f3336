//! `--circuit`: the client of the booking service, as a copy or a pipe needs it.

mod clock;
mod experience;
mod fitness;

use longhaul_sys::sync::lock;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use longhaul::{
    CircuitBooking, CircuitOptions, CircuitReport, CircuitWant, CircuitWish, Circuits, ServiceError,
};
use longhaul_circuits::api::{BookRequest, Booking, FileWant, HoldWant, Range, State};
use longhaul_circuits::client::{Access, Client, ClientError};
use longhaul_history::{History, unix_time};
use longhaul_rate_control::{Profile, TimeRange, Vector, VectorError};
use longhaul_units::{Duration, Rate};

use self::clock::ServiceClock;
use self::experience::{Experience, learn, margin_ppm};
use self::fitness::{Fit, Unfit};
use crate::args::CircuitArgs;
use crate::circuits::when::When;
use crate::circuits::{ask, reach};
use crate::failure::Failure;
use crate::output::Output;
use crate::token;

/// What is to be sent over a circuit, as far as it is known before.
pub(crate) struct Errand<'a> {
    /// The server.
    pub host: &'a str,
    /// For people.
    pub label: String,
    /// How much of a circuit, if that is known.
    pub want: Option<CircuitWant>,
    /// Most that this host may send.
    pub rate: Option<Rate>,
    /// When a file must be there, or a circuit that is wanted for a time have started.
    pub by: Option<When>,
    /// Extra capacity, in percent.
    pub margin: Option<f64>,
    /// Whether there is something to send whenever it may be sent.
    pub bytes_wait: bool,
    /// What earlier circuits have taught.
    pub history: Option<&'a Arc<History>>,
}

/// The circuit, and the host whose experience it is.
pub(crate) struct Wanted {
    pub options: CircuitOptions,
    host: String,
    bytes_wait: bool,
    history: Option<Arc<History>>,
}

/// What `args` ask for.
///
/// # Errors
/// They do not fit each other, or there is no token.
pub(crate) fn wanted(args: &CircuitArgs, errand: &Errand<'_>) -> Result<Option<Wanted>, Failure> {
    let Some(url) = &args.circuit else { return Ok(None) };
    if errand.margin.is_some_and(|margin| !(0.0..=100.0).contains(&margin)) {
        return Err(Failure::usage("--margin takes 0 to 100 percent"));
    }
    let (base, ends) = service(url)?;
    if args.booking.is_some() && ends.is_some() {
        return Err(Failure::usage(format!(
            "--booking: its ends are those that were booked: --circuit {base}"
        )));
    }
    let access = Access { authorities: args.circuit_ca.clone(), plain_http: args.plain_http };
    let client =
        reach::client(&base, args.circuit_token_file.as_deref(), &access, &reach::OF_COPIES)?;
    // What cannot be read holds up nothing; writing will say why.
    let known = errand.history.and_then(|history| history.circuit(errand.host).ok());
    let known = known.unwrap_or_default();
    let now = Timestamp::now();
    let booker = Booker {
        client,
        ends,
        rate: errand.rate,
        known_rate: known.max_rate_bps.map(Rate::from_bps),
        by: errand.by.map(|by| by.from(now)),
        margin_ppm: match errand.margin {
            Some(percent) => (percent * 1e4).round() as u32,
            None => margin_ppm(&known),
        },
        label: errand.label.clone(),
        clock: Mutex::default(),
        fit: Mutex::new(Fit::of_any(Rate::ZERO)),
        step: Mutex::default(),
    };
    let options = CircuitOptions {
        circuits: Arc::new(booker),
        want: args.booking.map(CircuitWant::Made).or(errand.want),
        remote: args.circuit_to,
        local: args.circuit_from,
        or_ip: args.circuit_or_ip,
        and_ip: args.circuit_and_ip,
    };
    let (host, history) = (errand.host.to_owned(), errand.history.cloned());
    Ok(Some(Wanted { options, host, bytes_wait: errand.bytes_wait, history }))
}

impl Wanted {
    /// Learns from how it went.
    pub fn remember(&self, circuit: &CircuitReport, output: &Output) {
        let Some(experience) = Experience::of(circuit, self.bytes_wait) else { return };
        let Some(history) = &self.history else { return };
        let learnt =
            history.learn_circuit(&self.host, unix_time(), |known| learn(known, &experience));
        if let Err(why) = learnt {
            output.detail(format!("note: what this circuit taught is not remembered: {why}"));
        }
    }
}

/// Where the service is, and the ends that the URL names.
fn service(url: &str) -> Result<(String, Option<(String, String)>), Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--circuit {url}: expected https://HOST:PORT or https://HOST:PORT/FROM/TO"
        ))
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let mut parts = rest.trim_end_matches('/').split('/');
    let base = format!("{scheme}://{}", parts.next().unwrap_or_default());
    let ends: Vec<&str> = parts.collect();
    match ends[..] {
        [] => Ok((base, None)),
        [from, to] if !from.is_empty() && !to.is_empty() => {
            Ok((base, Some((from.to_owned(), to.to_owned()))))
        }
        _ => Err(wrong()),
    }
}

/// Books for one copy or pipe.
#[derive(Debug)]
struct Booker {
    client: Client,
    /// The service's names of the two ends.
    ends: Option<(String, String)>,
    /// Most that this host may send.
    rate: Option<Rate>,
    /// Most that the hosts can use, where earlier circuits have taught it.
    known_rate: Option<Rate>,
    /// When a file must be there, or a circuit have started.
    by: Option<Timestamp>,
    margin_ppm: u32,
    label: String,
    clock: Mutex<ServiceClock>,
    /// The conditions for the booking that is followed.
    fit: Mutex<Fit>,
    step: Mutex<Step>,
}

/// State of the booking.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Step {
    /// Nothing was asked for.
    #[default]
    Before,
    /// Something may be booked.
    Asked,
    /// The copy ended before.
    Left,
}

impl Booker {
    /// The ends, and the rate of the fastest link that leads away from the first, as far as this
    /// project may book it: the service grants no more.
    fn ends(&self, client: &Client) -> Result<(String, String, Rate), BookingError> {
        let topology = client.topology()?;
        let fastest = |from: &str| {
            let links = topology.links.iter().filter(|link| link.from == from);
            let fastest = links.map(|link| link.capacity_bps).max().unwrap_or(0);
            Rate::from_bps(fastest.min(topology.max_rate_bps.unwrap_or(u64::MAX)))
        };
        match (&self.ends, &topology.links[..]) {
            (Some((from, to)), _) => Ok((from.clone(), to.clone(), fastest(from))),
            (None, [link]) => Ok((link.from.clone(), link.to.clone(), fastest(&link.from))),
            (None, _) => Err(BookingError::SeveralEnds {
                ends: topology.nodes.join(", "),
                url: client.url().to_owned(),
            }),
        }
    }

    /// The part of a booking that can be followed, in this host's clock.
    fn vector(
        &self,
        client: &Client,
        booking: &Booking,
        fit: &Fit,
    ) -> Result<Vector, BookingError> {
        fit.check(&booking.ranges)?;
        let network = client.topology()?;
        let tick = Duration::from_nanos(network.tick_nanos);
        let idle = tick.saturating_mul(u32::try_from(network.guard_ticks).unwrap_or(u32::MAX));
        let mut clock = lock(&self.clock);
        clock.measure(client, network.tick_nanos)?;
        let range = |range: &Range| TimeRange {
            start: clock.here(range.start),
            end: clock.here(range.end),
            rate: Rate::from_bps(range.rate_bps),
        };
        // What begins and ends before the origin of this clock is over.
        let ranges = booking.ranges.iter().map(range).filter(|range| range.end > range.start);
        let vector = Vector::new(ranges.collect())?.idle_first(idle);
        fit.check_bytes(&vector)?;
        Ok(vector.guarded(clock.error()))
    }

    /// Makes a booking; `fill` says what for, and is given the fastest rate that may be had.
    fn make(
        &self,
        wish: &CircuitWish,
        fill: impl FnOnce(&mut BookRequest, Rate),
    ) -> Result<CircuitBooking, BookingError> {
        let client = self.client.for_one_answer();
        let (from, to, fastest) = self.ends(&client)?;
        let mut request = BookRequest {
            from: Some(from),
            to: Some(to),
            label: self.label.clone(),
            destination: Some(wish.remote),
            ..BookRequest::default()
        };
        fill(&mut request, fastest);
        let key = token::generate()
            .map_err(|failure| BookingError::NoKey(failure.message))?
            .key()
            .id()
            .to_string();
        self.ask()?;
        let made = ask::again(|| client.book(&request, Some(&key)))?;
        let booking = made.bookings.into_iter().next().ok_or(BookingError::Nothing)?;
        self.here(&client, &booking, Fit::of(&request)).inspect_err(|_| {
            // The reason that counts is that of the vector.
            let _ = self.client.for_one_answer().release(booking.id);
        })
    }

    /// From now on something may be booked.
    fn ask(&self) -> Result<(), BookingError> {
        let mut step = lock(&self.step);
        match *step {
            Step::Left => Err(BookingError::Left),
            Step::Before | Step::Asked => {
                *step = Step::Asked;
                Ok(())
            }
        }
    }

    /// A booking that was made before, if it can be followed.
    fn find(&self, id: u64) -> Result<CircuitBooking, BookingError> {
        let client = self.client.for_one_answer();
        let booking = client.show(id)?;
        self.ask()?;
        match booking.state {
            State::Scheduled | State::Active => {}
            State::Held => {
                return Err(BookingError::Held(id));
            }
            State::Finished | State::Released | State::Cancelled | State::Lapsed => {
                return Err(BookingError::Over(id));
            }
            State::Unknown => return Err(BookingError::Unknown(id)),
        }
        let peak = booking.ranges.iter().map(|range| range.rate_bps).max().map(Rate::from_bps);
        match peak.zip(self.rate) {
            Some((peak, most)) if peak > most => Err(BookingError::TooFast { id, peak, most }),
            _ => self.here(&client, &booking, Fit::of_any(self.rate.unwrap_or(Profile::RATE_MOST))),
        }
    }

    /// The booking in this host's clock.
    fn here(
        &self,
        client: &Client,
        booking: &Booking,
        fit: Fit,
    ) -> Result<CircuitBooking, BookingError> {
        let vector = self.vector(client, booking, &fit)?;
        *lock(&self.fit) = fit.of_the_rest();
        let clock = lock(&self.clock);
        let (id, bytes, finish) = (booking.id, booking.booked_bytes, clock.here(booking.finish));
        Ok(CircuitBooking { id, vector, bytes, finish })
    }
}

impl Circuits for Booker {
    fn book(&self, wish: &CircuitWish) -> Result<CircuitBooking, ServiceError> {
        let booking = match wish.want {
            CircuitWant::Bytes(bytes) => self.make(wish, |request, fastest| {
                let known = self.known_rate.map(|rate| rate.min(fastest));
                let rate = self.rate.or(known).unwrap_or(fastest);
                // The circuit idles for a round trip at its beginning.
                let idle = rate.bytes_in(wish.rtt).min(bytes);
                request.file = Some(FileWant {
                    bytes: bytes.saturating_add(idle),
                    max_rate_bps: rate.as_bps(),
                    deadline: self.by,
                    margin_ppm: self.margin_ppm,
                    ..FileWant::default()
                });
            }),
            CircuitWant::Time { time, min_rate, max_rate } => self.make(wish, |request, _| {
                request.hold = Some(HoldWant {
                    duration_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                    min_rate_bps: min_rate.as_bps(),
                    max_rate_bps: max_rate.as_bps(),
                    latest_start: self.by,
                });
            }),
            CircuitWant::Made(id) => self.find(id),
        };
        Ok(booking?)
    }

    fn renew(&self, booking: u64) -> Result<Vector, ServiceError> {
        let client = self.client.for_one_answer();
        let booking = client.show(booking).map_err(BookingError::from)?;
        let fit = lock(&self.fit).clone();
        Ok(self.vector(&client, &booking, &fit)?)
    }

    fn release(&self, booking: u64) -> Result<(), ServiceError> {
        let client = self.client.for_one_answer();
        let released = ask::again(|| client.release(booking));
        Ok(released.map(drop).map_err(BookingError::from)?)
    }

    fn leave(&self) -> bool {
        let mut step = lock(&self.step);
        if *step == Step::Before {
            *step = Step::Left;
        }
        *step == Step::Asked
    }
}

/// A client's error in words, with what would be accepted.
fn in_words(error: &ClientError) -> String {
    match error {
        ClientError::Problem(problem) => match &problem.explanation {
            Some(explanation) => format!("{}: {}", problem.detail, explanation.summary),
            None => problem.detail.clone(),
        },
        other => reach::words(other, &reach::OF_COPIES),
    }
}

/// Why nothing could be booked, or a booking cannot be followed.
#[derive(Debug, thiserror::Error)]
enum BookingError {
    /// The service says no; what it would accept.
    #[error("{}", in_words(.0))]
    Service(#[from] ClientError),
    #[error("the service knows several ends ({ends}): name two, like --circuit {url}/FROM/TO")]
    SeveralEnds { ends: String, url: String },
    #[error(transparent)]
    Vector(#[from] VectorError),
    #[error("the service booked {0}")]
    Unfit(#[from] Unfit),
    #[error("{0}")]
    NoKey(String),
    #[error("the service booked nothing")]
    Nothing,
    #[error("the copy ended before anything was booked")]
    Left,
    #[error("booking {0} is only held: longhaul circuits commit {0}")]
    Held(u64),
    #[error("nothing is left of booking {0}")]
    Over(u64),
    #[error("booking {0} is in a state that a newer longhaul knows")]
    Unknown(u64),
    #[error("booking {id} has up to {peak}, which is more than --rate {most}")]
    TooFast { id: u64, peak: Rate, most: Rate },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_service_and_may_name_the_ends() {
        let ends = Some(("gva".to_owned(), "chi".to_owned()));
        let base = "http://[::1]:7430".to_owned();
        assert_eq!(service("http://[::1]:7430/gva/chi").unwrap(), (base.clone(), ends));
        assert_eq!(service("http://[::1]:7430/").unwrap(), (base, None));
        for wrong in ["localhost:7430", "http://a/b", "http://a/b/c/d", "http://a//c"] {
            assert!(service(wrong).unwrap_err().message.contains("expected https://"), "{wrong}");
        }
    }
}
