//! The messages between the service and its clients, as JSON.
//!
//! Rates are bits per second, sizes bytes, times RFC 3339 with an offset or Z. The same types make
//! the OpenAPI document. A field that is not known is refused in a request, where it may be a
//! condition, and left out of an answer, where a newer service may say more.

mod object;

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use self::object::Object;
pub use crate::ledger::Placing;

/// A request for capacity: exactly one of `file` and `hold`, between two nodes or over links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BookRequest {
    /// Node at which it begins; the service picks the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Node at which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Names of the links to take, instead of `from` and `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Vec<String>>,
    /// So many bytes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional"
    )]
    pub file: Option<FileWant>,
    /// So much time.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional"
    )]
    pub hold: Option<HoldWant>,
    /// When it may start; without it, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// Again and again, by a local clock.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional"
    )]
    pub recurring: Option<Recurring>,
    /// Keep it for this many seconds only, until it is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_for_seconds: Option<u32>,
    /// For people; up to 200 bytes, no control characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Destination address of the traffic, by which a switch can tell it from other traffic. Where
    /// links are switched it is one of those that the project has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub destination: Option<IpAddr>,
}

/// A file to carry: the VBLS paper's (F, Rmax, Treq).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWant {
    /// Its size.
    pub bytes: u64,
    /// Most that the two hosts can use.
    pub max_rate_bps: u64,
    /// When it must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Its placing in time.
    #[serde(default)]
    pub policy: Placing,
    /// Extra for what is sent again, in parts per million of the bytes.
    #[serde(default)]
    pub margin_ppm: u32,
}

/// A circuit for a time: the paper's (H, Rmin, Rmax, Treq).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldWant {
    /// Its duration, in milliseconds.
    pub duration_ms: u64,
    /// Least that is of use.
    pub min_rate_bps: u64,
    /// Most that is of use.
    pub max_rate_bps: u64,
    /// When it must have started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_start: Option<Timestamp>,
}

/// Occurrences of a recurring request. A local time that a day does not have, since clocks go
/// forward, is taken as much later; one that it has twice is the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Recurring {
    /// Local time of the start, like `22:00`.
    pub at: String,
    /// Local time by which a file must be there, the next one after the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Zone of these times, like `Europe/Zurich`.
    pub time_zone: String,
    /// Days of the week, like `["mon", "thu"]`; every day if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// First day that counts, like `2027-03-01`; today without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Number of occurrences.
    pub count: u32,
}

/// A booking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Booking {
    /// Its identifier.
    pub id: u64,
    /// The project it belongs to.
    pub project: String,
    /// Where it stands.
    pub state: State,
    /// For people.
    pub label: String,
    /// Names of its links.
    pub links: Vec<String>,
    /// The capacity it holds: the time-range-capacity vector, with neighbours of equal rate joined.
    pub ranges: Vec<Range>,
    /// Start of the first range.
    pub start: Timestamp,
    /// End of the last range.
    pub finish: Timestamp,
    /// The finish that was promised; it never gets later by itself.
    pub promise: Timestamp,
    /// Bytes of the file, without margin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that the ranges can carry.
    pub booked_bytes: u64,
    /// First booking of its series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<u64>,
    /// It lapses then unless it is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// When it was made.
    pub made: Timestamp,
    /// Price of what it holds, or has held, in millionths of the currency.
    pub price_micros: u64,
    /// Destination address of the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub destination: Option<IpAddr>,
}

/// Where a booking stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It waits to be committed.
    Held,
    /// It is to come.
    Scheduled,
    /// It has begun.
    Active,
    /// Its time passed.
    Finished,
    /// Its owner was done before.
    Released,
    /// Its owner did not want it.
    Cancelled,
    /// It was held and never committed.
    Lapsed,
    /// A state that a newer service knows and this program does not; no service sends it.
    #[serde(other)]
    Unknown,
}

/// One rate for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    /// When it begins.
    pub start: Timestamp,
    /// When it ends.
    pub end: Timestamp,
    /// Its rate, or what is free.
    pub rate_bps: u64,
}

/// Bookings, in the order of their identifiers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bookings {
    /// These.
    pub bookings: Vec<Booking>,
    /// Ask again with `after` this if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_after: Option<u64>,
}

/// A link that is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {
    /// Its name.
    pub name: String,
    /// Node at which it begins.
    pub from: String,
    /// Node at which it ends.
    pub to: String,
    /// Its capacity.
    pub capacity_bps: u64,
    /// Price of 10^12 bytes booked, in millionths of the currency.
    #[serde(default)]
    pub price_micros_per_tb: u64,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Node at which it begins.
    pub from: String,
    /// Node at which it ends.
    pub to: String,
    /// Its capacity.
    pub capacity_bps: u64,
    /// Price of 10^12 bytes booked, in millionths of the currency.
    #[serde(default)]
    pub price_micros_per_tb: u64,
}

