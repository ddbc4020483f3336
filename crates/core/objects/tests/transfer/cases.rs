//! Transfers of random trees, with one kind of fault and with all.

use longhaul_objects::Fsync;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::tree::{below, small_files, tree};
use crate::world::{Faults, World};

fn transfers(seeds: core::ops::Range<u64>, faults: Faults) {
    for seed in seeds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
        let items = tree(&mut rng, 30, 8 << 20);
        World::new(seed, items, faults).run();
    }
}

#[test]
fn without_faults() {
    transfers(0..30, Faults::default());
}

#[test]
fn with_corruption_and_duplicates() {
    transfers(100..130, Faults { corrupt: 4, duplicate: 5, ..Faults::default() });
}

#[test]
fn with_unreadable_files() {
    transfers(200..230, Faults { unreadable: 8, duplicate: 9, ..Faults::default() });
}

#[test]
fn with_a_full_disk() {
    transfers(300..330, Faults { space: Some(4 << 20), corrupt: 30, ..Faults::default() });
}

#[test]
fn with_power_cuts() {
    transfers(400..450, Faults { crash: 600, ..Faults::default() });
}

#[test]
fn with_kills() {
    transfers(500..530, Faults { kill: 600, ..Faults::default() });
}

#[test]
fn with_files_that_are_altered_between_runs() {
    let faults = Faults { tamper: 1, kill: 600, crash: 1200, ..Faults::default() };
    transfers(1000..1030, faults);
    for seed in 1100..1140 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
        World::new(seed, small_files(&mut rng), faults).run();
    }
}

#[test]
fn with_many_small_files_kills_and_power_cuts() {
    for seed in 900..960 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
        let items = small_files(&mut rng);
        let faults = Faults { kill: 800, crash: 800, intruder: 2000, ..Faults::default() };
        World::new(seed, items, faults).run();
    }
}

#[test]
fn with_directories_that_somebody_else_makes_meanwhile() {
    transfers(560..590, Faults { intruder: 100, unreadable: 20, ..Faults::default() });
    transfers(800..830, Faults { intruder: 100, kill: 900, crash: 900, ..Faults::default() });
}

#[test]
fn with_runs_of_somebody_else_under_the_same_identities() {
    let faults = Faults { impostor: 2, forgets: 3, kill: 700, crash: 900, ..Faults::default() };
    transfers(1200..1260, faults);
    for seed in 1300..1340 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
        World::new(seed, small_files(&mut rng), faults).run();
    }
    transfers(1400..1430, Faults { unreadable: 40, intruder: 200, tamper: 2, ..faults });
}

#[test]
fn with_everything() {
    let faults = Faults {
        impostor: 3,
        forgets: 4,
        corrupt: 20,
        duplicate: 20,
        unreadable: 60,
        crash: 1500,
        kill: 1500,
        tamper: 2,
        intruder: 300,
        space: Some(60 << 20),
    };
    transfers(600..660, faults);
}

#[test]
fn without_syncing() {
    for seed in 700..730 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let items = tree(&mut rng, 30, 8 << 20);
        // A power cut may leave anything under a name that was never synced; what a later run
        // says of it must be right all the same, so files that were not claimed are copied again.
        let kill = below(&mut rng, 2) * 600;
        let mut world = World::new(seed, items, Faults { kill, ..Faults::default() });
        world.fsync = Fsync::Never { boot: [1; 16] };
        world.start();
        if kill == 0 {
            for _ in 0..below(&mut rng, 4000) {
                world.step();
            }
            world.crash();
        }
        world.run();
    }
}
