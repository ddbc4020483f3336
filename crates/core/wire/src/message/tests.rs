use longhaul_units::Duration;

use super::leftovers::MAX_SOURCES;
use super::*;
use alloc::vec;
use longhaul_units::{Bottleneck, Losses};
use longhaul_units::{MemoryUse, Rate};
use proptest::prelude::*;

fn encode(message: &Message) -> Vec<u8> {
    let mut out = vec![0xa5];
    message.encode(&mut out).unwrap();
    assert_eq!(out.remove(0), 0xa5, "appends");
    out
}

fn decode(bytes: &[u8]) -> Result<Vec<Message>, DecodeError> {
    let mut reader = MessageReader::new();
    reader.push(bytes);
    let mut all = Vec::new();
    while let Some(message) = reader.next_message()? {
        all.push(message);
    }
    Ok(all)
}

fn check(bytes: &[u8], message: impl Into<Message>) {
    let message = message.into();
    assert_eq!(encode(&message), bytes, "{message:?}");
    assert_eq!(decode(bytes), Ok(vec![message]));
}

fn file() -> Entry {
    Entry {
        kind: EntryKind::File,
        mode: 0o644,
        modified: -2,
        size: 100,
        identity: *b"0123456789abcdef",
        path: EntryPath::new(b"a/b".to_vec()).unwrap(),
        attributes: Attributes::default(),
    }
}

