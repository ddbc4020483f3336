use alloc::vec;

use proptest::prelude::*;

use super::*;

const MARK: [u8; 16] = *b"0123456789abcdef";

/// Bytes of the message with that body.
fn message(body: &[u8]) -> Vec<u8> {
    [&MARK[..], &[0, 0, body.len() as u8], body].concat()
}

fn ask() -> SshAsk {
    SshAsk {
        mark: MARK,
        versions: vec![1, 2],
        purpose: SshPurpose::Push,
        ports: Some((5000, 5010)),
        implementation: Some("x".into()),
        paths: vec![b"run-17".to_vec()],
        onward: None,
    }
}

const ASK: &[u8] = &[
    0x80, 1, 0, 4, 0, 1, 0, 2, // version
    0x80, 2, 0, 1, 1, // purpose
    0x80, 3, 0, 6, b'r', b'u', b'n', b'-', b'1', b'7', // path
    0x80, 4, 0, 4, 0x13, 0x88, 0x13, 0x92, // ports
    0, 5, 0, 1, b'x', // implementation
];

fn answer() -> SshAnswer {
    let serving = SshServing {
        entry: Some(SshEntry { port: 7421, token: [7; 16] }),
        address: Some("::1".into()),
        paths: vec![b"home/me/run-17".to_vec(), b"".to_vec()],
        frames: true,
        taken: None,
    };
    SshAnswer { implementation: None, outcome: Ok(serving) }
}

fn asked(body: &[u8]) -> Result<Option<SshAsk>, DecodeError> {
    SshAsk::parse(&message(body))
}

#[test]
fn an_ask_is_these_bytes() {
    let mut out = Vec::new();
    ask().encode(&mut out).unwrap();
    assert_eq!(out, message(ASK));
    assert_eq!(SshAsk::parse(&out), Ok(Some(ask())));
    for len in 0..out.len() {
        assert_eq!(SshAsk::parse(&out[..len]), Ok(None), "{len}");
    }
}

#[test]
fn an_answer_is_found_behind_what_a_login_script_writes() {
    let mut out = Vec::new();
    answer().encode(&MARK, &mut out).unwrap();
    for noise in [0, 1, 100, MAX_SSH_NOISE] {
        let noisy = [&vec![b'0'; noise], &out[..]].concat();
        assert!(SshAnswer::parse(&MARK, &noisy) == Ok(Some((answer(), noisy.len()))), "{noise}");
        assert!(SshAnswer::parse(&MARK, &noisy[..noisy.len() - 1]) == Ok(None), "{noise}");
    }
    let noisy = [&vec![b'0'; MAX_SSH_NOISE + 1], &out[..]].concat();
    assert!(SshAnswer::parse(&MARK, &noisy).is_err());
}

#[test]
fn an_answer_says_which_ports_others_have() {
    let body = [
        0x80, 1, 0, 2, 0, 1, // version
        0x80, 6, 0, 2, 0, 9, // port
        0x80, 7, 0, 16, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // token
        0, 10, 0, 0, // frames
        0, 12, 0, 1, 2, // taken ports
    ];
    let entry = Some(SshEntry { port: 9, token: [7; 16] });
    let taken = Some(SshTaken::All);
    let serving = SshServing { entry, address: None, paths: Vec::new(), frames: true, taken };
    let answer = SshAnswer { implementation: None, outcome: Ok(serving) };
    let mut out = Vec::new();
    answer.encode(&MARK, &mut out).unwrap();
    assert_eq!(out, message(&body));
    assert!(SshAnswer::parse(&MARK, &out) == Ok(Some((answer, out.len()))));
    for wrong in [0, 3] {
        *out.last_mut().unwrap() = wrong;
        assert!(SshAnswer::parse(&MARK, &out).is_err(), "{wrong}");
    }
}

#[test]
fn a_refusal_stands_alone() {
    let place = [0, 13, 0, 2, 1, 2];
    for (path, place) in [(None, &place[..0]), (Some(0x102), &place)] {
        let outcome = Err(SshRefusal { reason: "no".into(), path });
        let refused = SshAnswer { implementation: Some("y".into()), outcome };
        let mut out = Vec::new();
        refused.encode(&MARK, &mut out).unwrap();
        let body = [&[0, 5, 0, 1, b'y', 0x80, 9, 0, 2, b'n', b'o'], place].concat();
        assert_eq!(out, message(&body));
        let len = out.len();
        out.extend([7, 0]);
        assert!(SshAnswer::parse(&MARK, &out) == Ok(Some((refused, len))));
    }
    let body = [0x80, 9, 0, 1, b'x', 0, 13, 0, 1, 1];
    assert!(SshAnswer::parse(&MARK, &message(&body)).is_err(), "no number");
}

fn onward() -> SshOnward {
    SshOnward {
        entry: SshEntry { port: 7421, token: [7; 16] },
        frames: true,
        host: "b".into(),
        name: "ssh://b".into(),
        addresses: vec!["::1".into(), "b".into()],
        destination: b"in".to_vec(),
        words: vec![b"cp".to_vec(), b"-a".to_vec()],
    }
}

