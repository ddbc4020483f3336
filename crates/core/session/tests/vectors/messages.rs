//! Messages of stream 0 and the TCP carrier (docs/protocol.md sections 7 and 8).

use longhaul_session::Session;
use longhaul_units::{Bytes, Duration, LaneId, MemoryUse, ObjectId, PacketNumber, Rate};
use longhaul_wire::{
    AskedPart, Attributes, Bottleneck, Cipher, CloseCode, Direction, Entry, EntryCode, EntryEnd,
    EntryKind, EntryPath, Frame, JOIN_LEN, Losses, ManifestObject, Message, MessageReader, Offered,
    PipeRequest, PipeRole, RecordHead, Refused, Request, SinkMessage, SourceMessage, SourceReport,
    Summary, Writer,
};
use siphasher::sip::SipHasher24;

use crate::packets::seal;
use crate::page::Page;

pub fn write(page: &mut Page, session: &Session) {
    messages(page);
    tcp(page, session);
}

fn messages(page: &mut Page) {
    page.section(
        "Messages of stream 0 (6, 7.2)",
        "A push of `photos` with a directory, a file, an empty file and a link, and each other\n\
         message once. The file's contents are object 0.",
    );
    let request = Request {
        destination_is_directory: true,
        label: [7; 16],
        ..Request::new(Direction::Push, vec![b"archive".to_vec()])
    };
    show(page, "REQUEST", request.into());
    let object = ObjectId(0);
    let manifest = SourceMessage::Manifest {
        first_entry: 0,
        entries: vec![
            entry(EntryKind::Directory, 0o755, 0, "photos"),
            entry(EntryKind::File, 0o644, 2_500_000, "photos/sea.raw"),
            entry(EntryKind::File, 0o600, 0, "photos/empty"),
            entry(EntryKind::Link { target: b"sea.raw".to_vec() }, 0o777, 0, "photos/latest"),
        ],
        objects: vec![ManifestObject { id: object, first_entry: 1, entries: 1, size: 2_500_000 }],
    };
    show(page, "MANIFEST", manifest.into());
    let end = SourceMessage::ManifestEnd { entries: 4, objects: 1, bytes: Bytes::new(2_500_000) };
    show(page, "MANIFEST_END", end.into());
    let groups = Offered::Tagged { first_group: 0, groups: vec![([0x11; 32], [0x44; 16])] };
    show(page, "OFFER", SinkMessage::Offer { object, groups }.into());
    let groups = Offered::Untagged(core::iter::once(2..3).collect());
    show(page, "OFFER", SinkMessage::Offer { object, groups }.into());
    let groups = core::iter::once(0..1).collect();
    show(page, "BELIEVED", SourceMessage::Believed { object, groups }.into());
    show(page, "ACCEPT", SinkMessage::Accept { objects: 1 }.into());
    let have = SinkMessage::Have { object, groups: vec![0..1, 2..3] };
    show(page, "HAVE", have.into());
    let tags = vec![[0x44; 16], [0x55; 16]];
    show(page, "TAGS", SourceMessage::Tags { object, first_group: 1, tags }.into());
    let values = vec![[0x11; 32], [0x22; 32]];
    show(page, "HASHES", SourceMessage::Hashes { object, first_group: 1, values }.into());
    show(page, "REPAIR", SinkMessage::Repair { object, group: 1 }.into());
    let entries = vec![0..2, 3..4];
    show(page, "CONFIRM", SinkMessage::Confirm { entries }.into());
    let end = EntryEnd::new(EntryCode::Changed, "gone");
    show(page, "ENTRY_FAILED", SourceMessage::EntryFailed { entry: 2, end }.into());
    let end = EntryEnd::new(EntryCode::InTheWay, "exists");
    show(page, "ENTRY_REFUSED", SinkMessage::EntryRefused { entry: 2, end }.into());
    let summary = Summary {
        confirmed: 3,
        failed: 1,
        skipped: 0,
        unchanged: 0,
        bytes: Bytes::new(2_500_000),
        resumed: Bytes::new(1_451_424),
        notes: Summary::TIMES_NOT_SET,
        not_kept: 0,
        host: longhaul_wire::HostAccount {
            cpu_time: Duration::from_micros(9_000),
            ..Default::default()
        },
    };
    show(page, "RESULT", SinkMessage::Result(summary.into()).into());
    let report = SourceReport {
        packets_sent: 703_000,
        packets_resent: 712,
        lost: Losses { congestion: 90, random: 600, socket: 3, host: 0, sender: 8, unknown: 2 },
        rtt: Duration::from_micros(100_250),
        rtt_min: Duration::from_micros(100_020),
        bound: Bottleneck::UserLimit,
        bottleneck: Bottleneck::Network,
        memory: MemoryUse::Confirmed,
        remembered: Rate::from_mbps(930),
        access_lists: 0,
        xattrs: 2,
        host: longhaul_wire::HostAccount {
            cpu_time: Duration::from_micros(1_500_000),
            ..Default::default()
        },
    };
    show(page, "REPORT", SourceMessage::Report(report.into()).into());
    let part = Some(AskedPart { path: 0, names: 2 });
    let refused = Refused { code: CloseCode::REFUSED, reason: "no such directory".into(), part };
    show(page, "REFUSED", refused.into());
    let pipe = PipeRequest { role: PipeRole::Send, name: b"run-17".to_vec() };
    show(page, "PIPE", pipe.into());
}

