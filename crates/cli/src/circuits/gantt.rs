//! Rates over time as a row of blocks.

use jiff::Timestamp;
use longhaul_circuits::api::Range;

/// The time that a row shows, and how wide it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) width: usize,
}

/// A row: the mean rate of each cell as a part of `top`, in eighths; a dot where there is nothing.
pub(super) fn bar(ranges: &[Range], window: Window, top: u64) -> String {
    let (from, to) = (window.from.as_nanosecond(), window.to.as_nanosecond());
    let span = (to - from).max(1);
    let width = window.width as i128;
    (0..width)
        .map(|cell| {
            let (start, end) = (from + span * cell / width, from + span * (cell + 1) / width);
            let length = (end - start).max(1);
            let area: i128 = ranges
                .iter()
                .map(|range| {
                    let begin = range.start.as_nanosecond().max(start);
                    let finish = range.end.as_nanosecond().min(end);
                    (finish - begin).max(0) * i128::from(range.rate_bps)
                })
                .sum();
            match (area * 8).div_euclid(length * i128::from(top.max(1))) {
                0 if area == 0 => '·',
                eighths => BLOCKS[(eighths as usize).clamp(1, 8) - 1],
            }
        })
        .collect()
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Cells of a row.
pub(super) const WIDTH: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_heights_and_time_is_width() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let range = |start, end, rate_bps| Range { start: at(start), end: at(end), rate_bps };
        let window = Window { from: at(0), to: at(8), width: 8 };
        let ranges = [range(1, 3, 50), range(3, 4, 100), range(5, 6, 1), range(7, 20, 100)];
        assert_eq!(bar(&ranges, window, 100), "·▄▄█·▁·█");
        assert_eq!(bar(&[], Window { from: at(5), to: at(5), width: 3 }, 0), "···");
    }
}
