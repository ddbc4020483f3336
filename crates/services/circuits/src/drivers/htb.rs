use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_sys::host;

use super::{Driver, Switch};
use crate::ledger::Id;

/// A real switch for the lab: HTB classes on an interface of this machine.
///
/// Each booking has a class of its own, 1:10 and up, whose rate is its ceiling too. Packets to the
/// booking's destination are sorted into it; others go there by `SO_PRIORITY`. What belongs to no
/// booking shares class 1:1, which lends what is left. One `tc` process stays open and takes a
/// line per change, since starting one takes longer than a boundary may.
#[derive(Debug)]
pub struct Htb {
    interface: String,
    capacity_bps: u64,
    tc: Tc,
    classes: BTreeMap<Id, u16>,
}

impl Htb {
    /// A driver for `interface`, which carries `capacity_bps`.
    ///
    /// # Errors
    /// There is no `tc`.
    pub fn new(interface: &str, capacity_bps: u64) -> Result<Self, String> {
        let (interface, classes) = (interface.to_owned(), BTreeMap::new());
        Ok(Self { interface, capacity_bps, tc: Tc::start()?, classes })
    }

    /// A class that no booking has.
    fn spare(&self) -> Option<u16> {
        let used = |minor: &u16| self.classes.values().any(|class| class == minor);
        (FIRST..=LAST).find(|minor| !used(minor))
    }
}

impl Driver for Htb {
    /// A rate that comes late has been another booking's, so thread and `tc` run before others. A
    /// `tc` that is started later inherits it.
    fn begin(&mut self) -> Result<(), String> {
        let both = host::run_first().and_then(|()| host::run_child_first(&self.tc.child));
        both.map_err(|error| {
            format!(
                "rates may change late while this machine is busy: what changes them may not run \
                 before others ({error}); CAP_SYS_NICE would allow it"
            )
        })
    }

    fn reset(&mut self) -> Result<(), String> {
        self.classes.clear();
        let (dev, capacity) = (&self.interface, self.capacity_bps);
        let rest = (capacity / 100).max(8000);
        // That there was no such qdisc is no fault, but tc says it like one: a process of its own.
        let _ = Command::new("tc")
            .args(["qdisc", "del", "dev", dev, "root"])
            .stderr(Stdio::null())
            .status();
        let made =
            run(&["qdisc", "add", "dev", dev, "root", "handle", "1:", "htb", "default", "1"]);
        made.map_err(|why| format!("{dev}: {why}"))?;
        self.tc.line(&format!(
            "class add dev {dev} parent 1: classid 1:1 htb rate {rest}bit ceil {capacity}bit prio \
             7 quantum {QUANTUM}"
        ))
    }

    fn set(&mut self, switch: &Switch) -> Result<(), String> {
        let dev = &self.interface;
        let Some(minor) = self.classes.get(&switch.booking).copied().or_else(|| self.spare())
        else {
            return Err(format!("{dev}: no class is left for booking {}", switch.booking));
        };
        let known = self.classes.contains_key(&switch.booking);
        if switch.rate_bps == 0 {
            if known {
                if switch.destination.is_some() {
                    self.tc.line(&format!("filter del dev {dev} parent 1: prio {minor}"))?;
                }
                self.tc.line(&format!("class del dev {dev} classid 1:{minor:x}"))?;
                self.classes.remove(&switch.booking);
            }
            return Ok(());
        }
        let (verb, rate) = (if known { "change" } else { "add" }, switch.rate_bps);
        self.tc.line(&format!(
            "class {verb} dev {dev} parent 1: classid 1:{minor:x} htb rate {rate}bit ceil \
             {rate}bit prio 0 quantum {QUANTUM}"
        ))?;
        if !known {
            self.classes.insert(switch.booking, minor);
            if let Some(to) = switch.destination {
                let (protocol, field, bits) = match to {
                    IpAddr::V4(_) => ("ip", "ip", 32),
                    IpAddr::V6(_) => ("ipv6", "ip6", 128),
                };
                self.tc.line(&format!(
                    "filter add dev {dev} parent 1: protocol {protocol} prio {minor} u32 match \
                     {field} dst {to}/{bits} flowid 1:{minor:x}"
                ))?;
            }
        }
        Ok(())
    }
}

/// A `tc` that reads commands.
#[derive(Debug)]
struct Tc {
    child: Child,
    input: ChildStdin,
    complaints: Arc<Mutex<String>>,
}

impl Tc {
    fn start() -> Result<Self, String> {
        let mut child = Command::new("tc")
            .args(["-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("tc: {error}"))?;
        let (Some(input), Some(mut errors)) = (child.stdin.take(), child.stderr.take()) else {
            return Err("tc: no pipes".into());
        };
        let complaints = Arc::new(Mutex::new(String::new()));
        let heard = complaints.clone();
        let reader = std::thread::Builder::new().name("tc errors".into());
        let reader = reader.spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = errors.read(&mut buffer) {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                if heard.len() < COMPLAINTS_MAX {
                    heard.push_str(&String::from_utf8_lossy(&buffer[..length]));
                }
            }
        });
        reader.map_err(|error| format!("tc: {error}"))?;
        Ok(Self { child, input, complaints })
    }

    /// Gives a command. What tc has complained about earlier ones is the error: it answers nothing
    /// when it is content.
    fn line(&mut self, line: &str) -> Result<(), String> {
        // Some versions of tc look at the next line before they do this one.
        let written = self.input.write_all(format!("{line}\n\n").as_bytes());
        if let Err(error) = written {
            *self = Self::start()?;
            return Err(format!("tc ended ({error}) and was started again"));
        }
        let complaint =
            std::mem::take(&mut *self.complaints.lock().unwrap_or_else(PoisonError::into_inner));
        match complaint.trim() {
            "" => Ok(()),
            text => Err(format!("tc: {text}")),
        }
    }
}

impl Drop for Tc {
    fn drop(&mut self) {
        // It would end by itself once its input is closed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(args: &[&str]) -> Result<(), String> {
    let done = Command::new("tc").args(args).output().map_err(|error| format!("tc: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("tc: {}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}

/// First and last class of a booking.
const FIRST: u16 = 0x10;
const LAST: u16 = 0xfff0;
/// Bytes that a class sends in its turn: one large segment.
const QUANTUM: u32 = 65536;
/// More is not kept.
const COMPLAINTS_MAX: usize = 4096;
