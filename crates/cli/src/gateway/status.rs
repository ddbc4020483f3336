use longhaul_gateway::status::{SegmentStatus, SessionStatus, Status, ask};
use longhaul_units::{Bytes, Duration, Rate};

use super::args::StatusArgs;
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn show(args: &StatusArgs, output: &Output) -> Result<(), Failure> {
    let status = ask(args.at).map_err(|error| Failure::failed(error.to_string()))?;
    let json = serde_json::to_value(&status).map_err(|error| Failure::failed(error.to_string()))?;
    output.result(&json, text(&status))
}

fn text(status: &Status) -> String {
    let (held, most) = (Bytes::new(status.memory), Bytes::new(status.max_memory));
    let mut lines = vec![format!(
        "{} of {} sessions, {held} of {most} memory, {} at the door",
        status.sessions.len(),
        status.max_sessions,
        status.at_door
    )];
    for session in &status.sessions {
        lines.push(of_session(session));
        let of_segment = |segment| of_segment(segment, session.bottleneck.as_deref());
        lines.extend(session.segments.iter().map(of_segment));
    }
    lines.join("\n")
}

fn of_session(session: &SessionStatus) -> String {
    let (there, back) = (Bytes::new(session.bytes_there), Bytes::new(session.bytes_back));
    let stage = match &*session.stage {
        "relaying" => String::new(),
        stage => format!(", {stage}"),
    };
    format!(
        "{} -> {}: {there} there, {back} back, {:.0} s{stage}",
        session.client, session.target, session.seconds
    )
}

fn of_segment(segment: &SegmentStatus, bottleneck: Option<&str>) -> String {
    let rtt = Duration::from_micros(segment.rtt_us);
    let class = segment.class.as_ref().map_or("all".into(), |class| format!("segment {class}"));
    let limit =
        segment.limit_bps.map_or(String::new(), |limit| format!(" of {}", Rate::from_bps(limit)));
    let mark = if bottleneck == Some(&segment.side) { "  <- bottleneck" } else { "" };
    format!(
        "  {:<6} {}: {} {} (as of {class}), RTT {rtt:.1?}, {}{limit}, {} sent again, buffers {} and {}, \
         waited for {:.0} %{mark}",
        segment.side,
        segment.peer,
        segment.transport,
        segment.congestion_control,
        Rate::from_bps(segment.rate_bps),
        Bytes::new(segment.resent_bytes),
        Bytes::new(segment.receive_buffer),
        Bytes::new(segment.send_buffer),
        segment.waited_for * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shown_with_its_segments_and_the_bottleneck_among_them() {
        let segment = |side: &str| SegmentStatus {
            side: side.into(),
            peer: "192.0.2.1:7421".parse().unwrap(),
            transport: "tcp".into(),
            class: (side == "onward").then(|| "192.0.2.0/24".into()),
            congestion_control: "bbr".into(),
            rtt_us: 50_000,
            rate_bps: 900_000_000,
            limit_bps: (side == "onward").then_some(950_000_000),
            resent_bytes: 1000,
            memory: 0,
            receive_buffer: 1_000_000,
            send_buffer: 2_000_000,
            waited_for: 0.98,
        };
        let session = SessionStatus {
            id: "00".into(),
            client: "alice@198.51.100.7".into(),
            target: "data.example:443".into(),
            stage: "relaying".into(),
            seconds: 9.0,
            bytes_there: 1_000_000_000,
            bytes_back: 5,
            segments: vec![segment("client"), segment("onward")],
            bottleneck: Some("onward".into()),
        };
        let status = Status { sessions: vec![session], max_sessions: 8, ..Status::default() };
        let expected = "\
1 of 8 sessions, 0 B of 0 B memory, 0 at the door
alice@198.51.100.7 -> data.example:443: 1.00 GB there, 5 B back, 9 s
  client 192.0.2.1:7421: tcp bbr (as of all), RTT 50.0ms, 900 Mb/s, 1.00 kB sent again, buffers 1.00 MB and 2.00 MB, waited for 98 %
  onward 192.0.2.1:7421: tcp bbr (as of segment 192.0.2.0/24), RTT 50.0ms, 900 Mb/s of 950 Mb/s, 1.00 kB sent again, buffers 1.00 MB and 2.00 MB, waited for 98 %  <- bottleneck";
        assert_eq!(text(&status), expected);
    }
}
