//! Changes as include/uapi/linux/pkt_sched.h and pkt_cls.h have them.

use std::net::IpAddr;

use longhaul_units::{Bytes, Rate};

use super::{Change, Class};
use crate::netlink::Request;

impl Change {
    /// The request to the kernel, for the device of this number.
    pub(super) fn request(&self, device: u32) -> Request {
        let new = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let (message, flags, handle, parent, information) = match *self {
            Self::Clear => (libc::RTM_DELQDISC, 0, 0, TC_H_ROOT, 0),
            Self::AddHtb { .. } => (libc::RTM_NEWQDISC, new, HTB, TC_H_ROOT, 0),
            Self::AddClass(class) => {
                (libc::RTM_NEWTCLASS, new, of(class.number), of(class.parent), 0)
            }
            Self::ChangeClass(class) => {
                (libc::RTM_NEWTCLASS, 0, of(class.number), of(class.parent), 0)
            }
            Self::DeleteClass { class } => (libc::RTM_DELTCLASS, 0, of(class), 0, 0),
            Self::AddQueue { class, .. } => {
                (libc::RTM_NEWQDISC, new, (u32::from(class) + 1) << 16, of(class), 0)
            }
            Self::AddFilter { class, to } => {
                let protocol = if to.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
                let information = priority(class) | u32::from((protocol as u16).to_be());
                (libc::RTM_NEWTFILTER, new, 0, HTB, information)
            }
            Self::DeleteFilter { class } => (libc::RTM_DELTFILTER, 0, 0, HTB, priority(class)),
        };
        let mut request = Request::new(message, flags);
        header(&mut request, device, handle, parent, information);
        match *self {
            Self::AddHtb { default } => describe_htb(&mut request, default),
            Self::AddClass(class) | Self::ChangeClass(class) => describe(&mut request, class),
            Self::AddQueue { limit, .. } => {
                request.text(libc::TCA_KIND, "bfifo");
                request.number(libc::TCA_OPTIONS, limit);
            }
            Self::AddFilter { class, to } => describe_filter(&mut request, class, to),
            Self::Clear | Self::DeleteClass { .. } | Self::DeleteFilter { .. } => {}
        }
        request
    }
}

/// struct tcmsg: family and padding, device, handle, parent, information.
pub(super) fn header(request: &mut Request, device: u32, handle: u32, parent: u32, more: u32) {
    for number in [0, device, handle, parent, more] {
        request.bytes.extend(number.to_ne_bytes());
    }
}

fn describe_htb(request: &mut Request, default: u16) {
    request.text(libc::TCA_KIND, "htb");
    request.nested(libc::TCA_OPTIONS, |options| {
        // struct tc_htb_glob: version, rate to quantum, class of what no filter matches.
        let init = [HTB_VERSION, 10, default.into(), 0, 0];
        options.attribute(TCA_HTB_INIT, &init.map(u32::to_ne_bytes).concat());
    });
}

fn describe(request: &mut Request, class: Class) {
    let rates = [class.rate, class.ceiling];
    let bytes_per_second = rates.map(|rate| rate.as_bps() / 8);
    request.text(libc::TCA_KIND, "htb");
    request.nested(libc::TCA_OPTIONS, |options| {
        let mut parameters = Vec::new();
        for rate in bytes_per_second {
            // struct tc_ratespec: logarithm of the cell, link layer (without tables), overhead,
            // alignment, least packet, rate.
            parameters.extend([0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
            parameters.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        // The rest of struct tc_htb_opt: buffer, cbuffer, quantum, level, priority.
        let [buffer, cbuffer] = rates.map(|rate| ticks(rate, class.burst));
        for number in [buffer, cbuffer, QUANTUM, 0, class.priority] {
            parameters.extend(number.to_ne_bytes());
        }
        options.attribute(TCA_HTB_PARMS, &parameters);
        for (kind, rate) in [TCA_HTB_RATE64, TCA_HTB_CEIL64].into_iter().zip(bytes_per_second) {
            options.attribute(kind, &rate.to_ne_bytes());
        }
    });
}

fn describe_filter(request: &mut Request, class: u16, to: IpAddr) {
    // The words of the destination, and where the first is in the IP header.
    let (address, at) = match to {
        IpAddr::V4(v4) => (v4.octets().to_vec(), 16),
        IpAddr::V6(v6) => (v6.octets().to_vec(), 24),
    };
    request.text(libc::TCA_KIND, "u32");
    request.nested(libc::TCA_OPTIONS, |options| {
        options.number(TCA_U32_CLASSID, of(class));
        // struct tc_u32_sel: flags, shift of offsets, keys, padding; the rest is of offsets.
        let words = address.chunks(4);
        let mut selector = vec![TC_U32_TERMINAL, 0, words.len() as u8, 0];
        selector.extend([0; 12]);
        for (word, at) in words.zip((at..).step_by(4)) {
            // struct tc_u32_key: mask, value, offset, mask of offsets.
            selector.extend([0xff; 4]);
            selector.extend(word);
            selector.extend(i32::to_ne_bytes(at));
            selector.extend([0; 4]);
        }
        options.attribute(TCA_U32_SEL, &selector);
    });
}

/// The time that a burst takes, as the kernel has it.
fn ticks(rate: Rate, burst: Bytes) -> u32 {
    u32::try_from(rate.time_for(burst.get()).as_nanos() / TICK_NANOS).unwrap_or(u32::MAX)
}

/// The handle of a class; of HTB itself for number 0.
fn of(class: u16) -> u32 {
    HTB | u32::from(class)
}

/// The priority of filters into a class.
fn priority(class: u16) -> u32 {
    u32::from(class) << 16
}

/// `1:` as `tc` writes it.
const HTB: u32 = 0x1_0000;
pub(super) const TC_H_ROOT: u32 = u32::MAX;
const HTB_VERSION: u32 = 3;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_LINKLAYER_ETHERNET: u8 = 1;
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TC_U32_TERMINAL: u8 = 1;
/// The unit of times, PSCHED_SHIFT of include/net/pkt_sched.h.
const TICK_NANOS: u128 = 64;
/// Bytes that a class sends in its turn: one large segment.
const QUANTUM: u32 = 65_536;