#[test]
fn literal_bytes() {
    let request = Request {
        direction: Direction::Push,
        destination_is_directory: true,
        sync_at_end: false,
        copy_contents: true,
        unhashed: false,
        keeps_unchanged: true,
        keeps_newer: false,
        compares_contents: false,
        destination_is_name: true,
        dry_run: false,
        names_follow: true,
        destination_stays: true,
        deletes: Some(Deletes { most: Some(4) }),
        keeps_attributes: KeptAttributes::OWNERS.with(KeptAttributes::XATTRS, true),
        label: [7; 16],
        paths: vec![b"x".to_vec(), b"".to_vec()],
        rules: vec![FilterRule { kind: FilterKind::Exclude, pattern: b"*.o".to_vec() }],
    };
    let label = [7; 16];
    let rest = [2, 1, b'x', 0, 2, 3, b'*', b'.', b'o'];
    check(&[&[31, 1, 1, 0x5c, 0xd5][..], &label, &[5, 10], &rest].concat(), request);
    let pipe = PipeRequest { role: PipeRole::Receive, name: b"run".to_vec() };
    check(b"\x05\x0e\x02run", pipe);
    check(b"\x05\x12\x01run", ListRequest { recursive: true, path: b"run".to_vec() });
    let path = EntryPath::new(b"a/b".to_vec()).unwrap();
    let listed = Listed {
        kind: ListedKind::Other,
        mode: 0o644,
        modified: -2,
        size: 100,
        path: path.clone(),
    };
    let link =
        Listed { kind: ListedKind::Link { target: b"c".to_vec() }, size: 0, ..listed.clone() };
    let mut bytes = vec![36, 19, 4, 0x01, 0xa4];
    bytes.extend([0xff; 7]);
    bytes.extend(b"\xfe\x40\x64\x03a/b\x03\x01\xa4");
    bytes.extend([0xff; 7]);
    bytes.extend(b"\xfe\x00\x03a/b\x01c");
    check(&bytes, AnswerMessage::Listed(vec![listed, link]));
    let unlisted = AnswerMessage::Unlisted {
        path: b"a//".to_vec(),
        end: EntryEnd::new(EntryCode::Permission, "no"),
    };
    check(b"\x08\x14\x03a//\x05no", unlisted);
    check(b"\x03\x15\x02\x01", AnswerMessage::End { listed: 2, unlisted: 1 });
    let questions = vec![Question::Hash(path.clone()), Question::List(EntryPath::default())];
    let verify = VerifyRequest { path: b"run".to_vec(), questions, is_last: true };
    check(b"\x0d\x1c\x01\x03run\x01\x03a/b\x02\x00", verify);
    let hashed = |question, outcome| Hashed { question, outcome };
    let all = vec![
        hashed(3, HashOutcome::Begun { bytes: 4 }),
        hashed(5, HashOutcome::Failed(EntryEnd::new(EntryCode::NotFound, "no"))),
        hashed(6, HashOutcome::Is { size: 7, hash: [8; 32] }),
    ];
    let bytes = [&b"\x2d\x1e\x03\x03\x04\x05\x02\x04\x02no\x06\x01\x07"[..], &[8; 32]].concat();
    check(&bytes, AnswerMessage::Hashed(all));
    let leftovers = LeftoversRequest { discard: true, path: b"run".to_vec() };
    check(b"\x05\x25\x01run", leftovers);
    let left = |state, idle, bytes| {
        let sources = b"lh://h/x"[..usize::try_from(idle).unwrap()].to_vec();
        Left { state, idle, bytes, total: bytes + 1, path: path.clone(), sources }
    };
    let all = vec![
        left(LeftState::Interrupted, 5, 100),
        left(LeftState::Running, 0, 0),
        left(LeftState::Discarded, 3, 7),
    ];
    let bytes = b"\x26\x26\x01\x05\x40\x64\x40\x65\x03a/b\x05lh://\x02\x00\x00\x01\x03a/b\x00\x03\x03\x07\x08\x03a/b\x03lh:";
    check(bytes, AnswerMessage::Left(all));
    let refused = |part| Refused { code: CloseCode::REFUSED, reason: "no".into(), part };
    check(b"\x07\x0c\x00\x06\x00\x00no", refused(None));
    let part = Some(AskedPart { path: 1, names: 3 });
    check(b"\x07\x0c\x00\x06\x02\x03no", refused(part));

    let object = ManifestObject { id: ObjectId(1), first_entry: 7, entries: 1, size: 100 };
    let manifest =
        SourceMessage::Manifest { first_entry: 7, entries: vec![file()], objects: vec![object] };
    let mut bytes = vec![42, 2, 7, 1, 1, 0x01, 0xa4];
    bytes.extend([0xff; 7]);
    bytes.extend([0xfe, 0x40, 100]);
    bytes.extend(b"0123456789abcdef\x03a/b");
    bytes.extend([1, 1, 7, 1, 0x40, 100]);
    check(&bytes, manifest);
    let data = DataRanges::new(vec![0..1, 9..12]);
    let entries = vec![Entry { attributes: Attributes { data, metadata: None }, ..file() }];
    let mut bytes = vec![44, 2, 7, 1, 0x81, 0x01, 0xa4];
    bytes.extend([0xff; 7]);
    bytes.extend([0xfe, 0x40, 100]);
    bytes.extend(b"0123456789abcdef\x03a/b\x06\x01\x04\x00\x01\x08\x03\x00");
    check(&bytes, SourceMessage::Manifest { first_entry: 7, entries, objects: vec![] });

    let owner = Some(Account { id: 7, name: b"ann"[..].into() });
    let xattrs = vec![Xattr { name: b"user.a"[..].into(), value: b"x"[..].into() }];
    let metadata = Metadata { owner, xattrs, ..Metadata::default() }.boxed();
    let entries = vec![Entry { attributes: Attributes { data: None, metadata }, ..file() }];
    let mut bytes = vec![56, 2, 7, 1, 0x81, 0x01, 0xa4];
    bytes.extend([0xff; 7]);
    bytes.extend([0xfe, 0x40, 100]);
    bytes.extend(b"0123456789abcdef\x03a/b\x12\x02\x05\x07\x03ann\x04\x09\x06user.a\x01x\x00");
    check(&bytes, SourceMessage::Manifest { first_entry: 7, entries, objects: vec![] });

    let end = SourceMessage::ManifestEnd { entries: 3, objects: 2, bytes: Bytes::new(64) };
    check(&[5, 3, 3, 2, 0x40, 64], end);
    let hashes =
        SourceMessage::Hashes { object: ObjectId(2), first_group: 5, values: vec![[7; 32]] };
    check(&[&[35, 4, 2, 5][..], &[7; 32]].concat(), hashes);
    let (object, first_group) = (ObjectId(2), 5);
    let tags = SourceMessage::Tags { object, first_group, tags: vec![[8; 16], [9; 16]] };
    check(&[&[35, 15, 2, 5][..], &[8; 16], &[9; 16]].concat(), tags);
    let believed = SourceMessage::Believed { object, groups: vec![0..3, 5..6] };
    check(&[6, 17, 2, 0, 3, 5, 1], believed);
    let end = EntryEnd::new(EntryCode::NotFound, "gone");
    check(b"\x07\x05\x09\x04gone", SourceMessage::EntryFailed { entry: 9, end });
    let report = SourceReport {
        packets_sent: 1,
        packets_resent: 2,
        lost: Losses { congestion: 3, random: 4, socket: 5, host: 6, sender: 7, unknown: 8 },
        rtt: Duration::from_micros(9),
        rtt_min: Duration::from_micros(10),
        bound: Bottleneck::UserLimit,
        bottleneck: Bottleneck::Network,
        memory: MemoryUse::Confirmed,
        remembered: Rate::from_bps(12),
        access_lists: 30,
        xattrs: 31,
        host: literal_host(),
    };
    let numbers = [38, 13, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 1, 7, 12, 30, 31];
    check(&[&numbers[..], &LITERAL_HOST].concat(), SourceMessage::Report(report.into()));
    assert_eq!(report.lost.total(), 33);

    check(&[2, 6, 4], SinkMessage::Accept { objects: 4 });
    let have = SinkMessage::Have { object: ObjectId(2), groups: vec![0..3, 5..6] };
    check(&[6, 7, 2, 0, 3, 5, 1], have);
    let groups = Offered::Untagged(vec![0..3, 5..6]);
    check(&[7, 16, 2, 0, 0, 3, 5, 1], SinkMessage::Offer { object, groups });
    let groups = Offered::Tagged { first_group, groups: vec![([7; 32], [8; 16])] };
    let bytes = [&[52, 16, 2, 1, 5][..], &[7; 32], &[8; 16]].concat();
    check(&bytes, SinkMessage::Offer { object, groups });
    for wrong in [&[4, 16, 2, 2, 0][..], &bytes[..40]] {
        let wrong = [&[wrong.len() as u8 - 1][..], &wrong[1..]].concat();
        assert!(decode(&wrong).is_err());
    }
    check(&[3, 8, 2, 9], SinkMessage::Repair { object: ObjectId(2), group: 9 });
    check(&[3, 9, 4, 2], SinkMessage::Confirm { entries: core::iter::once(4..6).collect() });
    check(&[3, 39, 4, 2], SinkMessage::Elsewhere { entries: core::iter::once(4..6).collect() });
    let end = EntryEnd::new(EntryCode::NoSpace, "full");
    check(b"\x07\x0a\x09\x09full", SinkMessage::EntryRefused { entry: 9, end });
    check(b"\x02\x1d\x00", SinkMessage::Rate(None));
    check(b"\x03\x1d\x41\x00", SinkMessage::Rate(Some(Rate::from_bps(256))));
    let name = |follows| ListedName { path: path.clone(), follows };
    let names = vec![name(false)];
    check(b"\x06\x1b\x01\x03a/b", SinkMessage::Names { names, is_last: true });
    let names = vec![name(true)];
    check(b"\x07\x1b\x01\x04a/b/", SinkMessage::Names { names, is_last: true });
    check(b"\x02\x1b\x00", SinkMessage::Names { names: Vec::new(), is_last: false });
    for wrong in
        [&b"\x02\x1b\x02"[..], b"\x03\x1b\x00\x00", b"\x05\x1b\x01\x02/b", b"\x04\x1b\x01\x01/"]
    {
        assert!(decode(wrong).is_err());
    }
    let paths = vec![b"a".to_vec(), b"b/c".to_vec()];
    check(b"\x07\x16\x01a\x03b/c", SinkMessage::Deleted { paths });
    let end = EntryEnd::new(EntryCode::Permission, "no");
    check(b"\x06\x17\x01a\x05no", SinkMessage::NotDeleted { path: b"a".to_vec(), end });
    // It was left on purpose: a note, and no failure.
    let end = EntryEnd::new(EntryCode::Skipped, "no");
    check(b"\x06\x17\x01a\x01no", SinkMessage::NotDeleted { path: b"a".to_vec(), end });
    let asked = vec![(3, 0..1), (4, 2..7)];
    check(b"\x08\x1a\x01\x03\x00\x01\x04\x02\x05", SinkMessage::Compare(asked));
    let hashes = FileHashes { entry: 4, first_group: 2, values: vec![[9; 32], [8; 32]] };
    let mut bytes = vec![0x46, 0x1a, 2, 4, 2, 0x40, 64];
    bytes.splice(..1, [0x40, 70]);
    bytes.extend([[9; 32], [8; 32]].as_flattened());
    check(&bytes, SourceMessage::Compared(vec![hashes]));
    assert!(decode(b"\x02\x16\x00").is_err() && decode(b"\x03\x16\x01\x00").is_err());
    let summary = Summary {
        confirmed: 1,
        failed: 2,
        skipped: 6,
        unchanged: 7,
        bytes: Bytes::new(3),
        resumed: Bytes::new(4),
        notes: 5,
        not_kept: 8,
        host: literal_host(),
    };
    check(
        &[&[30, 11, 1, 2, 6, 7, 3, 4, 5, 8][..], &LITERAL_HOST].concat(),
        SinkMessage::Result(summary.into()),
    );
}

