//! Why each packet was lost, by those who know, beside the cause that the sender tells.

use std::collections::{BTreeMap, HashMap};

use longhaul_lab::Loss;
use longhaul_peers::{PacketId, ReportedLoss};

use crate::record::LossCauses;

/// A packet of Longhaul's that the path lost, and why; nothing for one of others.
pub(super) fn on_path(loss: &Loss) -> Option<(PacketId, String)> {
    Some((PacketId::of(&loss.head)?, loss.reason.to_string()))
}

/// Losses at the hosts of a run, by the counters of their kernels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hosts {
    /// The receiving host lost some.
    pub(super) receiver: bool,
    /// The sending host's own device had no room for some.
    pub(super) sender: bool,
}

impl Hosts {
    /// Taker of a packet that the path did not lose. The sending host knows what it refused itself.
    fn taker(self, reported: &str) -> &'static str {
        match (self.receiver, self.sender) {
            (_, true) if reported == SENDER => SENDER,
            (true, _) => RECEIVER,
            (false, true) => SENDER,
            (false, false) => ARRIVED,
        }
    }
}

/// Joins what the path lost with the losses that the sender `reported`, packet by packet. What the
/// path did not lose was lost in one of the `hosts`, if these lost any, and else has arrived.
pub(super) fn joined(
    path: impl Iterator<Item = (PacketId, String)>,
    reported: &[ReportedLoss],
    hosts: Hosts,
) -> LossCauses {
    let mut taken: HashMap<PacketId, String> =
        path.map(|(packet, reason)| (packet, taker(&reason))).collect();
    let mut causes = LossCauses::default();
    let mut last: BTreeMap<u16, u64> = BTreeMap::new();
    for loss in reported {
        let truth = taken.remove(&loss.packet);
        let truth = truth.unwrap_or_else(|| hosts.taker(&loss.cause).to_owned());
        causes.add(truth, loss.cause.clone());
        let last = last.entry(loss.packet.lane).or_default();
        *last = loss.packet.number.max(*last);
    }
    // Of those behind the last one that it found the sender does not know yet.
    let found =
        |packet: &PacketId| last.get(&packet.lane).is_some_and(|last| packet.number < *last);
    for (_, truth) in taken.into_iter().filter(|(packet, _)| found(packet)) {
        causes.add(truth, UNREPORTED.to_owned());
    }
    causes
}

/// In the words of the sender, where it has one.
fn taker(reason: &str) -> String {
    match reason {
        "burst" | "random" => "random",
        "queue" | "policer" => "congestion",
        other => other,
    }
    .to_owned()
}

const RECEIVER: &str = "receiver";
const SENDER: &str = "sender";
const ARRIVED: &str = "arrived";
const UNREPORTED: &str = "untold";

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64) -> PacketId {
        PacketId { lane: 0, number }
    }

    #[test]
    fn each_packet_is_joined_with_what_took_it() {
        let path = [(1, "random"), (2, "queue"), (3, "burst"), (4, "queue"), (99, "random")];
        let path = path.map(|(number, reason)| (packet(number), reason.to_owned()));
        let reported = [(1, "random"), (2, "random"), (3, "random"), (7, "socket")];
        let reported = reported
            .map(|(number, cause)| ReportedLoss { packet: packet(number), cause: cause.into() });
        let lost = |receiver, sender| Hosts { receiver, sender };
        let causes = joined(path.clone().into_iter(), &reported, lost(true, false));
        assert_eq!((causes.taken("random"), causes.recall("random")), (2, Some(1.0)));
        // One was reported as chance, the other not at all.
        assert_eq!((causes.taken("congestion"), causes.recall("congestion")), (2, Some(0.0)));
        assert_eq!((causes.taken("receiver"), causes.precision("receiver")), (1, Some(1.0)));
        let causes = joined(path.clone().into_iter(), &reported, lost(false, false));
        assert_eq!((causes.taken("receiver"), causes.taken("arrived")), (0, 1));
        // Its own host's refusals a sender knows; what else neither path nor receiver lost is theirs too.
        let more =
            [reported.to_vec(), vec![ReportedLoss { packet: packet(8), cause: "sender".into() }]];
        let causes = joined(path.clone().into_iter(), &more.concat(), lost(true, true));
        assert_eq!((causes.taken("receiver"), causes.recall("sender")), (1, Some(1.0)));
        let causes = joined(path.into_iter(), &more.concat(), lost(false, true));
        assert_eq!((causes.taken("sender"), causes.recall("sender")), (2, Some(0.5)));
    }
}
