//! Makes the vectors at the end of docs/relay.md and compares them with the page.
//!
//! `LONGHAUL_UPDATE_VECTORS=1 cargo test -p longhaul-relay vectors` writes them again. A change of
//! them is a change of the protocol.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use longhaul_relay::{
    Addressed, Answer, Clock, Dialler, Gatekeeper, Received, Route, Status, Target, frame,
};
use longhaul_session::Token;

const HEADING: &str = "## 6. Vectors\n";

#[test]
fn vectors_of_the_page_are_current() {
    let token = Token::from_random(std::array::from_fn(|i| i as u8));
    let now = Clock::from_micros(1_800_000_000_000_000);
    let target = Target { place: "server:80".parse().unwrap(), aware: false };
    let mut route = Route::new([0x11; 16], target);
    route.hops = vec!["[2001:db8::2]:7421".parse::<longhaul_relay::Place>().unwrap().into()];
    route.client = "alice".into();
    let dialled: longhaul_relay::Place = "192.0.2.1:7421".parse().unwrap();
    let addressed = Addressed { written: "gw:7421".parse().unwrap(), dialled: dialled.clone() };
    let (_, header) = Dialler::new(&route, addressed, &token.key(), now, [0x22; 16]).unwrap();

    let mut keeper = Gatekeeper::new([&token].into_iter().collect(), Some("gw".into()), now);
    let Received::Header(request) = keeper.receive(&header, &dialled, now) else { panic!() };
    let peer = "192.0.2.80:80".parse().unwrap();
    let connected =
        request.sign(&Answer { peer: Some(peer), ..Answer::new(Status::CONNECTED, "gw") });
    let Received::Refused(replayed) = keeper.receive(&header, &dialled, now) else { panic!() };
    let reset = frame::Reset { status: Status::RESET, hop: 1, reason: "gone".into() };

    let mut made = format!(
        "{HEADING}
The token is made of the bytes 00 to 0f; the time is 1800000000 s after 1970 began, the session id sixteen bytes 11, the nonce
sixteen bytes 22. The gateway is called `gw`, was dialled at 192.0.2.1:7421, and is to go to `server:80` by [2001:db8::2]:7421; the client is `alice`.

```text
"
    );
    for (name, bytes) in [
        ("header", &header),
        ("connected", &connected),
        ("replayed", &replayed.bytes),
        ("RESET", &reset.encode()),
    ] {
        for (i, line) in bytes.chunks(40).enumerate() {
            let name = if i == 0 { name } else { "" };
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            made.push_str(&format!("{name:<12}{hex}\n"));
        }
    }
    made.push_str("```\n");

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/relay.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rest = page.split(HEADING).next().unwrap();
    if std::env::var_os("LONGHAUL_UPDATE_VECTORS").is_some() {
        std::fs::write(path, format!("{rest}{made}")).unwrap();
    } else {
        assert_eq!(&page[rest.len()..], made);
    }
}
