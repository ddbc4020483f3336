//! Checks of `longhaul-relay`: nobody without the token has a header or an answer believed, and
//! nothing panics.

use longhaul_relay::{
    Addressed, Answer, Clock, DialError, Dialled, Dialler, Gatekeeper, Place, Received, Route,
    Status, Target, frame, proxy,
};
use longhaul_session::Token;

/// Headers, answers and frames. The first byte chooses between raw bytes and changes of a good
/// header and answer.
pub fn relay(input: &[u8]) {
    let Some((&mode, input)) = input.split_first() else {
        return;
    };
    let token = Token::from_random([7; 16]);
    let now = Clock::from_micros(1 << 50);
    let dialled: Place = "192.0.2.1:7421".parse().expect("a place");
    let addressed = Addressed { written: dialled.clone(), dialled: dialled.clone() };
    let target = Target { place: "target:80".parse().expect("a place"), aware: false };
    let mut route = Route::new([1; 16], target);
    route.hops = vec!["next:7421".parse::<Place>().expect("a place").into()];
    let (mut dialler, header) =
        Dialler::new(&route, addressed, &token.key(), now, [2; 16]).expect("a short route");
    let mut keeper = Gatekeeper::new([&token].into_iter().collect(), None, now);
    if mode & 1 == 0 {
        let received = keeper.receive(input, &dialled, now);
        assert!(!matches!(received, Received::Header(_)), "no proof, but a session");
        let outcome = dialler.receive(input);
        assert!(!matches!(outcome, Ok(Dialled::Connected { .. } | Dialled::Refused(_))));
        if let Some((head, payload)) = input.split_first_chunk() {
            if let Ok(read) = frame::Head::decode(*head) {
                assert_eq!(read.encode(), *head);
            }
            let _ = frame::Reset::decode(payload);
        }
        if let Ok(Some(header)) = proxy::decode(input) {
            assert!(header.length <= input.len());
        }
        return;
    }
    let (first, second) = input.split_at(input.len() / 2);
    let sent = changed(&header, first);
    let Received::Header(request) = keeper.receive(&sent, &dialled, now) else {
        assert!(!sent.starts_with(&header), "a good header was refused");
        return;
    };
    assert!(sent.starts_with(&header), "a changed header was not seen");
    assert_eq!(request.header.route, route);
    let answer = request.sign(&Answer::new(Status::CONNECTED, "gw"));
    let received = changed(&answer, second);
    match dialler.receive(&received) {
        Ok(Dialled::Connected { length, .. }) => {
            assert_eq!(length, answer.len());
            assert!(received.starts_with(&answer), "a changed answer was not seen");
        }
        Ok(Dialled::Refused(_)) => panic!("a refusal that nobody made"),
        Ok(_) | Err(DialError::Malformed(_) | DialError::Impostor) => {
            assert!(!received.starts_with(&answer), "a good answer was refused");
        }
    }
}

/// `good` with bytes changed: pairs of place and value, until the input ends or begins to repeat.
fn changed(good: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]]));
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= change[2];
        }
    }
    bytes
}
