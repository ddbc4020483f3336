//! Paths in the words of `tc`, for the kernel's own emulation: netem, tc-netem(8).
//!
//! One netem holds delay, jitter, loss, copies, wrong bits and the rate with its queue. Packets that are
//! held back have a second one inside: netem can only let packets overtake all others, so there all
//! but those overtake a delay.

use std::time::Duration;

use longhaul_pathsim::{JitterShape, PathConfig, Probability};
use longhaul_units::Rate;

/// Arguments of `tc qdisc add dev DEVICE`, a command each, for one direction of a link whose packets
/// have at most `mtu` bytes.
///
/// # Errors
/// What netem cannot do, or would do otherwise.
pub(crate) fn commands(path: &PathConfig, mtu: u32) -> Result<Vec<Vec<String>>, &'static str> {
    let jitter = path.jitter.map_or(Ok(Default::default()), |jitter| match jitter.shape {
        // In order only where there is a rate: the line cannot be overtaken.
        JitterShape::Uniform { max } if path.bottleneck.is_some() => Ok(max),
        JitterShape::Uniform { .. } => Err("jitter without a rate (it would change the order)"),
        _ => Err("jitter that is not even"),
    })?;
    let mut words = vec!["root".to_owned(), "handle".into(), "1:".into(), "netem".into()];
    let mut say = |text: String| words.extend(text.split(' ').map(str::to_owned));
    let mut limit = UNLIMITED;
    let mut rate = None;
    if let Some(bottleneck) = &path.bottleneck {
        if !bottleneck.rate.changes.is_empty() {
            return Err("rates that change");
        }
        if bottleneck.ecn.is_some() {
            return Err("congestion marks for a queue");
        }
        // It counts packets, and those under way like those in the queue.
        let under_way = bottleneck.rate.initial.bytes_in(path.delay + jitter);
        let bytes = under_way.saturating_add(bottleneck.queue.get());
        limit = bytes.div_ceil(mtu.into()).clamp(1, UNLIMITED);
        rate = Some(bottleneck.rate.initial);
    }
    say(format!("limit {limit}"));
    match jitter.is_zero() {
        true => say(format!("delay {}", time(path.delay))),
        // Around a mean, where ours adds to the least.
        false => {
            let half = jitter / 2;
            say(format!("delay {} {}", time(path.delay + half), time(half)));
        }
    }
    match (path.burst_loss, path.loss) {
        (None, Probability::ZERO) => {}
        (None, loss) => say(format!("loss random {}", percent(loss))),
        // What it loses at random between bursts is the loss of the good state.
        (Some(burst), loss) => say(format!(
            "loss gemodel {} {} {} {}",
            percent(burst.enter_bad),
            percent(burst.leave_bad),
            percent(burst.loss_bad),
            percent(if burst.loss_good == Probability::ZERO { loss } else { burst.loss_good }),
        )),
    }
    match path.duplication {
        None => {}
        Some(copies) if !copies.lag.is_zero() => return Err("copies that come later"),
        Some(_) if path.reordering.is_some() => return Err("copies and another order at once"),
        Some(copies) => say(format!("duplicate {}", percent(copies.probability))),
    }
    if path.corruption != Probability::ZERO {
        say(format!("corrupt {}", percent(path.corruption)));
    }
    if let Some(rate) = rate {
        say(format!("rate {} {FRAME}", bits(rate)));
    }
    for (is_there, what) in [
        (path.firewall != Default::default(), "a firewall"),
        (path.policer.is_some(), "a policer"),
        (path.mtu.is_some(), "a smaller path MTU"),
        (!path.scripted_loss.is_empty(), "losses by number"),
        (path.outages != Default::default(), "outages"),
        (path.rebindings != Default::default(), "address translation"),
    ] {
        if is_there {
            return Err(what);
        }
    }
    let mut commands = vec![words];
    if let Some(late) = path.reordering {
        let (extra, others) = (time(late.extra), percent(late.probability.complement()));
        let inner = format!(
            "parent 1:1 handle 2: netem limit {UNLIMITED} delay {extra} reorder {others} gap 1"
        );
        commands.push(inner.split(' ').map(str::to_owned).collect());
    }
    Ok(commands)
}

/// Whole microseconds are the shortest that every `tc` reads.
fn time(time: Duration) -> String {
    format!("{}us", time.as_micros())
}

