//! The rules of `auto` (docs/rate-control.md), each with the place that takes it out.

use crate::altered::Alteration;

macro_rules! auto {
    ($file:literal) => {
        concat!("crates/core/rate_control/src/", $file)
    };
}

const AUTO: &str = auto!("controllers/auto.rs");
const CRUISE: &str = auto!("controllers/auto/cruise.rs");
const COMPETE: &str = auto!("controllers/auto/compete.rs");
const HOLD_SHARE: &str = auto!("controllers/auto/hold_share.rs");
const STARTUP: &str = auto!("controllers/startup.rs");
const RATES: &str = auto!("estimates/rates.rs");
const TARGET: &str = auto!("estimates/target.rs");

const fn rule(
    name: &'static str,
    file: &'static str,
    what: &'static str,
    with: &'static str,
) -> Alteration {
    Alteration { name, file, what, with }
}

pub(super) const ALL: &[Alteration] = &[
    rule(
        "start-up: packets behind the first train",
        STARTUP,
        "        let Followers::Due(_) = self.followers else { return };\n",
        "        self.followers = Followers::Leaving;\n        if true {\n            return;\n        }\n",
    ),
    rule(
        "start-up: the rate of a train that a short queue cut",
        STARTUP,
        "self.spread_rate(4).filter(|_| drops)",
        "self.spread_rate(4).filter(|_| false)",
    ),
    rule(
        "start-up: few packets of a slow path",
        STARTUP,
        "self.slow_rate(round_trip).filter(|_| drops)",
        "self.slow_rate(round_trip).filter(|_| false)",
    ),
    rule(
        "start-up: a train once more",
        STARTUP,
        "arrived && self.train.length < LAST_TRAIN",
        "false",
    ),
    rule(
        "start-up: growing steps",
        STARTUP,
        "self.growth = (self.growth + self.growth - 100).min(200);",
        "",
    ),
    rule(
        "start-up: a long train fills a queue by itself",
        STARTUP,
        " && self.train.length <= FIRST_TRAIN && ",
        " && ",
    ),
    rule("start-up: others met", AUTO, "!startup.met_others(model) || self.dedicated", "true"),
    rule(
        "cruise: growing steps",
        CRUISE,
        "false => (self.step * 2).clamp(first, most),",
        "false => first,",
    ),
    rule(
        "cruise: steps no further than the line",
        CRUISE,
        "core::mem::replace(&mut self.below_line, room > first);",
        "core::mem::replace(&mut self.below_line, false);",
    ),
    rule(
        "cruise: slow start of few packets",
        CRUISE,
        "if few { (MAX_STEP, SLOW_START) } else",
        "if false { (MAX_STEP, SLOW_START) } else",
    ),
    rule(
        "cruise: steps wait where one brought nothing",
        CRUISE,
        "        self.hold = self.next_hold;\n",
        "",
    ),
    rule(
        "cruise: drains every few seconds",
        CRUISE,
        "let due = now - self.last_drain > self.drain_after;",
        "let due = false;",
    ),
    rule(
        "cruise: drains where more is lost than usual",
        CRUISE,
        "suspicious.then(|| (model.recent_loss_ppm(), model.queue_peak_short()))",
        "false.then(|| (model.recent_loss_ppm(), model.queue_peak_short()))",
    ),
    rule("cruise: short bursts in such a drain", CRUISE, "{ 16 } else { 1 }", "{ 1 } else { 1 }"),
    rule(
        "cruise: five rounds with others' queue",
        CRUISE,
        "self.crowded >= CROWDED_ROUNDS",
        "false",
    ),
    rule(
        "cruise: the rate of a standing queue",
        CRUISE,
        "model.standing().map_or(recent, |standing| standing.min(recent))",
        "recent",
    ),
    rule(
        "cruise: what chance takes is sent on top",
        CRUISE,
        "let random = random * (target + error).clamp(0, target) / target.max(1);",
        "let random = random * 0;",
    ),
    rule("cruise: others' overflow", CRUISE, "} else if overflow {", "} else if false {"),
    rule(
        "cruise: the overflow of who has the whole path is his own",
        CRUISE,
        "if overflow && self.is_own(now, rtt, model)",
        "if overflow && false",
    ),
    rule(
        "cruise: others' overflow only beyond the most that chance takes",
        CRUISE,
        "            && model.lost_by_queue(feedback);",
        "            && model.excess_loss(feedback, 1, u32::MAX);",
    ),
    rule(
        "cruise: the rate of before a slow moment",
        RATES,
        "if !calm || self.queue * 4 > self.queue_target(recent) {",
        "if true {",
    ),
    rule("a path that falls all at once", RATES, "newest < self.recent().scale(3, 4);", "false;"),
    rule(
        "a path that was dark",
        AUTO,
        "if self.silence > 0 && lost > feedback.acked_packets",
        "if false",
    ),
    rule("a silence halves the rate", AUTO, "self.silence = (self.silence + 1).min(10);", ""),
    rule(
        "compete: reclaims",
        COMPETE,
        "Reclaim::Rising(rate.scale(RISE, 100).min(model.capacity()))",
        "Reclaim::Rising(rate)",
    ),
    rule(
        "compete: reclaims later beside others who are known",
        AUTO,
        "self.overflows >= SURE_OVERFLOWS)",
        "false)",
    ),
    rule(
        "compete: a burst is no other flow's",
        COMPETE,
        "self.burst = model.is_burst(self.lost);",
        "",
    ),
    rule(
        "batches of 0.1 ms are no queue",
        TARGET,
        "target.max(self.least_queue(rate))",
        "target.max(self.packet_time())",
    ),
    rule("compete: dip", COMPETE, "self.dip = Some(now);", ""),
    rule(
        "compete: gives way where it has much",
        COMPETE,
        "self.least_queue != Duration::MAX && self.least_queue > target {\n            self.cubic",
        "false {\n            self.cubic",
    ),
    rule(
        "hold share",
        AUTO,
        "(!heeding && (starved || losses_ignored)).then(|| {",
        "(!heeding && starved && losses_ignored && false).then(|| {",
    ),
    rule(
        "hold share: not where others have just made room",
        AUTO,
        "self.made_room.is_some_and(|made_room| now - made_room < ROOM_REMEMBERED)",
        "false",
    ),
    rule(
        "hold share: behind long starvation",
        AUTO,
        "let starved = compete.is_starved(now, round_trip);",
        "let starved = false;",
    ),
    rule(
        "hold share: a start-up of its own",
        HOLD_SHARE,
        "small.then_some((Rate::ZERO, 0))",
        "false.then_some((Rate::ZERO, 0))",
    ),
    rule(
        "longer bursts of a flow alone",
        AUTO,
        "model.burst_alone(now, rate).min(MAX_BURST) / cruise.burst_divisor()",
        "model.burst(rate).min(MAX_BURST) / cruise.burst_divisor()",
    ),
    rule(
        "a queue that was full bounds the target",
        TARGET,
        "self.queue_full.map_or(target, |full| target.min(full / 2))",
        "target",
    ),
    rule(
        "a target that falls with the rate",
        TARGET,
        "Duration::from_micros((TARGET_SCALE / root).min(100_000))",
        "Duration::from_micros(750)",
    ),
];
