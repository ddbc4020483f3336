//! A stateful firewall of the kernel's (nf_tables, conntrack), set up without the program `nft`.

use std::fs::File;
use std::thread;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// From now on the namespace of process `of` takes in what it has asked for, from itself, and TCP to `port`.
pub fn let_in_answers(of: u32, port: u16) {
    let namespace = File::open(format!("/proc/{of}/ns/net")).unwrap();
    let set_up = move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).unwrap();
        Batch::of_input(port).commit();
    };
    thread::spawn(set_up).join().unwrap();
}

/// Requests that the kernel carries out together (linux/netfilter/nfnetlink.h).
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    requests: u32,
}

impl Batch {
    /// A chain in front of all sockets.
    fn of_input(port: u16) -> Self {
        let mut batch = Self::default();
        batch.add(BEGIN, REQUEST, (0, NF_TABLES), &[]);
        batch.ask(NEW_TABLE, &[text(1, "f")]);
        let hook = nested(4, &[number(1, LOCAL_IN), number(2, 0)]);
        let chain = [text(1, "f"), text(3, "in"), hook, number(5, DROP), text(7, "filter")];
        batch.ask(NEW_CHAIN, &chain);
        let tcp = [meta(L4_PROTOCOL), compare(EQUAL, &[6])];
        let own_port = [load_port(), compare(EQUAL, &port.to_be_bytes())];
        batch.accept(&[state(), mask(ESTABLISHED_OR_RELATED), compare(NOT_EQUAL, &[0; 4])]);
        batch.accept(&[meta(INPUT_DEVICE), compare(EQUAL, &1_u32.to_ne_bytes())]);
        batch.accept(&[tcp, own_port].concat());
        batch.add(END, REQUEST, (0, NF_TABLES), &[]);
        batch
    }

    /// A rule that lets in what all `expressions` hold for.
    fn accept(&mut self, expressions: &[Vec<u8>]) {
        let code = nested(2, &[number(1, ACCEPT)]);
        let accept = expression("immediate", &[number(1, 0), nested(2, &[code])]);
        let all = [expressions, &[accept]].concat();
        self.ask(NEW_RULE, &[text(1, "f"), text(2, "in"), nested(4, &all)]);
    }

    fn ask(&mut self, kind: u16, attributes: &[Vec<u8>]) {
        self.add(kind, REQUEST | ACKNOWLEDGE | CREATE | APPEND, (IPV4, 0), attributes);
        self.requests += 1;
    }

    fn add(&mut self, kind: u16, flags: u16, (family, id): (u8, u16), attributes: &[Vec<u8>]) {
        let body = attributes.concat();
        self.bytes.extend((20 + body.len() as u32).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        // A number, which nobody needs, and the port of the kernel.
        self.bytes.extend([0; 8]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(id.to_be_bytes());
        self.bytes.extend(body);
    }

    fn commit(self) {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let protocol: Option<Protocol> = Some(netlink::NETFILTER);
        let socket = socket_with(family, SocketType::RAW, flags, protocol).unwrap();
        send(&socket, &self.bytes, SendFlags::empty()).unwrap();
        let mut answers = 0;
        while answers < self.requests {
            let mut buffer = [0; 65_536];
            let (len, _) = recv(&socket, &mut buffer[..], RecvFlags::empty()).unwrap();
            let mut rest = &buffer[..len];
            while let Some(message) = rest.first_chunk::<20>() {
                let (head, error) = message.split_at(16);
                let len = u32::from_ne_bytes(head[..4].try_into().unwrap()) as usize;
                assert_eq!(error, [0; 4], "the kernel refused: {message:?}");
                answers += 1;
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

fn attribute(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let len = (4 + bytes.len() as u16).to_ne_bytes();
    let mut all = [&len[..], &kind.to_ne_bytes(), bytes].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | 0x8000, &attributes.concat())
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// linux/netfilter/nf_tables.h; what one leaves in the register is what the next one looks at.
fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, attributes)])
}

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)])
}

fn state() -> Vec<u8> {
    expression("ct", &[number(1, REGISTER), number(2, 0)])
}

/// Two bytes at 2 of the header of TCP.
fn load_port() -> Vec<u8> {
    let transport = number(2, 2);
    expression("payload", &[number(1, REGISTER), transport, number(3, 2), number(4, 2)])
}

fn mask(bits: u32) -> Vec<u8> {
    let data = |bytes: &[u8]| [attribute(1, bytes)];
    let (mask, flip) = (nested(4, &data(&bits.to_ne_bytes())), nested(5, &data(&[0; 4])));
    expression("bitwise", &[number(1, REGISTER), number(2, REGISTER), number(3, 4), mask, flip])
}

fn compare(how: u32, bytes: &[u8]) -> Vec<u8> {
    let data = nested(3, &[attribute(1, bytes)]);
    expression("cmp", &[number(1, REGISTER), number(2, how), data])
}

const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
const NF_TABLES: u16 = 10;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const IPV4: u8 = 2;
const LOCAL_IN: u32 = 1;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const REGISTER: u32 = 1;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const INPUT_DEVICE: u32 = 4;
const L4_PROTOCOL: u32 = 16;
const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
