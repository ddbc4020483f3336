//! Raw signals as a file: the format is in docs/host-awareness.md, "Traces".

use std::fs::{File, create_dir_all};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use longhaul_lab::load::Work;

use crate::Cell;
use crate::judge::Episode;
use crate::sentinel::Sample;

pub fn write(
    folder: &Path,
    cell: &Cell,
    work: Work,
    samples: &[Sample],
    episodes: &[Episode],
) -> io::Result<()> {
    create_dir_all(folder)?;
    let Cell { rate, buffer, competitors } = cell;
    let mbps = rate.as_bps() / 1_000_000;
    let name = format!("{}-{competitors}-{mbps}mbps-{buffer}.trace", work.name());
    let mut to = BufWriter::new(File::create(folder.join(name))?);
    let start = samples[0].at;
    let micros = |time: longhaul_units::Instant| (time - start).as_micros();
    writeln!(to, "# longhaul host trace 1")?;
    writeln!(
        to,
        "# rate_bps {} buffer {buffer} work {} count {competitors}",
        rate.as_bps(),
        work.name()
    )?;
    for episode in episodes {
        writeln!(to, "load\t{}\t{}", micros(episode.came), micros(episode.left))?;
    }
    for sample in samples {
        for switch in &sample.switches {
            let what = match (switch.on, switch.preempted) {
                (true, _) => "on",
                (false, true) => "preempted",
                (false, false) => "slept",
            };
            writeln!(to, "{what}\t{}", micros(switch.at))?;
        }
        let Sample { age, gap, outside, own, queued, limit, drops, pressure, bytes, .. } = sample;
        let times = [*age, *gap, outside[0], outside[1], own[0], own[1], *pressure];
        let times = times.map(|time| time.as_micros().to_string()).join("\t");
        writeln!(to, "look\t{}\t{times}\t{queued}\t{limit}\t{drops}\t{bytes}", micros(sample.at))?;
    }
    to.flush()
}
