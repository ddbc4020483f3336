//! Profile `fobs`: holds the member of the family that fits present conditions.

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::{CHUNK, FobsLinearConfig, FobsStateConfig, OVERLAP, SEGMENT, WHOLE};
use crate::controller::{
    Context, Controller, ControllerConfig, Known, Metrics, Pacing, Sent, Start,
};
use crate::controllers::auto::AutoConfig;
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Parameters};
use crate::path_memory::PathMemory;
use crate::spans::{Span, SpanSizes};
use longhaul_units::MemoryUse;

/// A controller of the family, by the conditions that it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Member {
    /// Nothing special: little is to be lost.
    Linear,
    /// The receiving host loses packets now and then.
    State,
    /// Others use the path.
    Auto,
}

impl Member {
    /// The profile that has it alone.
    const fn profile(self) -> &'static str {
        match self {
            Self::Linear => "fobs-linear",
            Self::State => "fobs-state",
            Self::Auto => "auto",
        }
    }

    fn by_profile(name: &str) -> Option<Self> {
        [Self::Linear, Self::State, Self::Auto].into_iter().find(|member| member.profile() == name)
    }

    fn build(self, now: Instant, packet: u64, link: Option<Rate>, known: Option<Known>) -> Built {
        let config: &dyn ControllerConfig = match self {
            Self::Linear => &FobsLinearConfig,
            Self::State => &FobsStateConfig,
            Self::Auto => &AutoConfig {},
        };
        let parameters = Parameters::of(config.parameters());
        config.build(&Start { now, packet, rate: link, known, parameters })
    }
}

type Built = Box<dyn Controller>;

/// FOBS, sections 1 and 5: a family "where the choice of the controller is based on the
/// characteristics of the end-to-end system", and which can "dynamically switch between control
/// mechanisms based on current system conditions".
#[derive(Debug)]
struct Fobs {
    figures: Figures,
    start: Start,
    member: Member,
    controller: Built,
    /// Earlier transfers called for the first member.
    by_history: bool,
    conditions: Conditions,
    switches: u32,
    /// A chunk is under way that began under another member.
    strange_chunk: bool,
}

/// Values of [`PARAMETERS`].
#[derive(Clone, Copy, Debug)]
struct Figures {
    segment: u64,
    chunk: u64,
    busy: u64,
    crowded: u64,
    patience: u32,
    quiet: u32,
}

impl Figures {
    fn of(chosen: &Parameters) -> Self {
        let figure = |name: &str| chosen.get(name);
        Self {
            segment: figure("segment"),
            chunk: figure("chunk"),
            busy: figure("busy"),
            crowded: figure("crowded"),
            patience: figure("patience") as u32,
            quiet: figure("quiet") as u32,
        }
    }
}

/// State of path and hosts by their segments, and how many segments in a row showed the same.
#[derive(Clone, Copy, Default, Debug)]
struct Conditions {
    /// The user's rate, what start-up found, and the most that came through in a segment of late.
    link: Rate,
    crowded: u32,
    quiet: u32,
}

impl Conditions {
    /// Takes in a segment, of which `delivered` came through while a queue `stood`; gives the member
    /// that it calls for, if another one than `present`.
    fn on_segment(
        &mut self,
        figures: &Figures,
        present: Member,
        segment: &Span,
        (delivered, stood): (Rate, bool),
        switches: u32,
    ) -> Option<Member> {
        self.link = (self.link - self.link.scale(1, FORGET)).max(delivered);
        let all = (segment.acked_packets + segment.lost.total()).max(1);
        let hosts = (segment.lost.socket + segment.lost.host) * WHOLE / all;
        let network = (segment.lost.network() - segment.lost.random) * WHOLE / all;
        let busy = hosts > figures.busy && hosts > network;
        // A flow that is alone gets what the link carries, even where it sends too much. If it gets less,
        // another flow fills the queue, and overflows it.
        let less = delivered < self.link.scale(31, 32);
        let crowded = !busy && less && (network > figures.crowded || stood);
        self.crowded = if crowded { self.crowded + 1 } else { 0 };
        let calm = !busy && !crowded && (present == Member::State || network <= figures.crowded);
        self.quiet = if calm { self.quiet + 1 } else { 0 };
        // Who was called back often is given up more slowly.
        let enough = figures.quiet << switches.min(MOST_DOUBLINGS);
        let member = if busy {
            Member::State
        } else if self.crowded >= figures.patience {
            Member::Auto
        } else if self.quiet >= enough {
            Member::Linear
        } else {
            present
        };
        (member != present).then_some(member)
    }
}

