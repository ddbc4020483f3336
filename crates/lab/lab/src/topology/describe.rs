//! Links in words.

use std::time::Duration;

use super::{Conditions, LineKind, LinkSpec};

impl LinkSpec {
    /// Describes the link in a line: `100 ms round trip; 1.00 Gb/s, queue 12.5 MB, 0.1% lost`.
    pub fn describe(&self) -> String {
        let [forward, backward] =
            [&self.forward, &self.backward].map(|own| self.words(&self.both.clone().overlaid(own)));
        let rtt = milliseconds(self.rtt());
        match (forward == backward, forward.is_empty()) {
            (true, true) => format!("{rtt} round trip"),
            (true, false) => format!("{rtt} round trip; {forward}"),
            (false, _) => {
                let [there, back] = [forward, backward]
                    .map(|way| if way.is_empty() { "nothing else".into() } else { way });
                let [from, to] = &self.between;
                format!("{rtt} round trip; from {from} to {to}: {there}; back: {back}")
            }
        }
    }

    /// Everything but the delay.
    fn words(&self, conditions: &Conditions) -> String {
        let mut words: Vec<String> = Vec::new();
        if let Some(rate) = conditions.rate {
            let changes = conditions.rates.as_ref().map_or(0, Vec::len);
            let by = match self.line {
                LineKind::Emulated => "",
                LineKind::Htb => " by HTB",
            };
            words.push(match changes {
                0 => format!("{rate}{by}"),
                1 => format!("{rate}{by} with one change"),
                _ => format!("{rate}{by} with {changes} changes"),
            });
        }
        words.extend(conditions.queue.map(|queue| format!("queue {queue}")));
        words.extend(conditions.ecn.map(|marking| format!("marks above {}", marking.from)));
        words.extend(conditions.policer.map(|spec| format!("policed at {}", spec.rate)));
        words.extend(conditions.swallows_udp.map(|at| match at.is_zero() {
            true => "UDP swallowed".into(),
            false => format!("UDP swallowed from {} on", milliseconds(at)),
        }));
        words.extend(conditions.path_mtu.map(|mtu| format!("path MTU {mtu}")));
        words.extend(conditions.loss.map(|loss| format!("{loss} lost")));
        words.extend(
            conditions
                .burst_loss
                .map(|burst| format!("bursts of {} lost from {}", burst.mean, burst.begin)),
        );
        words.extend(
            conditions.jitter.map(|jitter| format!("up to {} of jitter", milliseconds(jitter.max))),
        );
        words.extend(conditions.reorder.map(|reorder| {
            format!("{} held back {}", reorder.probability, milliseconds(reorder.by))
        }));
        words.extend(
            conditions.duplicate.map(|duplicate| format!("{} twice", duplicate.probability)),
        );
        words.extend(conditions.corrupt.map(|corrupt| format!("{corrupt} corrupted")));
        let outages = conditions.outages.as_ref().map_or(0, Vec::len);
        if outages > 0 {
            words.push(format!("{outages} outages"));
        }
        words.join(", ")
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_nanos() as f64 / 1e6)
}
