use longhaul_pathsim::PathConfig;
use proptest::prelude::*;

use super::checksum::{add, sum};
use super::*;

#[test]
fn datagrams_are_put_together_as_they_were_before_they_were_cut() {
    for (ip, payload) in [(Ip::V4, 5 * 1000), (Ip::V4, 4 * 1000 + 1), (Ip::V6, 3 * 1000)] {
        let whole = super_packet(GsoKind::Udp, ip, payload, 1000);
        let shape = Shape::parse(&whole).unwrap();
        let singles: Vec<Vec<u8>> = (0..shape.segments)
            .map(|first| {
                let cut = Cut::new(&shape, &whole, Part { first, count: 1, marked: false });
                [cut.headers(), &whole[cut.payload.clone()]].concat()
            })
            .collect();
        let mut place = vec![0; 70_000];
        place[..singles[0].len()].copy_from_slice(&singles[0]);
        let mut joined = Joined::start(&singles[0]);
        for single in &singles[1..] {
            assert!(joined.add(&mut place, single), "{ip:?}");
        }
        let mut others = vec![super_packet(GsoKind::Udp, ip, 1000, 1000)];
        let header = whole.len() - payload - VNET_LEN;
        // A destination port, an address, a traffic class, a finished checksum, one byte too long.
        for at in [VNET_LEN + header - 6, VNET_LEN + header - 9, VNET_LEN + 1, 0] {
            let mut other = singles[1].clone();
            other[at] ^= 1;
            others.push(other);
        }
        others.push([&singles[1][..], &[0]].concat());
        assert!(others.iter().all(|other| !joined.add(&mut place, other)), "{ip:?}");
        // Behind a short one there is none.
        assert_eq!(joined.add(&mut place, &singles[0]), payload % 1000 == 0);
        let len = joined.finish(&mut place);
        if payload % 1000 == 0 {
            let more = super_packet(GsoKind::Udp, ip, payload + 1000, 1000);
            assert_eq!(
                (len, &place[..VNET_LEN + header]),
                (more.len(), &more[..VNET_LEN + header])
            );
        } else {
            assert_eq!(place[..len], whole);
        }
    }
    // Others stay as they are.
    for kind in [GsoKind::Tcp4, GsoKind::Udp] {
        let packet = super_packet(kind, Ip::V4, 3000, 1000);
        let mut place = packet.clone();
        let mut alone = Joined::start(&packet);
        assert!(!alone.add(&mut place, &packet));
        assert_eq!((alone.finish(&mut place), place), (packet.len(), packet.clone()));
    }
    assert!(!Joined::start(&[0; 12]).add(&mut [0; 12], &[0; 12]));
}