#[test]
fn a_code_that_nobody_knows_or_that_the_other_end_sends_is_a_plain_failure() {
    let failed = |entry, end| Message::from(SourceMessage::EntryFailed { entry, end });
    let refused = |entry, end| Message::from(SinkMessage::EntryRefused { entry, end });
    let plain = || EntryEnd::new(EntryCode::Failed, "x");
    for code in [19, 255, EntryCode::Unchanged as u8, EntryCode::NoSpace as u8] {
        assert_eq!(decode(&[4, 5, 9, code, b'x']), Ok(vec![failed(9, plain())]));
    }
    for code in [19, 255, EntryCode::Skipped as u8, EntryCode::ReadError as u8] {
        assert_eq!(decode(&[4, 10, 9, code, b'x']), Ok(vec![refused(9, plain())]));
    }
    // Nor is such a code sent.
    let end = EntryEnd::new(EntryCode::Skipped, "x");
    assert_eq!(encode(&refused(9, end)), [4, 10, 9, 0, b'x']);
}

const LITERAL_HOST: [u8; 21] =
    [11, 12, 13, 14, 15, 16, 8, 17, 18, 19, 20, 3, 21, 22, 23, 24, 25, 26, 27, 28, 29];

fn literal_host() -> HostAccount {
    let micros = Duration::from_micros;
    HostAccount {
        cpu_time: micros(11),
        stalls: 12,
        stalled: micros(13),
        longest_stall: micros(14),
        limits: 15,
        limited: micros(16),
        limited_by: Bottleneck::ReceiverBuffer,
        suspends: 17,
        suspended: micros(18),
        missed: 19,
        missed_time: micros(20),
        remedies: HostAccount::WATCHES | HostAccount::SHORT_TURNS,
        buffer_asked: Bytes::new(21),
        buffer_granted: Bytes::new(22),
        stalled_by: StallTimes {
            preempted: micros(23),
            quota: micros(24),
            stolen: micros(25),
            busy: micros(26),
        },
        lost: HostLosses { socket: 27, backlog: 28, card: 29 },
    }
}