impl Fobs {
    fn new(start: &Start) -> Self {
        let member = Member::Linear;
        Self {
            figures: Figures::of(&start.parameters),
            start: start.clone(),
            member,
            controller: member.build(start.now, start.packet, start.rate, start.known),
            by_history: false,
            conditions: Conditions {
                link: start.rate.unwrap_or_default(),
                ..Conditions::default()
            },
            switches: 0,
            strange_chunk: false,
        }
    }

    fn is_starting(&self) -> bool {
        self.controller.metrics().bound == Bottleneck::StartUp
    }

    /// Goes on at the present rate: what is in flight, estimates and round trips are the path's.
    fn switch(&mut self, cx: &Context<'_>, member: Member) {
        let known = Known { rate: self.controller.pacing().rate, round_trip: cx.rtt.smoothed() };
        let link = self.conditions.link.max(known.rate);
        self.controller = member.build(cx.now, cx.estimates.packet(), Some(link), Some(known));
        self.member = member;
        self.switches = self.switches.saturating_add(1);
        self.strange_chunk = true;
        (self.conditions.crowded, self.conditions.quiet) = (0, 0);
    }
}

impl Controller for Fobs {
    fn name(&self) -> &'static str {
        "fobs"
    }

    /// Begins with the member that brought most on this path before; conditions call for another one
    /// soon where they are no longer those.
    fn recall(&mut self, memory: &PathMemory) {
        let best = memory.best_profile.and_then(Member::by_profile);
        if let Some(member) = best {
            let Start { now, packet, rate, known, .. } = self.start;
            (self.member, self.by_history) = (member, true);
            self.controller = member.build(now, packet, rate, known);
        }
        self.controller.recall(memory);
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        self.controller.memory_use().or(self.by_history.then_some(MemoryUse::Chosen))
    }

    fn member(&self) -> Option<&'static str> {
        Some(self.member.profile())
    }

    fn on_sent(&mut self, cx: &mut Context<'_>, sent: &Sent) {
        self.controller.on_sent(cx, sent);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        let starting = self.is_starting();
        let tried = self.controller.pacing().rate;
        self.controller.on_feedback(cx, feedback);
        if starting && !self.is_starting() {
            // As the member itself does.
            self.conditions.link = self.conditions.link.max(cx.estimates.recent().min(tried));
        }
    }

    fn spans(&self) -> SpanSizes {
        SpanSizes { segment: Some(self.figures.segment), chunk: Some(self.figures.chunk) }
    }

    fn on_segment(&mut self, cx: &mut Context<'_>, segment: &Span) {
        self.controller.on_segment(cx, segment);
        if self.is_starting() {
            return;
        }
        let bytes = segment.acked_packets.saturating_mul(cx.estimates.packet());
        let delivered = Rate::from_bytes_over(bytes, segment.took.max(MICROSECOND));
        let stood = cx.estimates.queue_peak_short() > cx.estimates.queue_target(delivered) * 2;
        let outcome = (delivered, stood);
        let Self { figures, member, switches, .. } = *self;
        let next = self.conditions.on_segment(&figures, member, segment, outcome, switches);
        if let Some(next) = next {
            self.switch(cx, next);
        }
    }

    fn on_chunk(&mut self, cx: &mut Context<'_>, chunk: &Span) {
        if !core::mem::take(&mut self.strange_chunk) {
            self.controller.on_chunk(cx, chunk);
        }
    }

    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, in_flight: u64) {
        self.controller.on_probe_timeout(cx, in_flight);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.controller.next_timeout()
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.controller.on_timeout(cx);
    }

    fn pacing(&self) -> Pacing {
        self.controller.pacing()
    }

    fn metrics(&self) -> Metrics {
        let Metrics { bound, .. } = self.controller.metrics();
        let best_before = self.by_history && self.switches == 0;
        let state = match self.member {
            _ if bound == Bottleneck::StartUp => "start-up",
            Member::Linear if best_before => "linear: best before",
            Member::State if best_before => "state: best before",
            Member::Auto if best_before => "auto: best before",
            Member::Linear => "linear: quiet path",
            Member::State => "state: busy receiver",
            Member::Auto => "auto: shared path",
        };
        Metrics { state, bound }
    }
}

/// Makes the controller of `fobs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FobsConfig;

impl ControllerConfig for FobsConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Fobs::new(start))
    }
}