/// The network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    /// All ends of links.
    pub nodes: Vec<String>,
    /// All links.
    pub links: Vec<Link>,
    /// Length of the service's time steps, in nanoseconds.
    pub tick_nanos: u64,
    /// The service's steps of rate.
    pub channel_bps: u64,
    /// Idle ticks after each change of rate.
    pub guard_ticks: u64,
    /// Most that the caller's project may book, where that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bps: Option<u64>,
    /// The currency of prices.
    pub currency: String,
}

/// Free capacity of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Availability {
    /// Its name.
    pub link: String,
    /// Its capacity.
    pub capacity_bps: u64,
    /// The free rate, by range of time.
    pub free: Vec<Range>,
    /// There is more, behind the last range.
    pub truncated: bool,
}

/// Where and when a request would be carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Names of its links.
    pub links: Vec<String>,
    /// The capacity it would hold.
    pub ranges: Vec<Range>,
    /// Start of the first range.
    pub start: Timestamp,
    /// End of the last range.
    pub finish: Timestamp,
    /// Price, in millionths of the currency.
    pub price_micros: u64,
}

/// The outcome a request would have. Nothing is booked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// The plan, if there is room.
    pub plan: Option<Plan>,
    /// The plan can be booked as it is, for some seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
    /// Why not sooner, or not at all.
    pub explanation: Explanation,
    /// Other ways, the earliest finish first.
    pub alternatives: Vec<Alternative>,
    /// Free capacity of the links of the plan until it ends.
    pub availability: Vec<Availability>,
    /// Each time of a recurring request, which is booked for all or for none. Plan, explanation,
    /// alternatives and availability are then those of the first that is refused, or of the first;
    /// there is no plan if one is refused, and no quote. A quote is for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occurrences: Vec<Occurrence>,
}

/// One time of a recurring request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Occurrence {
    /// When it may start.
    pub start: Timestamp,
    /// When its file must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The plan beside those of the times before it, if there is room.
    pub plan: Option<Plan>,
}

/// A plan that can be booked as it is as long as nobody takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Quote {
    /// To be named in a booking.
    pub id: String,
    /// Until then. A quoted plan does not begin before.
    pub valid_until: Timestamp,
}

/// Another way to carry a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alternative {
    /// The difference, in words.
    pub what: String,
    /// The plan with this change.
    pub plan: Plan,
}

/// Why a request is refused or finishes later than on idle links, and what would help.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// In words.
    pub summary: String,
    /// When it would finish on idle links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unimpeded_finish: Option<Timestamp>,
    /// When it would finish now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Timestamp>,
    /// The link that holds it up most, and its worst stretch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Changes, each of which alone makes a refused request accepted, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// A stretch of a link that holds a request up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Binding {
    /// The link.
    pub link: String,
    /// When, and what is free then.
    pub range: Range,
}

/// Booking a quote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeQuote {
    /// Of the preview.
    pub quote: String,
}

/// Changes of a booking; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModifyRequest {
    /// A file's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A hold's time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// A hold's least rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<u64>,
    /// The highest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bps: Option<u64>,
    /// When it may start; of one that has begun, when it may go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// When a file must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// More of a booking: bytes of a file, or time of a hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// Usage of projects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    /// The currency of prices.
    pub currency: String,
    /// Each project, in all.
    pub projects: Vec<ProjectUsage>,
    /// The bookings that ended last.
    pub records: Vec<UsageRecord>,
}

/// Usage of a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectUsage {
    /// Its name.
    pub project: String,
    /// Bookings that ended.
    pub bookings: u64,
    /// Bytes that they could carry.
    pub used_bytes: u64,
    /// Bytes that they gave back.
    pub returned_bytes: u64,
    /// Their price, in millionths of the currency.
    pub price_micros: u64,
}

/// Usage of a booking that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageRecord {
    /// Its identifier.
    pub id: u64,
    /// The project it belonged to.
    pub project: String,
    /// For people.
    pub label: String,
    /// Its last state.
    pub ending: State,
    /// Bytes that it could carry until then.
    pub used_bytes: u64,
    /// Bytes that it gave back.
    pub returned_bytes: u64,
    /// Its price, in millionths of the currency.
    pub price_micros: u64,
}

/// A decision in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Position in the log.
    pub seq: u64,
    /// When it was decided, in ticks since 1970.
    pub tick: u64,
    /// The order, and who gave it.
    #[schema(value_type = Object)]
    pub order: serde_json::Value,
    /// The decision.
    #[schema(value_type = Object)]
    pub outcome: serde_json::Value,
}

/// State of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// True if it takes bookings.
    pub ready: bool,
    /// True if it stands by while another node leads. What follows is then what this node saw last.
    pub standby: bool,
    /// Where the leader is, if it is another and says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// In words.
    pub status: String,
    /// Position of the log's last record.
    pub seq: u64,
    /// Service time, by which bookings are carried out.
    pub now: Timestamp,
    /// Seconds by which it is ahead of the wall clock.
    pub clock_ahead_seconds: f64,
    /// Open bookings.
    pub bookings: usize,
}

/// Why a request was not done (RFC 9457).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Kind: `urn:longhaul:circuits:` and a word.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This case in words.
    pub detail: String,
    /// Of a refusal for lack of capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
    /// Where the node that leads is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}