#[test]
fn forbidden_values() {
    for bytes in [
        &[0][..],                                  // no type
        &[1, 15],                                  // unknown type
        &[2, 14, 1],                               // pipe without a name
        &[3, 14, 3, b'x'],                         // end of a pipe
        &[3, 14, 1, 0],                            // zero byte in a name
        &[4, 1, 3, 0, 0],                          // direction
        &[4, 1, 1, 8, 0],                          // flag
        &[6, 1, 1, 0, 1, 1, 0],                    // zero byte in a path
        &[4, 1, 1, 0, 1],                          // path missing
        &[3, 3, 0, 0],                             // field missing
        &[5, 3, 0, 0, 0, 0],                       // field too many
        &[4, 4, 0, 0, 7],                          // part of a hash
        &[10, 8, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0, 0], // object 2^32
        &[4, 7, 0, 3, 0],                          // empty range
        &[3, 7, 0, 3],                             // half a range
        &[11, 9, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        &[8, 2, 0, 0, 1, 1, 0, 0, 1], // object without entries
        &[8, 2, 0, 0, 1, 1, 0, 1, 0], // object without bytes
        &[2, 5, 0],                   // no code
        &[4, 5, 0, 0, 0xff],          // reason is not UTF-8
        &[13, 13, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 1], // report without its last field
        &[0x80, 0x10, 0, 1],          // longer than 1 MiB: no need to wait for it
    ] {
        assert!(decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn forbidden_entries() {
    let good = encode(
        &SourceMessage::Manifest { first_entry: 0, entries: vec![file()], objects: vec![] }.into(),
    );
    assert!(decode(&good).is_ok());
    let kind = 4;
    let path = good.len() - 4;
    for (at, value) in [(kind, 0), (kind, 4), (kind + 1, 0x81), (path, b'/'), (path + 2, 0)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(decode(&bad).is_err(), "{at}");
    }
}

#[test]
fn attributes_that_cannot_be_are_refused() {
    let with = |kind: u8, attributes: &[u8]| {
        let mut entry = vec![2, 0, 1, kind, 0, 0];
        entry.extend([0; 8]);
        entry.push(10);
        entry.extend([0; 16]);
        entry.extend(b"\x01a");
        Writer::append(&mut entry).sized(attributes).unwrap();
        entry.push(0);
        let mut message = Vec::new();
        Writer::append(&mut message).sized(&entry).unwrap();
        decode(&message)
    };
    assert!(with(0x81, &[1, 2, 2, 8]).is_ok());
    for (kind, wrong) in [
        (0x81, &[][..]),
        (0x81, &[1, 2, 2, 9]),
        (0x81, &[1, 2, 0, 10]),
        (0x81, &[1, 2, 2, 0]),
        (0x81, &[1, 4, 2, 3, 0, 1]),
        (0x81, &[1, 1, 2]),
        (0x81, &[1, 3, 2]),
        (0x81, &[1, 2, 2, 1, 1, 2, 2, 1]),
        (0x81, &[99, 0]),
        (0x82, &[1, 2, 2, 1]),
        (0x83, &[1, 2, 2, 1]),
    ] {
        assert!(with(kind, wrong).is_err(), "{kind} {wrong:?}");
    }
    assert!(with(0x81, &vec![1; 10 << 10]).is_err());
    assert!(with(0x81, &vec![1; MAX_ATTRIBUTES + 1]).is_err());
}

#[test]
fn a_claimed_count_reserves_nothing() {
    let mut bytes = vec![18, 2, 0];
    bytes.extend([0xbf, 0xff, 0xff, 0xff]);
    bytes.extend([1; 12]);
    assert!(decode(&bytes).is_err());
}

#[test]
fn too_long_is_not_written() {
    let values = vec![[1; 32]; MAX_MESSAGE / 32];
    let message = SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values };
    let mut out = Vec::new();
    assert_eq!(message.encode(&mut out), Err(Full));
    assert!(out.is_empty());
}

#[test]
fn only_permission_bits_are_written() {
    let entry = Entry { mode: 0o100_644, ..file() };
    let manifest =
        SourceMessage::Manifest { first_entry: 0, entries: vec![entry], objects: vec![] };
    let expected =
        SourceMessage::Manifest { first_entry: 0, entries: vec![file()], objects: vec![] };
    assert_eq!(decode(&encode(&manifest.into())), Ok(vec![expected.into()]));
}

fn number() -> impl Strategy<Value = u64> {
    (0u32..61, any::<u64>()).prop_map(|(bits, low)| low & ((1 << (bits + 1)) - 1) & varint::MAX)
}

fn some_ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::vec((number(), 1u64..1 << 61), 0..5).prop_map(|pairs| {
        pairs
            .into_iter()
            .map(|(s, n)| s..(s + n).min(varint::MAX))
            .filter(|r| !r.is_empty())
            .collect()
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        3 => Just(EntryKind::File),
        1 => Just(EntryKind::Directory),
        1 => prop::collection::vec(1u8.., 1..60).prop_map(|target| EntryKind::Link { target }),
    ];
    let path = prop::collection::vec("[a-z\u{1}-\u{1f}é]{1,9}", 0..5)
        .prop_map(|parts| EntryPath::new(parts.join("/").into_bytes()).unwrap());
    let holes = prop::collection::vec((1u64..1 << 40, 1u64..1 << 40), 0..5);
    let entry = (kind, 0u16..0o10000, any::<i64>(), number(), any::<[u8; 16]>(), path, holes);
    entry.prop_map(|(kind, mode, modified, size, identity, path, holes)| {
        let mut past = 0;
        let ranges = holes.into_iter().map(|(hole, len)| {
            past += hole + len;
            past - len..past
        });
        let data = DataRanges::new(ranges.collect());
        let data = data.filter(|data| kind == EntryKind::File && data.fit(size));
        // The names are as good as any.
        let name = identity[..usize::from(identity[0] % 4)].iter().map(|byte| byte | 1).collect();
        let account = Account { id: size as u32 & 0x7fff_ffff, name };
        let access = AccessList(vec![
            AccessEntry { tag: 1, permissions: identity[1] % 8, account: None },
            AccessEntry { tag: 8, permissions: 5, account: Some(account.clone()) },
        ]);
        let xattr =
            Xattr { name: identity[4..9].iter().map(|b| b | 1).collect(), value: identity.into() };
        let is = |bit: u8| identity[2] & bit != 0;
        let metadata = Metadata {
            owner: is(1).then(|| account.clone()),
            group: is(2).then_some(account),
            xattrs: is(4).then_some(xattr).into_iter().collect(),
            access: (is(8) && !matches!(kind, EntryKind::Link { .. })).then(|| access.clone()),
            default_access: (is(16) && kind == EntryKind::Directory).then_some(access),
            hard_link: match identity[3] % 4 {
                _ if kind == EntryKind::Directory => None,
                0 => Some(HardLink::First),
                1 => Some(HardLink::To(size)),
                _ => None,
            },
            other_names: match identity[3] % 8 {
                4 if kind != EntryKind::Directory => vec![EntryPath::new(b"a/b".to_vec()).unwrap()],
                _ => Vec::new(),
            },
        };
        let attributes = Attributes { data, metadata: metadata.boxed() };
        Entry { kind, mode, modified, size, identity, path, attributes }
    })
}

fn listed(entry: Entry) -> Listed {
    let Entry { kind, mode, modified, size, path, .. } = entry;
    let kind = match kind {
        EntryKind::File if size % 2 == 1 => ListedKind::Other,
        EntryKind::File => ListedKind::File,
        EntryKind::Directory => ListedKind::Directory,
        EntryKind::Link { target } => ListedKind::Link { target },
    };
    Listed { kind, mode, modified, size, path }
}

fn report() -> impl Strategy<Value = SourceReport> {
    let numbers = prop::collection::vec(number(), 13);
    let codes = (0u8..13, 0u8..13, 0u8..12);
    (numbers, codes, host()).prop_map(|(n, (bound, bottleneck, memory), host)| SourceReport {
        packets_sent: n[0],
        packets_resent: n[1],
        lost: Losses {
            congestion: n[2],
            random: n[3],
            socket: n[4],
            host: n[5],
            sender: n[6],
            unknown: n[7],
        },
        rtt: Duration::from_micros(n[8]),
        rtt_min: Duration::from_micros(n[9]),
        bound: Bottleneck::from_code(bound),
        bottleneck: Bottleneck::from_code(bottleneck),
        memory: MemoryUse::from_code(memory),
        remembered: Rate::from_bps(n[10]),
        access_lists: n[11],
        xattrs: n[12],
        host,
    })
}

fn host() -> impl Strategy<Value = HostAccount> {
    (prop::collection::vec(number(), 20), 0u8..13).prop_map(|(n, by)| HostAccount {
        cpu_time: Duration::from_micros(n[0]),
        stalls: n[1],
        stalled: Duration::from_micros(n[2]),
        longest_stall: Duration::from_micros(n[3]),
        limits: n[4],
        limited: Duration::from_micros(n[5]),
        limited_by: Bottleneck::from_code(by),
        suspends: n[6],
        suspended: Duration::from_micros(n[7]),
        missed: n[8],
        missed_time: Duration::from_micros(n[9]),
        remedies: n[10],
        buffer_asked: Bytes::new(n[11]),
        buffer_granted: Bytes::new(n[12]),
        stalled_by: StallTimes {
            preempted: Duration::from_micros(n[13]),
            quota: Duration::from_micros(n[14]),
            stolen: Duration::from_micros(n[15]),
            busy: Duration::from_micros(n[16]),
        },
        lost: HostLosses { socket: n[17], backlog: n[18], card: n[19] },
    })
}

fn message() -> impl Strategy<Value = Message> {
    let reason = || ".{0,60}";
    let end = |sent: fn(EntryCode) -> EntryCode| {
        (any::<u8>(), reason()).prop_map(move |(code, reason)| {
            EntryEnd::new(sent(EntryCode::from_code(code)), &reason)
        })
    };
    let id = || any::<u32>().prop_map(ObjectId);
    let path = prop::collection::vec(1u8.., 0..60);
    let object = (id(), number(), 1u64..1 << 60, 1u64..1 << 60).prop_map(
        |(id, first_entry, entries, size)| ManifestObject {
            id,
            first_entry: first_entry / 2,
            entries,
            size,
        },
    );
    let source = prop_oneof![
        (number(), prop::collection::vec(entry(), 0..6), prop::collection::vec(object, 0..4))
            .prop_map(|(first, entries, objects)| SourceMessage::Manifest {
                first_entry: first / 2,
                entries,
                objects,
            }),
        (number(), number(), number()).prop_map(|(entries, objects, bytes)| {
            SourceMessage::ManifestEnd { entries, objects, bytes: Bytes::new(bytes) }
        }),
        (id(), number(), prop::collection::vec(any::<[u8; 32]>(), 0..4)).prop_map(
            |(object, first, values)| SourceMessage::Hashes {
                object,
                first_group: first / 2,
                values,
            }
        ),
        (id(), number(), prop::collection::vec(any::<[u8; 16]>(), 0..4)).prop_map(
            |(object, first, tags)| SourceMessage::Tags { object, first_group: first / 2, tags }
        ),
        (id(), some_ranges())
            .prop_map(|(object, groups)| SourceMessage::Believed { object, groups }),
        prop::collection::vec((number(), 0..1u64 << 40, 1usize..4), 0..4).prop_map(|files| {
            let file = |(entry, first_group, count)| FileHashes {
                entry,
                first_group,
                values: vec![[entry as u8; 32]; count],
            };
            SourceMessage::Compared(files.into_iter().map(file).collect())
        }),
        (number(), end(EntryCode::of_source))
            .prop_map(|(entry, end)| SourceMessage::EntryFailed { entry, end }),
        report().prop_map(|report| SourceMessage::Report(report.into())),
    ];
    let counts = (number(), number(), number(), number());
    let result = (counts, number(), number(), number(), host()).prop_map(
        |((confirmed, failed, skipped, unchanged), bytes, resumed, notes, host)| {
            SinkMessage::Result(Box::new(Summary {
                confirmed,
                failed,
                skipped,
                unchanged,
                bytes: Bytes::new(bytes),
                resumed: Bytes::new(resumed),
                notes,
                not_kept: notes / 3,
                host,
            }))
        },
    );
    let tagged = (number(), prop::collection::vec(any::<([u8; 32], [u8; 16])>(), 0..4));
    let offered = prop_oneof![
        some_ranges().prop_map(Offered::Untagged),
        tagged.prop_map(|(first, groups)| Offered::Tagged { first_group: first / 2, groups }),
    ];
    let sink = prop_oneof![
        (id(), offered).prop_map(|(object, groups)| SinkMessage::Offer { object, groups }),
        number().prop_map(|objects| SinkMessage::Accept { objects }),
        (id(), some_ranges()).prop_map(|(object, groups)| SinkMessage::Have { object, groups }),
        (id(), number()).prop_map(|(object, group)| SinkMessage::Repair { object, group }),
        some_ranges().prop_map(|entries| SinkMessage::Confirm { entries }),
        some_ranges().prop_map(|entries| SinkMessage::Elsewhere { entries }),
        (number(), end(EntryCode::of_sink))
            .prop_map(|(entry, end)| SinkMessage::EntryRefused { entry, end }),
        prop::collection::vec(prop::collection::vec(1u8.., 1..9), 0..4)
            .prop_map(|paths| SinkMessage::Deleted { paths }),
        number().prop_map(|rate| SinkMessage::Rate((rate > 0).then(|| Rate::from_bps(rate)))),
        (any::<bool>(), "[a-z]{1,8}(/[a-z]{1,8}){0,3}").prop_map(|(is_last, name)| {
            let path = EntryPath::new(name.into_bytes()).unwrap();
            let names = vec![ListedName { path, follows: !is_last }];
            SinkMessage::Names { names, is_last }
        }),
        some_ranges().prop_map(|groups| {
            SinkMessage::Compare(groups.into_iter().map(|range| (range.start, range)).collect())
        }),
        (prop::collection::vec(1u8.., 1..9), end(EntryCode::of_deletion))
            .prop_map(|(path, end)| SinkMessage::NotDeleted { path, end }),
        result,
    ];
    let rule =
        (any::<bool>(), prop::collection::vec(1u8.., 1..9)).prop_map(|(include, pattern)| {
            let kind = if include { FilterKind::Include } else { FilterKind::Exclude };
            FilterRule { kind, pattern }
        });
    let lists = (prop::collection::vec(path, 0..4), prop::collection::vec(rule, 0..4));
    let deletes = prop::option::of(prop::option::of(0..varint::MAX))
        .prop_map(|it| it.map(|most| Deletes { most }));
    let request = (any::<[bool; 18]>(), deletes, lists).prop_map(|(flags, deletes, lists)| {
        let (paths, rules) = lists;
        let [push, destination_is_directory, sync_at_end, copy_contents, unhashed, ..] = flags;
        Request {
            direction: if push { Direction::Push } else { Direction::Pull },
            destination_is_directory,
            sync_at_end,
            copy_contents,
            unhashed,
            keeps_unchanged: flags[5],
            keeps_newer: flags[6],
            destination_is_name: flags[7],
            dry_run: flags[8],
            compares_contents: flags[9],
            names_follow: flags[10],
            destination_stays: flags[17],
            deletes,
            keeps_attributes: [1, 2, 4, 8, 16, 64]
                .into_iter()
                .zip(&flags[11..17])
                .fold(KeptAttributes::default(), |all, (bit, set)| {
                    all.with(KeptAttributes::from_bits(bit).unwrap(), *set)
                }),
            label: [7; 16],
            paths,
            rules,
        }
    });
    let pipe = (any::<bool>(), prop::collection::vec(1u8.., 1..=MAX_PIPE_NAME)).prop_map(
        |(send, name)| PipeRequest {
            role: if send { PipeRole::Send } else { PipeRole::Receive },
            name,
        },
    );
    let list = (any::<bool>(), prop::collection::vec(1u8.., 0..60))
        .prop_map(|(recursive, path)| ListRequest { recursive, path });
    let path = prop::collection::vec(1u8.., 0..60);
    let verify = (any::<bool>(), path, prop::collection::vec(question(), 0..6))
        .prop_map(|(is_last, path, questions)| VerifyRequest { path, questions, is_last });
    let answer = prop_oneof![
        prop::collection::vec(entry(), 0..6)
            .prop_map(|all| { AnswerMessage::Listed(all.into_iter().map(listed).collect()) }),
        (prop::collection::vec(any::<u8>(), 0..60), end(EntryCode::of_source))
            .prop_map(|(path, end)| AnswerMessage::Unlisted { path, end }),
        (number(), number()).prop_map(|(listed, unlisted)| AnswerMessage::End { listed, unlisted }),
        prop::collection::vec(hashed(), 0..6).prop_map(AnswerMessage::Hashed),
        prop::collection::vec(left(), 0..6).prop_map(AnswerMessage::Left),
    ];
    let leftovers = (any::<bool>(), prop::collection::vec(1u8.., 0..60))
        .prop_map(|(discard, path)| LeftoversRequest { discard, path });
    prop_oneof![
        1 => list.prop_map(Message::from),
        1 => verify.prop_map(Message::from),
        1 => leftovers.prop_map(Message::from),
        1 => answer.prop_map(Message::from),
        1 => request.prop_map(Message::from),
        1 => pipe.prop_map(Message::from),
        1 => (any::<u16>(), reason(), prop::option::of((0..1u64 << 40, 0..1u64 << 40)))
            .prop_map(|(code, reason, part)| {
                let part = part.map(|(path, names)| AskedPart { path, names });
                Refused { code: CloseCode(code), reason, part }.into()
            }),
        4 => source.prop_map(Message::from),
        4 => sink.prop_map(Message::from),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    (any::<bool>(), entry()).prop_map(|(hash, entry)| match hash {
        true => Question::Hash(entry.path),
        false => Question::List(entry.path),
    })
}

fn left() -> impl Strategy<Value = Left> {
    let states = [LeftState::Interrupted, LeftState::Running, LeftState::Discarded];
    let sources = prop::collection::vec(any::<u8>(), 0..MAX_SOURCES);
    let all = (0..3_usize, (number(), number(), number()), entry(), sources);
    all.prop_map(move |(state, (idle, bytes, total), Entry { path, .. }, sources)| Left {
        state: states[state],
        idle,
        bytes,
        total,
        path,
        sources,
    })
}

fn hashed() -> impl Strategy<Value = Hashed> {
    let outcome = prop_oneof![
        (number(), any::<[u8; 32]>()).prop_map(|(size, hash)| HashOutcome::Is { size, hash }),
        (0..EntryCode::ALL.len(), ".{0,40}").prop_map(|(code, reason)| {
            let code = EntryCode::ALL[code].of_source();
            HashOutcome::Failed(EntryEnd { code, reason })
        }),
        number().prop_map(|bytes| HashOutcome::Begun { bytes }),
    ];
    (number(), outcome).prop_map(|(question, outcome)| Hashed { question, outcome })
}

proptest! {
    #[test]
    fn round_trip_in_any_pieces(
        messages in prop::collection::vec(message(), 0..5),
        pieces in prop::collection::vec(1usize..90, 1..9),
    ) {
        let bytes: Vec<u8> = messages.iter().flat_map(encode).collect();
        let mut reader = MessageReader::new();
        let mut got = Vec::new();
        let (mut rest, mut sizes) = (&bytes[..], pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            reader.push(piece);
            rest = behind;
            while let Some(message) = reader.next_message().unwrap() {
                got.push(message);
            }
        }
        prop_assert_eq!(got, messages);
        prop_assert!(reader.is_between_messages());
    }

    #[test]
    fn a_manifest_is_as_long_as_its_parts(entries in prop::collection::vec(entry(), 0..9)) {
        let parts: usize = entries.iter().map(Entry::encoded_len).sum();
        let manifest = SourceMessage::Manifest { first_entry: 0, entries, objects: vec![] };
        let len = encode(&manifest.into()).len();
        prop_assert_eq!(len, varint::len(parts as u64 + 4) + parts + 4);
    }

    #[test]
    fn a_listing_is_as_long_as_its_parts(entries in prop::collection::vec(entry(), 0..9)) {
        let listed = AnswerMessage::Listed(entries.into_iter().map(listed).collect());
        let parts = listed.cost();
        prop_assert_eq!(encode(&listed.into()).len(), varint::len(parts as u64 + 1) + parts + 1);
    }

    #[test]
    fn truncated_bodies_are_errors_or_other_messages(message in message(), cut in 0usize..50) {
        let bytes = encode(&message);
        let (_, prefix) = varint::decode(&bytes).unwrap();
        let body = &bytes[prefix..];
        let body = &body[..body.len().saturating_sub(cut)];
        if let Ok(shorter) = Message::decode(body) {
            prop_assert_eq!(shorter == message, cut == 0);
        }
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 1u8..31) {
        let _ = decode(&bytes);
        let mut body = vec![kind];
        body.extend(&bytes);
        if let Ok(message) = Message::decode(&body) {
            let again = encode(&message);
            prop_assert_eq!(decode(&again), Ok(vec![message]));
        }
    }
}