/// Segments after which the most that came through is forgotten.
const FORGET: u32 = 1_024;
const MOST_DOUBLINGS: u32 = 5;
const MICROSECOND: Duration = Duration::from_micros(1);

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 7] = [
    SEGMENT,
    CHUNK,
    OVERLAP,
    Parameter::ppm("busy", "loss in the receiving host above which it is busy", (0, 1_000, WHOLE)),
    Parameter::ppm(
        "crowded",
        "loss by congestion above which the path may be shared",
        (0, 1_000, WHOLE),
    ),
    Parameter::count("patience", "segments in a row that prove that", (1, 3, 1_000)),
    Parameter::count("quiet", "segments in a row that prove neither", (1, 16, 1_000)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Losses;

    const LINK: Rate = Rate::from_mbps(100);

    fn segment(congestion: u64, socket: u64) -> Span {
        let lost = Losses { congestion, socket, ..Losses::default() };
        Span { acked_packets: 10_000 - congestion - socket, lost, ..Span::default() }
    }

    struct Bench {
        conditions: Conditions,
        present: Member,
        switches: u32,
    }

    impl Bench {
        fn new() -> Self {
            let conditions = Conditions { link: LINK, ..Conditions::default() };
            Self { conditions, present: Member::Linear, switches: 0 }
        }

        /// Number of such segments until another member is called for, of at most 2,000.
        fn until(&mut self, segment: Span, delivered: Rate, stood: bool) -> Option<(Member, u32)> {
            let figures = Figures::of(&Parameters::of(&PARAMETERS));
            for count in 1..2_000 {
                let outcome = (delivered, stood);
                let conditions = &mut self.conditions;
                let (present, switches) = (self.present, self.switches);
                if let Some(next) =
                    conditions.on_segment(&figures, present, &segment, outcome, switches)
                {
                    (self.present, self.switches) = (next, switches + 1);
                    *conditions = Conditions { link: LINK, ..Conditions::default() };
                    return Some((next, count));
                }
            }
            None
        }
    }

    #[test]
    fn it_begins_with_what_brought_most_before() {
        let parameters = Parameters::of(&PARAMETERS);
        let now = Instant::from_nanos(1);
        let start = Start { now, packet: 1_500, rate: Some(LINK), known: None, parameters };
        let memory = |best_profile| PathMemory {
            band: (LINK, LINK),
            round_trip: Duration::from_millis(20),
            chance_ppm: 0,
            packet: 1_500,
            age: Duration::ZERO,
            best_profile,
        };
        let begun = |best| {
            let mut fobs = Fobs::new(&start);
            fobs.recall(&memory(best));
            (fobs.member(), fobs.metrics().state, fobs.memory_use())
        };
        let chosen = Some(MemoryUse::Chosen);
        let state = (Some("fobs-state"), "state: best before", chosen);
        assert_eq!(begun(Some("fobs-state")), state);
        assert_eq!(begun(Some("auto")).0, Some("auto"));
        assert_eq!(begun(Some("fobs-linear")).2, chosen);
        let linear = (Some("fobs-linear"), "linear: quiet path", None);
        assert_eq!(begun(Some("udt")), linear, "that is no member");
        assert_eq!(begun(None), linear);
    }

    #[test]
    fn a_busy_receiver_calls_for_the_state_based_one_at_once() {
        let mut bench = Bench::new();
        assert_eq!(bench.until(segment(0, 100), LINK, false), Some((Member::State, 1)));
        assert_eq!(bench.until(segment(0, 0), LINK, false), Some((Member::Linear, 32)));
        assert_eq!(bench.until(segment(200, 100), LINK, false), None, "the path lost more");
    }

    #[test]
    fn others_on_the_path_call_for_auto_and_the_rest_of_the_link_calls_back() {
        let half = LINK.scale(1, 2);
        let mut bench = Bench::new();
        assert_eq!(bench.until(segment(480, 0), LINK, true), None, "alone, with too much");
        assert_eq!(bench.until(segment(100, 0), half, false), Some((Member::Auto, 3)));
        assert_eq!(bench.until(segment(100, 0), half, true).map(|(member, _)| member), None);
        bench.conditions.link = LINK;
        assert_eq!(bench.until(segment(0, 0), LINK, false), Some((Member::Linear, 32)));
        assert_eq!(bench.until(segment(0, 0), half, true), Some((Member::Auto, 3)), "by the queue");
        assert_eq!(bench.until(segment(0, 0), LINK, false), Some((Member::Linear, 128)));
    }
}
