//! Prints the packets that each profile loses to its own start (`tests/scenarios/starts.rs`).

#[path = "../tests/scenarios/world.rs"]
mod world;

#[path = "../tests/scenarios/starts.rs"]
mod starts;

use longhaul_rate_control::Profile;
use longhaul_units::Duration;
use starts::{FAST, SLOW, Start};
use world::beliefs;

/// `starts [PROFILE [SEEDS [FROM]]]`: the mean of so many runs. `starts trace PROFILE 5|20|100|slow [MS [SEED]]`:
/// what the sender believes, so often.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| args.get(i).map_or(default, |n| n.parse().expect("a number"));
    if args.first().is_some_and(|arg| arg == "trace") {
        let profile = args.get(1).and_then(|name| Profile::by_name(name)).expect("a profile");
        let start = match args.get(2).map_or("slow", String::as_str) {
            "5" => &FAST[0],
            "20" => &FAST[1],
            "100" => &FAST[2],
            _ => &SLOW,
        };
        let seen = beliefs(Duration::from_millis(number(3, 20)), |path| {
            format!(" {} flight {}", path.allowed().1, path.in_flight())
        });
        let rate = profile.needs_rate.then(|| start.rate());
        println!("{:?}", start.run(profile.name, rate, number(4, 7), Some(seen)));
        return;
    }
    let wanted = args.first().filter(|name| *name != "all");
    println!("percent lost by the queue, seconds; those that need a rate get the link's");
    println!(
        "| profile | 50 MB, 200 Mb/s, 40 ms, 5 % | 20 % | 100 % | 300 kB, 56 kb/s, 300 ms, 10 packets |"
    );
    println!("|---|---|---|---|---|");
    for profile in Profile::all() {
        if wanted.is_some_and(|wanted| wanted != profile.name) || profile.name == "unlimited" {
            continue;
        }
        let cells = FAST
            .iter()
            .chain([&SLOW])
            .map(|start| cell(profile, start, number(1, 3), number(2, 7)));
        println!("| `{}` | {} |", profile.name, cells.collect::<Vec<_>>().join(" | "));
    }
}

fn cell(profile: &Profile, start: &Start, seeds: u64, from: u64) -> String {
    let rate = profile.needs_rate.then(|| start.rate());
    let runs: Vec<_> =
        (from..from + seeds).map(|seed| start.run(profile.name, rate, seed, None)).collect();
    let lost = runs.iter().map(|run| run.lost_ppm()).sum::<u64>() as f64 / seeds as f64 / 1e4;
    let took = runs.iter().map(|run| run.took.map_or(f64::INFINITY, |took| took.as_secs_f64()));
    format!("{lost:.2}, {:.2}", took.sum::<f64>() / seeds as f64)
}
