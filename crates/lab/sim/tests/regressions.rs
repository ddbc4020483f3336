//! Seeds that found something, and what it was. The swarm's draws may change under them; they stay
//! because they are as good as any other and cost milliseconds.

use longhaul_objects::Keeps;
use longhaul_sim::{Scenario, World};

/// Seed, and the fault that it found.
const SEEDS: &[(u64, &str)] = &[
    (6, "stream bytes waited for room for a whole packet: a driver woken for ever at jumbo sizes"),
    (48, "the same with a window between a quarter and a whole packet"),
    (398, "the same on a lane that only acknowledges"),
    (843, "a late original behind its acknowledged copy: underflow in the stream buffer"),
    (1681, "the same at the end of a stream"),
    (1864, "the same with many pieces"),
    (165, "each lane's delivery rate was taken for the path's: auto sank to a fraction per lane"),
    (1677, "the same on a clean path of two lanes without any accident"),
    (2946, "the same with three lanes and a stalled client"),
    (764, "an adversary that is faster than light; now it waits its turn in the queue"),
    (3787, "auto stood in start-up with a window of two packets"),
    (4329, "the same over a control connection much shorter than the path"),
    (310, "a burst of losses that outlasts all probes of an idle timeout is an end, not a fault"),
    (40452314, "the same twice: each run may end so"),
    (40632900, "the same"),
    (270, "a file vanishes while its last group is assembled"),
    (323, "a client speaks on before it hears that it is refused"),
    (12259, "the source loses power behind RESULT: only the sink knows what failed"),
    (703, "power is cut after the end, at a sink that never syncs"),
    (1686, "the same, and an unpublished file comes back"),
    (
        7011434,
        "a directory got its name and its run ended before a sync: the next confirmed what was in it",
    ),
    (7032297, "the same"),
    (7042798, "the same"),
    (7065091, "the same"),
    (7068144, "the same"),
    (7096784, "the same"),
    (
        7023695,
        "reports that all but fit never came back to the oldest numbers: a source waited for ever",
    ),
    (7047327, "the same"),
    (7063208, "the same"),
    (7095711, "the same"),
    (7098310, "the same"),
    (7098376, "the same"),
    (7079995, "the same, until the ledger was full"),
    (7083345, "the same"),
    (7090768, "the same"),
    (7043767, "power is cut behind RESULT at a sink that syncs: what was removed is there again"),
    (7019721, "auto below its limit took a burst larger than the limit's"),
    (7036825, "the same"),
    (7088235, "the same"),
    (7090358, "the same"),
    (7096633, "the same"),
    (1408, "a found file was confirmed without a sync, and its object forgotten before HAVE"),
    (1860, "the same"),
    (8101429, "the same"),
    (2032, "bytes of a file that failed drain slowly from a lane whose path became long"),
    (15715, "a burst of losses that outlasts the wait for rest is ended by the idle timeout"),
    (20066589, "a server whose power is cut behind the last confirmation never comes to rest"),
    (20041172, "a lane that nothing gets through to has its idle timeout"),
    (19883, "size probes left a client nothing to ask with for a RESPONSE that was lost"),
    (
        8101696,
        "the check of pacing knew one burst only, where a jumbo packet is larger than a smaller",
    ),
    (
        30121886,
        "lost packets that may arrive late were kept without bound: `rbudp` far above the path",
    ),
    (30317125, "the same with `fixed`"),
    (30294462, "a route became slow, and the bound on the time of a run did not know of it"),
    (30372413, "the same"),
    (
        32009043,
        "a repair came on another lane than the first try, which kept memory for the rest of it",
    ),
    (
        32027835,
        "a file whose groups were compared and found right was confirmed without a sync of its own",
    ),
    (
        33027121,
        "parts of a nanosecond add up in the pacer, some bytes in all: the bound knows of them",
    ),
    (33031974, "a read batch of the simulation was larger than any of a kernel"),
    (
        41079919,
        "memory of a piece that came on another lane after a repair was promised once more than there was",
    ),
    (41144676, "the same"),
    (41272695, "the same"),
    (
        41172652,
        "several lanes held parts of repaired groups: the simulated sink of a copy had no pool that says no",
    ),
    (
        795456074317,
        "a connection over TCP that was closed waited in the simulation for nothing, and sent no goodbye",
    ),
    (795456080457, "the same at three lanes"),
    (30372419, "one controller for lanes over unlike lines: the slowest of all set the pace"),
    (33031242, "the same"),
    (33047924, "the same"),
    (
        50017551,
        "the check of pacing knew nothing of a booking that begins again after a short pause",
    ),
    (46000346, "a sink's timer ran while an action was under way before which nothing is begun"),
    (46001190, "the same"),
    (46020026, "a circuit that was left still had its part of the connection's limit"),
    (46053918, "the check of pacing, and a lane that goes back and forth: each path has its burst"),
    (41382924, "a TCP connection spun whose pause was for bytes of a file that had failed"),
    (46053073, "a TCP connection whose pause was over spun while the socket had no room"),
    (46069623, "the same"),
    (
        355,
        "SUSPEND came with the packet that showed a server another path, and held the one left only",
    ),
    (615, "a circuit opened, and IP had the whole limit beside it until the next look"),
    (2225, "the check of pacing, and a booking behind a short pause: it begins with a full bucket"),
    (
        1862,
        "a short path lost its first train before anything was measured: FOBS took it for 1 kb/s",
    ),
    (1690, "the same with SABUL"),
    (1534, "the same, and a silence was measured instead"),
    (768, "BBR had little to send for a while, and no full packet fitted its rate for minutes"),
    (3413, "the same, at jumbo packets"),
    (
        221,
        "a network marks all packets, and `scavenger` sends two a round trip: the bound knows of it",
    ),
    (1417, "the same where chance takes some"),
    (6231, "the same with `pcc`"),
    (3666, "the check of pacing: `tsunami` sends two jumbo packets back to back"),
    (60000169, "the same with `sabul`, whose link is the user's limit"),
    (20, "a directory that an earlier run had made, and nobody had synced in its own"),
    (155, "the same"),
    (235, "the same"),
    (421, "the same"),
    (936, "the same"),
    (
        795525110268,
        "a network writes CE over all that is ECN-capable: `bbr` believed it, and stood at 134 kb/s",
    ),
    (795543467885, "a suspend sent on two paths ended at another time on each"),
    (
        795543467905,
        "a given capacity makes bursts smaller than a jumbo packet: the check of pacing",
    ),
    (10549, "`paptc` as printed, with a step for each report, came to a rate of nothing"),
    (795543472765, "the same"),
    (795543476411, "the same"),
    (795543460797, "the check of pacing did not know the burst of `paptc` with jumbo packets"),
    (
        795543478994,
        "nor that of `lambdastream` at exactly the limit, nor of lanes with different MTUs",
    ),
    (77700001791, "reports of a slow source left no room for its hashes"),
    (70002318, "all files failed while some were still read: the check of what counts"),
    (795543467418, "`sabul` went below two packets a round trip where 6 % were lost by chance"),
    (920000006699, "so did `sabul` here"),
    (920000016446, "`fobs-linear` took what it had to send for the link, and stayed at 5 % of it"),
    (
        930000001545,
        "reports of the source kept a stream of 16 bytes a round trip from what the copy needs",
    ),
    (920000019162, "`lambdastream` took what it had to send for the link, likewise"),
    (
        930000003741,
        "the only file failed while the disk wrote a group of it: the check of what is staged at the end",
    ),
    (1100035917, "the same"),
    (1100077898, "directories of long names within each other, to a path longer than any may be"),
    (
        1100014738,
        "a client asked to move a lane did not, for it had not yet seen that the other path lived again",
    ),
    (
        1100038372,
        "`fobs-linear` sent twice as much and judged by what had been sent before that: 510 kb/s of 1.73 Gb/s",
    ),
    (
        1400023067,
        "what found no memory was sent again before the rest of the groups that had taken it, for ever",
    ),
    (
        1400000303,
        "`lambdastream` took the scatter of chance among 16 packets for congestion: 178 kb/s",
    ),
    (1400057304, "an address that never answers was asked for ever whether it is there"),
    (
        1400069028,
        "a pipe that each burst of losses ends, and that begins again: the count of its runs",
    ),
    (1600007992, "`pcc` did not hear of control messages that left: 134 kb/s for a long manifest"),
    (
        1600034978,
        "lanes of one path that had found different path MTUs: bursts went up and down by report",
    ),
    (
        1600044633,
        "`fobs-linear` took a sender that lost reports had held for a full link: 357 kb/s",
    ),
    (1800001247, "messages that the host's stack refused were offered again at once, for ever"),
    (1801001233, "what had arrived of a long round of `rbudp` was remembered to its end"),
    (1900078248, "no lane can go to a path whose link is down: the check of how often one tries"),
    (1900088478, "a booked path under the limit of a host that refuses: the check of its bursts"),
    (
        1900135984,
        "`tsunami` below the user's rate, which limits its bursts then: the check of those",
    ),
    (1900475048, "`paptc` by equation 12 as printed: the bound of its time"),
    (
        1960042924,
        "a group asked for again, which late copies completed: its rest was sent from no memory",
    ),
    (795740808626, "the same, in another world"),
    (1900349630, "one report covered all that arrived in 13 s: the check of what is repeated"),
    (1900189872, "`bbr` at 8 % chance, damaged groups sent four times: the bound of its time"),
    (10141780, "`udt` at 7 %, likewise"),
    (10222565, "TCP joined before the client knew that bytes had arrived, and was refused"),
    (10294365, "`udt` slowed a receiver to 1 kb/s: losses of its own control messages"),
    (31031564, "a path that became too small for long reports, which are not acknowledged"),
    (
        31043815,
        "`fobs`, whose path changed during start-up, steps once a chunk: the bound of its time",
    ),
    (32038193, "the same behind a burst of losses in start-up"),
    (30010502, "a server waited for a client that knew that data had moved to join by TCP"),
    (77005979, "size probes took every packet that a refusing stack was offered"),
    (10070740, "names after a power cut that nobody had wanted synced: the check"),
    (
        10043805,
        "the check of what a refusing stack is offered took a server's paths, and a stack that had taken packets between, for one",
    ),
    (10052232, "the same"),
    (10111775, "the same"),
    (10275841, "the same"),
    (
        40007454,
        "two paths became too small, each end left out another one, and each waited for the other's",
    ),
    (
        41259825,
        "each probe of the base size was lost beside a message that was too large as well, for ever",
    ),
    (
        42067779,
        "a packet below the base was too large for the path, and nothing asked for the path's size",
    ),
    (42072245, "a move that was asked again in packets that came all at once: the check"),
    (42075525, "the same"),
    (42014481, "`fobs` beside a circuit steps once a chunk: the bound of its time"),
    (10167491, "a policer that `rbudp` had emptied took small packets only: taken for a small MTU"),
    (
        43_073_970,
        "fobs-linear climbs from a start-up that chance loss of 7 % ended: the bound had no room for it",
    ),
    (
        43_274_067,
        "messages filled the queue beside each probe of the base size, which was taken not to fit",
    ),
    (
        44_039_319,
        "a packet of a repair's earlier offer was lost, and went again behind the withdrawal of the repair",
    ),
    (45_183_548, "a client learnt that a path lives after it was asked to move there: the check"),
];