fn tcp(page: &mut Page, session: &Session) {
    page.section(
        "TCP carrier (8)",
        "The join of TCP connection 1, then the heads of a record of 9 bytes of frames and of one of\n\
         65536 bytes of object 7 from offset 1048576 on.",
    );
    let mut join = [0xa5; JOIN_LEN];
    session.join(LaneId(1)).emit(&mut join);
    page.bytes("join", join);
    let object = RecordHead::Object { object: ObjectId(7), offset: 1 << 20, len: 1 << 16 };
    for (name, head) in [("frames", RecordHead::Frames { len: 9 }), ("object", object)] {
        let mut bytes = Vec::new();
        head.encode(&mut Writer::append(&mut bytes)).unwrap();
        assert_eq!(RecordHead::parse(&bytes), Ok(Some((head, bytes.len()))));
        page.bytes(name, bytes);
    }
    records(page, session);
}

/// Records as they are outside TLS, under the keys of connection 1 from client to server.
fn records(page: &mut Page, session: &Session) {
    page.part(
        "Records under `clear`",
        "The first three from the client on TCP connection 1, AES-128-GCM: CLOSE `done`, 20 bytes of\n\
         object 7 from offset 4096 on, CLOSE `done` again.",
    );
    let lane = LaneId(1);
    let mut keys = session.send_record_keys(lane);
    let mut close = Vec::new();
    let frame = Frame::Close { code: CloseCode::DONE, reason: "" };
    frame.encode(&mut Writer::append(&mut close)).unwrap();
    let payload = b"twenty bytes of data";
    let object = RecordHead::Object { object: ObjectId(7), offset: 4096, len: payload.len() };
    for (i, body) in [&close[..], payload, &close].into_iter().enumerate() {
        let (number, keys) = keys.next_record().unwrap();
        if i == 0 {
            page.bytes("packet key", keys.packet_key(Cipher::ChaCha20Poly1305));
            page.bytes("iv", keys.nonce(PacketNumber::new(0)));
            page.bytes("header key", keys.header_key());
        }
        let mut record = Vec::new();
        let head = if i == 1 { object } else { RecordHead::Frames { len: body.len() } };
        head.encode(&mut Writer::append(&mut record)).unwrap();
        if i == 1 {
            let signed = [&record[..], &number.get().to_be_bytes(), &[0; 8]].concat();
            let tag = SipHasher24::new_with_key(keys.header_key()).hash(&signed);
            record.extend(tag.to_le_bytes());
            record.extend(body);
        } else {
            let (sealed, tag) = seal(Cipher::Aes128Gcm, keys, number, &record, body);
            record.extend([sealed, tag].concat());
        }
        page.bytes(&format!("record {i}"), record);
    }
}

/// The message as it stands on the stream; it must read back as the same.
fn show(page: &mut Page, name: &str, message: Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    let mut reader = MessageReader::new();
    reader.push(&bytes);
    assert_eq!(reader.next_message(), Ok(Some(message)));
    page.bytes(name, bytes);
}

fn entry(kind: EntryKind, mode: u16, size: u64, path: &str) -> Entry {
    Entry {
        kind,
        mode,
        modified: 1_700_000_000_123_456_789,
        size,
        identity: *b"identity16 bytes",
        path: EntryPath::new(path.into()).unwrap(),
        attributes: Attributes::default(),
    }
}