/// To a billionth, which is as exact as netem is.
fn percent(part: Probability) -> String {
    let ppb = part.as_ppb();
    let text = format!("{}.{:07}", ppb / 10_000_000, ppb % 10_000_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

fn bits(rate: Rate) -> String {
    format!("{}bit", rate.as_bps())
}

/// Packets: more than any memory holds.
const UNLIMITED: u64 = 10_000_000;
/// The Ethernet header is no part of what the rate counts.
const FRAME: &str = "-14";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Conditions, LinkSpec};

    /// The commands forward and backward, or why there are none.
    fn of(both: &str, forward: &str) -> Result<[Vec<String>; 2], &'static str> {
        let conditions = |text: &str| toml::from_str::<Conditions>(text).unwrap();
        let link =
            LinkSpec { forward: conditions(forward), ..LinkSpec::between_hosts(conditions(both)) };
        let paths = link.paths().unwrap();
        let one = |path: &PathConfig| {
            commands(path, link.mtu).map(|all| all.iter().map(|one| one.join(" ")).collect())
        };
        Ok([one(&paths.forward)?, one(&paths.backward)?])
    }

    fn forward(conditions: &str) -> String {
        let [forward, backward] = of(conditions, "").unwrap();
        assert_eq!(forward, backward, "both ways are alike");
        forward.join("; ")
    }

    #[test]
    fn conditions_are_put_in_the_words_of_tc() {
        for (conditions, expected) in [
            ("", "limit 10000000 delay 0us"),
            (r#"delay = "25ms""#, "limit 10000000 delay 25000us"),
            (
                // A round trip's worth waits, half as much is under way: 5,000,000 and 2,500,000 bytes.
                "delay = \"25ms\"\nrate = \"800Mbps\"",
                "limit 5000 delay 25000us rate 800000000bit -14",
            ),
            (
                "delay = \"25ms\"\nrate = \"800Mbps\"\nqueue = \"150kB\"",
                "limit 1767 delay 25000us rate 800000000bit -14",
            ),
            (
                "delay = \"10ms\"\nrate = \"1Gbps\"\nqueue = \"1500B\"\njitter = { max = \"2ms\" }",
                "limit 1001 delay 11000us 1000us rate 1000000000bit -14",
            ),
            (r#"loss = "0.1%""#, "limit 10000000 delay 0us loss random 0.1%"),
            (r#"loss = "1ppm""#, "limit 10000000 delay 0us loss random 0.0001%"),
            (
                r#"burst_loss = { begin = "0.01%", mean = 20 }"#,
                "limit 10000000 delay 0us loss gemodel 0.01% 5% 100% 0%",
            ),
            (
                "loss = \"0.1%\"\nburst_loss = { begin = \"0.01%\", mean = 20 }",
                "limit 10000000 delay 0us loss gemodel 0.01% 5% 100% 0.1%",
            ),
            (
                "duplicate = { probability = \"1%\", by = \"0s\" }\ncorrupt = \"2%\"",
                "limit 10000000 delay 0us duplicate 1% corrupt 2%",
            ),
            (
                r#"reorder = { probability = "1%", by = "3ms" }"#,
                "limit 10000000 delay 0us; parent 1:1 handle 2: netem limit 10000000 delay \
                 3000us reorder 99% gap 1",
            ),
        ] {
            assert_eq!(forward(conditions), format!("root handle 1: netem {expected}"));
        }
    }

    #[test]
    fn each_way_has_its_own() {
        let [forward, backward] = of("delay = \"1ms\"", "loss = \"1%\"").unwrap();
        assert_eq!(forward, ["root handle 1: netem limit 10000000 delay 1000us loss random 1%"]);
        assert_eq!(backward, ["root handle 1: netem limit 10000000 delay 1000us"]);
    }

    #[test]
    fn conditions_that_netem_would_do_otherwise_are_refused() {
        for (conditions, expected) in [
            ("jitter = { max = \"1ms\" }", "jitter without a rate"),
            ("rate = \"1Gbps\"\nrates = [{ at = \"1s\", rate = \"2Gbps\" }]", "rates that change"),
            ("rate = \"1Gbps\"\necn = { from = \"10kB\" }", "congestion marks"),
            ("swallows_udp = \"0s\"", "a firewall"),
            ("policer = { rate = \"1Gbps\", burst = \"10kB\" }", "a policer"),
            ("path_mtu = 1400", "a smaller path MTU"),
            ("outages = [{ at = \"1s\", length = \"1s\" }]", "outages"),
            ("duplicate = { probability = \"1%\", by = \"1ms\" }", "copies that come later"),
            (
                "duplicate = { probability = \"1%\", by = \"0s\" }\n\
                 reorder = { probability = \"1%\", by = \"3ms\" }",
                "copies and another order",
            ),
        ] {
            let refused = of(conditions, "").unwrap_err();
            assert!(refused.starts_with(expected), "{conditions}: {refused}");
        }
    }
}
