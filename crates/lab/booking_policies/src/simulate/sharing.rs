//! Packet-switched references without losses: the paper's FIFO, and capped max-min fair sharing.

use super::workload::{Arrival, CHANNEL_BPS, CHANNELS};

/// Delays under the paper's packet-switched system (section 3.3.1), as a fluid: each file enters
/// an infinite first-in-first-out buffer at its Rmax from its arrival on; the link drains it.
///
/// The last bit of a file enters at a + F/Rmax and leaves when what is then ahead of it has: the
/// delay is F/Rmax plus the queue at that instant over the link's rate. Senders never slow down.
pub fn fifo(files: &[Arrival]) -> Vec<f64> {
    let link = f64::from(CHANNELS) * CHANNEL_BPS;
    let mut ends: Vec<(f64, usize)> =
        files.iter().enumerate().map(|(i, f)| (f.at + f.ideal(), i)).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut delays = vec![0.0; files.len()];
    let mut queue = Queue { at: 0.0, input: 0.0, bits: 0.0, link };
    let mut starts = files.iter().peekable();
    for (end, index) in ends {
        while let Some(file) = starts.next_if(|f| f.at <= end) {
            queue.run_to(file.at);
            queue.input += rate(file);
        }
        queue.run_to(end);
        queue.input -= rate(&files[index]);
        delays[index] = end - files[index].at + queue.bits / link;
    }
    delays
}

fn rate(file: &Arrival) -> f64 {
    f64::from(file.max_rate) * CHANNEL_BPS
}

struct Queue {
    at: f64,
    input: f64,
    bits: f64,
    link: f64,
}

impl Queue {
    fn run_to(&mut self, at: f64) {
        self.bits = (self.bits + (self.input - self.link) * (at - self.at)).max(0.0);
        self.at = at;
    }
}

/// Delays when all files in the system share the link at every instant max-min fairly, none above
/// its Rmax: what ideal congestion control would do.
///
/// All files of one Rmax get the same rate at any instant, so each class keeps one counter of
/// bits served per file, and a file is done when the counter has moved by its size.
pub fn fair(files: &[Arrival]) -> Vec<f64> {
    let mut classes: Vec<Class> = Vec::new();
    let mut delays = vec![0.0; files.len()];
    let mut now = 0.0;
    let mut next = 0;
    loop {
        share(&mut classes);
        let done = classes
            .iter()
            .enumerate()
            .filter_map(|(c, class)| Some((now + class.time_to_next()?, c)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let arrival = files.get(next).map(|f| f.at);
        let (at, finished) = match (done, arrival) {
            (None, None) => return delays,
            (Some((at, _)), Some(arrives)) if arrives < at => (arrives, None),
            (None, Some(arrives)) => (arrives, None),
            (Some((at, class)), _) => (at, Some(class)),
        };
        for class in &mut classes {
            class.served += class.rate * (at - now);
        }
        now = at;
        if let Some(class) = finished {
            if let Some((target, index)) = classes[class].waiting.pop() {
                classes[class].served = classes[class].served.max(target);
                delays[index] = now - files[index].at;
            }
        } else {
            let file = &files[next];
            let class = match classes.iter().position(|c| c.max_rate == file.max_rate) {
                Some(class) => class,
                None => {
                    classes.push(Class::new(file.max_rate));
                    classes.len() - 1
                }
            };
            classes[class].add(file.bytes * 8.0, next);
            next += 1;
        }
    }
}

/// The files of one Rmax.
struct Class {
    max_rate: u32,
    /// Bits per second for each file.
    rate: f64,
    /// Bits served to a file that was there all along.
    served: f64,
    /// Value of `served` at which each file is done, descending, and its index.
    waiting: Vec<(f64, usize)>,
}

impl Class {
    fn new(max_rate: u32) -> Self {
        Self { max_rate, rate: 0.0, served: 0.0, waiting: Vec::new() }
    }

    fn add(&mut self, bits: f64, index: usize) {
        let target = self.served + bits;
        let place = self.waiting.partition_point(|(other, _)| *other > target);
        self.waiting.insert(place, (target, index));
    }

    fn time_to_next(&self) -> Option<f64> {
        let (target, _) = self.waiting.last()?;
        Some(((target - self.served) / self.rate).max(0.0))
    }
}

/// Sets the classes' rates: from the lowest Rmax up, each file gets its Rmax or an equal share of
/// what is left, whichever is less.
fn share(classes: &mut [Class]) {
    classes.sort_by_key(|class| class.max_rate);
    let mut left = f64::from(CHANNELS) * CHANNEL_BPS;
    let mut files: usize = classes.iter().map(|class| class.waiting.len()).sum();
    for class in classes {
        let count = class.waiting.len();
        if count == 0 {
            class.rate = 0.0;
            continue;
        }
        class.rate = (f64::from(class.max_rate) * CHANNEL_BPS).min(left / files as f64);
        left -= class.rate * count as f64;
        files -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::workload::arrivals;

    fn file(at: f64, seconds: f64, max_rate: u32) -> Arrival {
        Arrival { at, bytes: seconds * f64::from(max_rate) * CHANNEL_BPS / 8.0, max_rate }
    }

    #[test]
    fn a_file_does_not_wait_on_an_idle_link() {
        let files = [file(0.0, 1.0, 10), file(0.5, 1.0, 5), file(0.7, 2.0, 1)];
        for delays in [fifo(&files), fair(&files)] {
            for (delay, file) in delays.iter().zip(&files) {
                assert!((delay - file.ideal()).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn twenty_files_of_ten_channels_take_twice_as_long() {
        let files = vec![file(0.0, 1.0, 10); 20];
        assert!(fair(&files).iter().all(|d| (d - 2.0).abs() < 1e-6));
        assert!(fifo(&files).iter().all(|d| (d - 2.0).abs() < 1e-6));
    }

    #[test]
    fn small_rates_are_served_in_full_before_the_rest_is_shared() {
        let mut files = vec![file(0.0, 1.0, 10); 12];
        files.push(file(0.0, 1.0, 1));
        let delays = fair(&files);
        assert!((delays[12] - 1.0).abs() < 1e-9);
        assert!(delays[0] > 1.2);
    }

    /// Packet by packet: what the fluid leaves out is bounded by the packets of the other files.
    #[test]
    fn the_fifo_fluid_agrees_with_packets() {
        for seed in 0..3 {
            let files = arrivals(0.9, 300, seed);
            let packet = files.iter().map(|f| f.bytes).fold(f64::MAX, f64::min) / 50.0;
            let mut packets: Vec<(f64, usize)> = Vec::new();
            for (index, file) in files.iter().enumerate() {
                let count = (file.bytes / packet).ceil() as usize;
                let gap = file.ideal() / count as f64;
                packets.extend((1..=count).map(|n| (file.at + gap * n as f64, index)));
            }
            packets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let link = f64::from(CHANNELS) * CHANNEL_BPS;
            let mut free_at: f64 = 0.0;
            let mut delays = vec![0.0; files.len()];
            for (at, index) in packets {
                let count = (files[index].bytes / packet).ceil();
                free_at = free_at.max(at) + files[index].bytes / count * 8.0 / link;
                delays[index] = free_at - files[index].at;
            }
            let slack = packet * 8.0 / link * 64.0;
            for (fluid, packets) in fifo(&files).iter().zip(&delays) {
                assert!((fluid - packets).abs() < slack, "{fluid} {packets}");
            }
        }
    }
}