#[test]
fn a_copy_to_another_server_is_these_bytes_and_its_token_is_not_shown() {
    let asked = SshAsk { purpose: SshPurpose::Onward, onward: Some(onward()), ..ask() };
    let mut out = Vec::new();
    asked.encode(&mut out).unwrap();
    let value = [
        &[0x1c, 0xfd][..],
        &[7; 16],
        &[1, 0, 1, b'b', 0, 7],
        b"ssh://b",
        &[
            2, 0, 3, b':', b':', b'1', 0, 1, b'b', 0, 2, b'i', b'n', 0, 2, b'c', b'p', 0, 2, b'-',
            b'a',
        ],
    ];
    let value = value.concat();
    let option = [&[0x80, 11, 0, value.len() as u8][..], &value].concat();
    assert!(out.ends_with(&option));
    assert_eq!(SshAsk::parse(&out), Ok(Some(asked.clone())));
    assert!(!alloc::format!("{asked:?}").contains("7, 7"));
    for len in 0..value.len() {
        // All but a word less is an error, and none panics.
        let _ = SshOnward::parse(&value[..len]);
    }
    // Of who copies onward, and of nobody else.
    let other = SshAsk { purpose: SshPurpose::Push, ..asked };
    let mut out = Vec::new();
    other.encode(&mut out).unwrap();
    assert!(SshAsk::parse(&out).is_err());
    let long = SshOnward { words: vec![vec![b'x'; 40_000]; 2], ..onward() };
    let long = SshAsk { purpose: SshPurpose::Onward, onward: Some(long), ..ask() };
    assert!(long.encode(&mut Vec::new()).is_err());
    for wrong in [
        SshOnward { entry: SshEntry { port: 0, token: [7; 16] }, ..onward() },
        SshOnward { addresses: Vec::new(), ..onward() },
        SshOnward { destination: b"\0".to_vec(), ..onward() },
        SshOnward { words: vec![b"\0".to_vec()], ..onward() },
        SshOnward { host: "x".repeat(1025), ..onward() },
    ] {
        assert!(SshOnward::parse(&wrong.encode().unwrap()).is_err(), "{wrong:?}");
    }
}

#[test]
fn what_an_ask_may_not_be() {
    for (body, what) in [
        (&b""[..], "version"),
        (&[0x80, 1, 0, 1, 1], "version"),
        (&[0x80, 1, 0, 2, 0, 9], "version"),
        (&[0, 1, 0, 2, 0, 1], "version"),
        (&[0x80, 1, 0, 2, 0, 1], "purpose"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 10], "purpose"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 1, 0x80, 2, 0, 1, 1], "repeated option"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 1, 0x80, 3, 0, 1, 0], "path"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 1, 0x80, 4, 0, 4, 0, 2, 0, 1], "ports"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 1, 0x80, 6, 0, 2, 0, 1], "port"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 1, 0x80, 99, 0, 0], "critical option"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 9, 1], "option"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 8], "other server"),
        (&[0x80, 1, 0, 2, 0, 1, 0x80, 2, 0, 1, 8, 0x80, 11, 0, 1, 1], "other server"),
    ] {
        let error = asked(body).unwrap_err();
        let text = alloc::string::ToString::to_string(&error);
        assert!(text.contains(what), "{body:?}: {text}");
    }
    // One that may be ignored is.
    let more = [ASK, &[0, 99, 0, 1, 1]].concat();
    assert_eq!(asked(&more), Ok(Some(ask())));
    let long = [&MARK[..], &[0x10, 0, 1]].concat();
    assert!(SshAsk::parse(&long).is_err());
}

proptest! {
    #[test]
    fn messages_read_back(
        paths in prop::collection::vec(prop::collection::vec(1u8.., 0..20), 0..4),
        ports in prop::option::of((1u16..100, 100u16..)),
        port in 1u16..,
        token: [u8; 16],
        address in prop::option::of("[0-9a-f:.]{0,20}"),
        implementation in prop::option::of("[a-z/.0-9]{0,20}"),
        frames: bool,
        taken in prop::sample::select(vec![None, Some(SshTaken::Udp), Some(SshTaken::All)]),
    ) {
        let asked = SshAsk { ports, paths: paths.clone(), implementation: implementation.clone(), ..ask() };
        let mut out = Vec::new();
        asked.encode(&mut out).unwrap();
        prop_assert_eq!(SshAsk::parse(&out), Ok(Some(asked)));
        let entry = Some(SshEntry { port, token });
        let serving = SshServing { entry, address, paths, frames, taken };
        let answer = SshAnswer { implementation, outcome: Ok(serving) };
        let mut out = Vec::new();
        answer.encode(&MARK, &mut out).unwrap();
        prop_assert!(SshAnswer::parse(&MARK, &out) == Ok(Some((answer, out.len()))));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = SshAsk::parse(&bytes);
        let _ = SshOnward::parse(&bytes);
        let _ = asked(&bytes);
        let _ = SshAnswer::parse(&MARK, &message(&bytes));
    }

    #[test]
    fn a_changed_ask_is_no_other_panic(at in 0..ASK.len(), byte: u8) {
        let mut body = ASK.to_vec();
        body[at] = byte;
        let _ = asked(&body);
        let _ = SshAnswer::parse(&MARK, &message(&body));
    }
}
