//! Raw signals as text: the format is in docs/host-awareness.md, "Traces".

use std::fmt::Write as _;

use longhaul_units::Instant;

use super::Watch;
use super::sentinel::Sample;

pub(super) fn text(wanted: &Watch, samples: &[Sample], spells: &[[Instant; 2]]) -> String {
    let start = samples[0].at;
    let micros = |time: Instant| time.since(start).as_micros();
    let Watch { rate, buffer, .. } = wanted;
    let mut text =
        format!("# longhaul host trace 3\n# rate_bps {} buffer {buffer}\n", rate.as_bps());
    for [came, left] in spells {
        let _ = writeln!(text, "load\t{}\t{}", micros(*came), micros(*left));
    }
    for sample in samples {
        for switch in &sample.switches {
            let what = match (switch.on, switch.preempted) {
                (true, _) => "on",
                (false, true) => "preempted",
                (false, false) => "slept",
            };
            let _ = writeln!(text, "{what}\t{}", micros(switch.at));
        }
        let Sample { age, gap, outside, own, queued, limit, drops, pressure, bytes, .. } = sample;
        let times = [*age, *gap, outside[0], outside[1], own[0], own[1], *pressure];
        let times = times.map(|time| time.as_micros().to_string()).join("\t");
        let Sample { at, level, busy_percent, left, left_until, .. } = sample;
        let _ = writeln!(
            text,
            "look\t{}\t{times}\t{queued}\t{limit}\t{drops}\t{bytes}\t{level}\t{busy_percent:.0}\t{}\t{}",
            micros(*at),
            left.as_micros(),
            micros(*left_until)
        );
    }
    text
}