/// The same of worlds that are run as they are drawn.
const LATER_SEEDS: &[(u64, &str)] = &[
    (50_055_054, "a group of a file that failed was written behind the removal of the record"),
    (50_075_337, "jitter kept `auto` at a few packets a round trip, where 8 % were lost by chance"),
    (51_148_750, "a client was asked to move to a circuit that it had left: the check"),
    (50_084_116, "a packet that was delayed by 7 s kept messages from being sent for a minute"),
    (
        35,
        "of an earlier copy that was foreign the holes were taken for foreign bytes, after a power cut",
    ),
    (1477, "the same without one"),
];

/// The world as it was drawn while there were four profiles: many seeds found what they did with one of
/// these.
fn with_an_early_profile(seed: u64) -> Scenario {
    let drawn = Scenario::drawn(seed);
    let profile = match (drawn.profile, drawn.rate) {
        (early @ ("auto" | "fixed" | "trc" | "rbudp"), _) => early,
        (_, Some(_)) => "fixed",
        (_, None) => "auto",
    };
    Scenario { profile, parameters: Vec::new(), ..drawn }
}

#[test]
fn seeds_that_failed_once_pass() {
    for &(seed, story) in SEEDS {
        for scenario in [Scenario::drawn(seed), with_an_early_profile(seed)] {
            // They were copies and pipes.
            let scenario = Scenario {
                listing: false,
                hashes: false,
                keeps: Keeps::default(),
                deletes: false,
                copied_before: false,
                ..scenario
            };
            let profile = scenario.profile;
            if let Err(broken) = World::new(scenario, false).run() {
                panic!("{broken} (with {profile}; it once was: {story})");
            }
        }
    }
}

#[test]
fn later_seeds_that_failed_once_pass() {
    for &(seed, story) in LATER_SEEDS {
        if let Err(broken) = World::new(Scenario::drawn(seed), false).run() {
            panic!("{broken} (it once was: {story})");
        }
    }
}

#[test]
fn equal_seeds_make_equal_worlds() {
    let run = |seed| World::new(Scenario::drawn(seed), false).run().unwrap();
    let hashes: Vec<u64> = (1..30)
        .map(|seed| {
            let (first, second) = (run(seed), run(seed));
            assert_eq!(first, second);
            first.trace_hash
        })
        .collect();
    let mut distinct = hashes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), hashes.len());
}