/// A super-packet as the kernel hands it out: `kind` over `ip` with `payload` bytes of payload.
fn super_packet(kind: GsoKind, ip: Ip, payload: usize, segment: u16) -> Vec<u8> {
    let protocol = if kind == GsoKind::Udp { UDP } else { TCP };
    let transport_header = if kind == GsoKind::Udp { UDP_HEADER } else { 32 };
    let transport_len = transport_header + payload;
    let mut packet = match ip {
        Ip::V4 => {
            let mut header = vec![0x45, 0x02, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0];
            header.extend([198, 51, 100, 1, 198, 51, 100, 2]);
            let len = (header.len() + transport_len) as u16;
            header[2..4].copy_from_slice(&len.to_be_bytes());
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        Ip::V6 => {
            let mut header = vec![0x60, 0x20, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
            header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            header
        }
    };
    let at = packet.len();
    packet.extend([0x13, 0x88, 0x1c, 0xfc]);
    let field = if kind == GsoKind::Udp {
        packet.extend((transport_len as u16).to_be_bytes());
        packet.extend([0, 0]);
        6
    } else {
        // Sequence number just below its wrap; flags CWR, ACK, PSH, FIN; options.
        packet.extend([0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x80, 0x99, 1, 0, 0, 0, 0, 0]);
        packet.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        16
    };
    let addresses = match ip {
        Ip::V4 => 12..20,
        Ip::V6 => 8..40,
    };
    let pseudo = add(add(sum(&packet[addresses]), transport_len as u16), protocol.into());
    packet[at + field..at + field + 2].copy_from_slice(&pseudo.to_be_bytes());
    packet.extend((0..payload).map(|index| (index % 253) as u8));
    let vnet = VnetHeader {
        needs_checksum: true,
        gso: Some(kind),
        gso_ecn: kind != GsoKind::Udp,
        header_len: (at + transport_header) as u16,
        segment,
        checksum_start: at as u16,
        checksum_offset: field as u16,
    };
    [vnet.emit().to_vec(), packet].concat()
}

fn kinds() -> [(GsoKind, Ip); 4] {
    [
        (GsoKind::Tcp4, Ip::V4),
        (GsoKind::Tcp6, Ip::V6),
        (GsoKind::Udp, Ip::V4),
        (GsoKind::Udp, Ip::V6),
    ]
}

fn put_together(cut: &Cut, packet: &[u8]) -> Vec<u8> {
    [cut.headers(), &packet[cut.payload.clone()]].concat()
}

#[test]
fn every_segment_is_a_correct_packet_of_its_own() {
    for (kind, ip) in kinds() {
        let packet = super_packet(kind, ip, 10_000, 1400);
        let shape = Shape::parse(&packet).unwrap();
        assert_eq!((shape.segments, shape.ecn), (8, Ecn::Ect0));
        let ip_len = packet.len() - VNET_LEN;
        assert_eq!(shape.segment_len() * 7 + shape.last_len(), {
            let headers = u32::from(shape.headers);
            ip_len as u32 + 7 * headers
        });
        let mut payload: Vec<u8> = Vec::new();
        for first in 0..shape.segments {
            let part = Part { first, count: 1, marked: first == 3 };
            let cut = Cut::new(&shape, &packet, part);
            let bytes = put_together(&cut, &packet);
            let single = Shape::parse(&bytes).unwrap();
            assert_eq!((single.vnet.gso, single.segments), (None, 1));
            let expected = if first == 7 { shape.last_len() } else { shape.segment_len() };
            assert_eq!(single.len, expected);
            assert_eq!(single.ecn, if first == 3 { Ecn::Ce } else { Ecn::Ect0 });
            assert_eq!(single.flow, shape.flow);
            let ip_header = &bytes[VNET_LEN..];
            let at = usize::from(shape.vnet.checksum_start);
            let addresses = match ip {
                Ip::V4 => {
                    assert_eq!(sum(&ip_header[..20]), 0xffff, "the header's checksum");
                    let id = u16::from_be_bytes([ip_header[4], ip_header[5]]);
                    assert_eq!(id, 0xfffe_u16.wrapping_add(first));
                    &ip_header[12..20]
                }
                Ip::V6 => &ip_header[8..40],
            };
            let transport = &ip_header[at..];
            let field = usize::from(shape.vnet.checksum_offset);
            let pseudo =
                add(add(sum(addresses), transport.len() as u16), shape.flow.protocol.into());
            assert_eq!(transport[field..field + 2], pseudo.to_be_bytes());
            if kind == GsoKind::Udp {
                assert_eq!(transport[4..6], (transport.len() as u16).to_be_bytes());
            } else {
                let sequence = 0xffff_fff0_u32.wrapping_add(u32::from(first) * 1400);
                assert_eq!(transport[4..8], sequence.to_be_bytes());
                // ACK always; CWR first; PSH and FIN last.
                let flags =
                    [0x10, 0x90, 0x19][if first == 0 { 1 } else { usize::from(first == 7) * 2 }];
                assert_eq!(transport[13], flags, "segment {first}");
            }
            payload.extend(&packet[cut.payload.clone()]);
        }
        assert!(payload == packet[VNET_LEN + usize::from(shape.headers)..]);
    }
}

#[test]
fn a_run_of_segments_stays_a_super_packet() {
    for (kind, ip) in kinds() {
        let packet = super_packet(kind, ip, 10_000, 1400);
        let shape = Shape::parse(&packet).unwrap();
        let run = Cut::new(&shape, &packet, Part { first: 5, count: 3, marked: false });
        let bytes = put_together(&run, &packet);
        let again = Shape::parse(&bytes).unwrap();
        assert_eq!((again.vnet.gso, again.vnet.segment, again.segments), (Some(kind), 1400, 3));
        assert!(!again.vnet.gso_ecn, "CWR went with the first segment");
        // Cutting a run gives what cutting the whole gives.
        for (index, first) in (5..8).enumerate() {
            let of_run =
                Cut::new(&again, &bytes, Part { first: index as u16, count: 1, marked: false });
            let of_all = Cut::new(&shape, &packet, Part { first, count: 1, marked: false });
            assert!(put_together(&of_run, &bytes) == put_together(&of_all, &packet));
        }
        // Marking a whole packet changes two bits and a checksum.
        let all = Part { first: 0, count: shape.segments, marked: true };
        let marked = put_together(&Cut::new(&shape, &packet, all), &packet);
        let changed = packet.iter().zip(&marked).filter(|(a, b)| a != b).count();
        assert!(marked.len() == packet.len() && (1..=3).contains(&changed), "{changed}");
        assert_eq!(Shape::parse(&marked).unwrap().ecn, Ecn::Ce);
    }
}

#[test]
fn corruption_is_found_by_the_checksum() {
    // A path that corrupts everything gives flips as they come.
    let config =
        PathConfig { corruption: longhaul_pathsim::Probability::ONE, ..Default::default() };
    let mut path = longhaul_pathsim::Path::new(&config, 1, longhaul_units::Instant::ZERO).unwrap();
    for (kind, ip) in kinds() {
        let packet = super_packet(kind, ip, 3_000, 1400);
        let shape = Shape::parse(&packet).unwrap();
        let fate = path.offer(longhaul_units::Instant::ZERO, 1000, Ecn::NotEct);
        let flip = fate.arrival().unwrap().corrupted.unwrap();
        let cut = Cut::new(&shape, &packet, Part { first: 1, count: 1, marked: false });
        let mut out = Vec::new();
        corrupted(&shape, &packet, &cut, flip, &mut out);
        let wrong = Shape::parse(&out).unwrap();
        assert!(!wrong.vnet.needs_checksum);
        let at = usize::from(shape.vnet.checksum_start);
        let ip_packet = &mut out[VNET_LEN..];
        let addresses = match ip {
            Ip::V4 => 12..20,
            Ip::V6 => 8..40,
        };
        let pseudo = add(
            add(sum(&ip_packet[addresses]), (ip_packet.len() - at) as u16),
            shape.flow.protocol.into(),
        );
        assert_ne!(add(pseudo, sum(&ip_packet[at..])), 0xffff);
        let behind = &mut ip_packet[at..];
        let (byte, mask) = flip.bit(behind.len()).unwrap();
        behind[byte] ^= mask;
        assert_eq!(add(pseudo, sum(behind)), 0xffff, "but for the one bit it is right");
    }
}

#[test]
fn packets_too_big_are_answered_once_and_errors_never() {
    for (kind, ip) in kinds() {
        let packet = super_packet(kind, ip, 10_000, 1400);
        let shape = Shape::parse(&packet).unwrap();
        let answer = too_big(&shape, &packet, 1300).unwrap();
        let about = Shape::parse(&answer).unwrap();
        assert_eq!(about.segments, 1);
        let ip_packet = &answer[VNET_LEN..];
        let icmp = &ip_packet[usize::from(about.headers)..];
        match ip {
            Ip::V4 => {
                assert_eq!(sum(&ip_packet[..20]), 0xffff);
                assert_eq!((ip_packet.len(), sum(icmp)), (576, 0xffff));
                assert_eq!(icmp[..8], [3, 4, icmp[2], icmp[3], 0, 0, 0x05, 0x14]);
                assert_eq!(ip_packet[16..20], [198, 51, 100, 1]);
            }
            Ip::V6 => {
                let pseudo = add(add(sum(&ip_packet[8..40]), icmp.len() as u16), 58);
                assert_eq!((ip_packet.len(), add(pseudo, sum(icmp))), (1280, 0xffff));
                assert_eq!(icmp[..8], [2, 0, icmp[2], icmp[3], 0, 0, 0x05, 0x14]);
            }
        }
        assert_eq!(icmp[8..48], packet[VNET_LEN..VNET_LEN + 40]);
        assert_eq!(too_big(&about, &answer, 100), None);
    }
}

#[test]
fn packets_that_routers_keep_are_kept() {
    let mut v4 = super_packet(GsoKind::Udp, Ip::V4, 100, 50);
    assert!(!stays_on_link(&v4));
    for destination in [[224, 0, 0, 251], [255, 255, 255, 255], [169, 254, 1, 1]] {
        v4[VNET_LEN + 16..VNET_LEN + 20].copy_from_slice(&destination);
        assert!(stays_on_link(&v4));
    }
    let mut v6 = super_packet(GsoKind::Udp, Ip::V6, 100, 50);
    assert!(!stays_on_link(&v6));
    for destination in [[0xff, 0x02], [0xfe, 0x80], [0xfe, 0xbf]] {
        v6[VNET_LEN + 24..VNET_LEN + 26].copy_from_slice(&destination);
        assert!(stays_on_link(&v6));
    }
    v6[VNET_LEN + 24..VNET_LEN + 26].copy_from_slice(&[0xfe, 0xc0]);
    assert!(!stays_on_link(&v6));
    assert!(!stays_on_link(&[]) && !stays_on_link(&[0; 12]));
}

proptest! {
    #[test]
    fn nonsense_does_not_panic(
        kind in 0usize..4,
        payload in 0usize..5_000,
        segment in 1u16..3_000,
        damage in proptest::collection::vec((0usize..110, any::<u8>()), 0..6),
        cut_at in 0usize..5_100,
    ) {
        let (kind, ip) = kinds()[kind];
        let mut packet = super_packet(kind, ip, payload, segment);
        for (at, byte) in damage {
            if let Some(slot) = packet.get_mut(at) {
                *slot = byte;
            }
        }
        packet.truncate(cut_at);
        stays_on_link(&packet);
        let Some(shape) = Shape::parse(&packet) else { return Ok(()) };
        too_big(&shape, &packet, 1300);
        for first in [0, shape.segments / 2, shape.segments - 1] {
            for count in [1, shape.segments - first] {
                let cut = Cut::new(&shape, &packet, Part { first, count, marked: true });
                prop_assert!(cut.payload.end <= packet.len());
            }
        }
        prop_assert!(shape.segment_len() > 0 && shape.last_len() > 0);
    }
}
