//! The faults: each breaks one rule of docs/connection.md.

use super::Mutant;

pub(super) const ALL: &[Mutant] = &[
    Mutant {
        name: "a repair that the lanes never hear of",
        file: "crates/core/connection/src/incoming.rs",
        what: "Repair::ReceiveAnew(object, group) => self.forget(object, group),",
        with: "Repair::ReceiveAnew(..) => {}",
    },
    Mutant {
        name: "what came on another lane is not given up",
        file: "crates/core/connection/src/incoming.rs",
        what: "Repair::Taken(object, group) => self.give_up(object, group),",
        with: "Repair::Taken(..) => {}",
    },
    Mutant {
        name: "a late repetition begins its group again",
        file: "crates/core/connection/src/incoming.rs",
        what: "        if is_done(&self.done, self.taken_below, target.key()) {\n            return Ok(());",
        with: "        if false {\n            return Ok(());",
    },
    Mutant {
        name: "payloads lie one byte early",
        file: "crates/core/connection/src/incoming.rs",
        what: "Slot::Place(&mut buffer.as_mut()[target.start as usize..]",
        with: "Slot::Place(&mut buffer.as_mut()[(target.start as usize).saturating_sub(1)..]",
    },
    Mutant {
        name: "repeated bytes go straight to their place",
        file: "crates/core/connection/src/incoming.rs",
        what: "if !assembly.is_vacant(target.start, target.len) {",
        with: "if false {",
    },
    Mutant {
        name: "gaps are filled from the start of the packet",
        file: "crates/core/connection/src/incoming.rs",
        what: "let from = (gap.start - target.start) as usize..(gap.end - target.start) as usize;",
        with: "let from = 0..(gap.end - gap.start) as usize;",
    },
    Mutant {
        name: "a group is whole before its last bytes",
        file: "crates/core/connection/src/incoming.rs",
        what: "        if !assembly.is_complete() {",
        with: "        if !assembly.is_complete() && target.start + target.len < assembly.len() {",
    },
    Mutant {
        name: "credit is counted twice",
        file: "crates/core/objects/src/intake.rs",
        what: "        self.bytes += self.len(object, group).unwrap_or(0);",
        with: "        self.bytes += 2 * self.len(object, group).unwrap_or(0);",
    },
    Mutant {
        name: "what is sent again counts again",
        file: "crates/core/objects/src/intake.rs",
        what: "        if self.has_begun(object, group) {\n            return;",
        with: "        if false {\n            return;",
    },
    Mutant {
        name: "credit never reaches a lane",
        file: "crates/core/connection/src/lane_half.rs",
        what: "        self.lane.set_credit(standing.credit);\n",
        with: "",
    },
    Mutant {
        name: "a repair overtakes the report of its group",
        file: "crates/core/connection/src/lane_half.rs",
        what: "if self.outgoing.contains_key(&key) {",
        with: "if false {",
    },
    Mutant {
        name: "a repair that waited is lost",
        file: "crates/core/connection/src/lane_half.rs",
        what: "in core::mem::take(&mut self.repairs) {",
        with: "in core::mem::take(&mut self.repairs).into_iter().skip(1) {",
    },
    Mutant {
        name: "delivered groups are kept",
        file: "crates/core/connection/src/lane_half.rs",
        what: "                self.outgoing.remove(&(extent.object, extent.offset));\n",
        with: "",
    },
    Mutant {
        name: "a lane is forgotten at close",
        file: "crates/core/connection/src/lane_half.rs",
        what: "Order::Close(code, reason) => self.lane.close(now, code, &reason),",
        with: "Order::Close(..) => {}",
    },
    Mutant {
        name: "a blast round never ends",
        file: "crates/core/connection/src/lane_half.rs",
        what: "if standing.drained && self.lane.backlog() == 0 {",
        with: "if false {",
    },
    Mutant {
        name: "replayed packets are taken",
        file: "crates/core/connection/src/receive.rs",
        what: "if !lane.accepts(header.number.get()) {",
        with: "if false {",
    },
    Mutant {
        name: "forged packets are placed",
        file: "crates/core/connection/src/receive.rs",
        what: "let authentic = with.opener.open_run(run, bytes, place);",
        with: "let authentic = with.opener.open_run(run, bytes, place).max(run.count());",
    },
    Mutant {
        name: "forged packets are acknowledged",
        file: "crates/core/connection/src/receive.rs",
        what: "self.extend_arrival(now, lane, batch, &part.first(authentic));",
        with: "self.extend_arrival(now, lane, batch, &part.first(looked_at));",
    },
    Mutant {
        name: "a run takes in bytes from elsewhere",
        file: "crates/core/connection/src/run.rs",
        what: "            && self.offset + self.payload_len() as u64 == next.offset\n",
        with: "",
    },
    Mutant {
        name: "packets carry bytes of the start of a group",
        file: "crates/core/connection/src/send.rs",
        what: "let base = extent.offset - extent.offset % GROUP_SIZE;",
        with: "let base = extent.offset;",
    },
    Mutant {
        name: "a last packet is as long as the others",
        file: "crates/core/connection/src/send.rs",
        what: "let end = (offset + payload).min(extent.end());",
        with: "let end = offset + payload;",
    },
    Mutant {
        name: "the end overtakes the last message",
        file: "crates/core/connection/src/messages.rs",
        what: "        if self.own == Half::Ending\n            && self.unwritten.is_empty()\n",
        with: "        if self.own == Half::Ending\n",
    },
    Mutant {
        name: "what the stream did not take of a message is lost",
        file: "crates/core/connection/src/messages.rs",
        what: "            self.unwritten.drain(..written);",
        with: "            self.unwritten.clear();",
    },
    Mutant {
        name: "a client closes before its result was read",
        file: "crates/core/connection/src/conversation.rs",
        what: "Some(Part::Sink) => self.heard_all,",
        with: "Some(Part::Sink) => true,",
    },
    Mutant {
        name: "what a refused client says breaks the connection",
        file: "crates/core/connection/src/conversation.rs",
        what: "(Stage::Refusing, Message::Source(_) | Message::Sink(_)) => continue,",
        with: "(Stage::Refusing, Message::Source(_)) if false => continue,",
    },
    Mutant {
        name: "a server plays the part of its client",
        file: "crates/core/connection/src/conversation.rs",
        what: "Stage::Asked(wish.part().other())",
        with: "Stage::Asked(wish.part())",
    },
];
