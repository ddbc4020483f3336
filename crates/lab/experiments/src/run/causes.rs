//! Why each packet was lost, by those who know, beside the cause that the sender tells.

use std::collections::{BTreeMap, HashMap};

use longhaul_lab::Loss;
use longhaul_peers::{PacketId, ToldLoss};

use crate::record::LossCauses;

/// A packet of Longhaul's that the path lost, and why; nothing for one of others.
pub(super) fn on_path(loss: &Loss) -> Option<(PacketId, String)> {
    Some((PacketId::of(&loss.head)?, loss.reason.to_string()))
}

/// Joins what the path lost with what the sender `told` was lost, packet by packet. What the path did
/// not lose was lost in the receiving host if that `lost` any, and else has arrived.
pub(super) fn joined(
    path: impl Iterator<Item = (PacketId, String)>,
    told: &[ToldLoss],
    host_lost: bool,
) -> LossCauses {
    let mut taken: HashMap<PacketId, String> =
        path.map(|(packet, reason)| (packet, taker(&reason))).collect();
    let otherwise = if host_lost { RECEIVER } else { ARRIVED };
    let mut causes = LossCauses::default();
    let mut last: BTreeMap<u16, u64> = BTreeMap::new();
    for loss in told {
        let truth = taken.remove(&loss.packet).unwrap_or_else(|| otherwise.to_owned());
        causes.add(truth, loss.cause.clone());
        let last = last.entry(loss.packet.lane).or_default();
        *last = loss.packet.number.max(*last);
    }
    // Of those behind the last one that it found the sender does not know yet.
    let found =
        |packet: &PacketId| last.get(&packet.lane).is_some_and(|last| packet.number < *last);
    for (_, truth) in taken.into_iter().filter(|(packet, _)| found(packet)) {
        causes.add(truth, UNTOLD.to_owned());
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
const ARRIVED: &str = "arrived";
const UNTOLD: &str = "untold";

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
        let told = [(1, "random"), (2, "random"), (3, "random"), (7, "socket")];
        let told =
            told.map(|(number, cause)| ToldLoss { packet: packet(number), cause: cause.into() });
        let causes = joined(path.clone().into_iter(), &told, true);
        assert_eq!((causes.taken("random"), causes.recall("random")), (2, Some(1.0)));
        // One was told as chance, the other not at all.
        assert_eq!((causes.taken("congestion"), causes.recall("congestion")), (2, Some(0.0)));
        assert_eq!((causes.taken("receiver"), causes.precision("receiver")), (1, Some(1.0)));
        let causes = joined(path.into_iter(), &told, false);
        assert_eq!((causes.taken("receiver"), causes.taken("arrived")), (0, 1));
    }
}
