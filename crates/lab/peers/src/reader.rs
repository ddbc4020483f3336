//! A reader that does nothing but read, watched: no transfer, but what a host shows before it drops.

use longhaul_lab::Testbed;
use longhaul_lab::signals::{Watch, watch};
use longhaul_sys::host::allowed_cpus;
use longhaul_sys::udp::UdpOptions;

use crate::contender::{Absent, Contender, ContenderError, Job, Outcome, Presence, Transport};
use crate::session::Session;

/// At the receiving node's loopback, for as long as the job's bytes take at its rate.
pub(crate) struct WatchedReader;

impl WatchedReader {
    pub(crate) const USUAL: &[&str] = &["watched reader"];

    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        Self::USUAL.contains(&name).then(|| Box::new(Self) as _)
    }
}

impl Contender for WatchedReader {
    fn name(&self) -> &str {
        Self::USUAL[0]
    }

    fn about(&self) -> String {
        "no transfer: a paced sender and a reader on one host, whose signals are recorded".into()
    }

    fn presence(&self) -> Result<Presence, Absent> {
        Ok(Presence { version: "of this program".into(), program: None })
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        job.memory_only()?;
        let rate = job.rate.ok_or_else(|| ContenderError::unsuitable("it needs a rate"))?;
        let host = testbed.host(&job.to);
        let host = host.ok_or_else(|| {
            ContenderError::unsuitable(format!("the testbed has no node {}", job.to))
        })?;
        let buffer =
            job.socket_buffer.map_or(UdpOptions::default().receive_buffer, |of| of as usize);
        let cores = allowed_cpus().map_err(ContenderError::system("find the processors"))?;
        let topology = testbed.topology();
        let core = |node: &str, otherwise: Option<&usize>| {
            let node = topology.node(node).map(|node| &topology.nodes[node]);
            let own = node.and_then(|node| node.cores.first());
            own.or(otherwise).copied().unwrap_or_default()
        };
        let (ours, shared) = (core(&job.from, cores.first()), core(&job.to, cores.last()));
        let (spells, length) = (job.spells.clone(), rate.time_for(job.bytes).min(job.patience));
        let mut session = Session::new(testbed, job)?;
        session.begin()?;
        let seen = watch(host, &Watch { rate, buffer, ours, shared, spells, length });
        let seen = seen.map_err(ContenderError::system("watch a reader"))?;
        let outcome = session.close()?.outcome(self.presence()?, job);
        Ok(Outcome {
            transport: Transport::Udp,
            bytes: seen.bytes,
            signals: Some((seen.signals, seen.trace)),
            ..outcome
        })
    }
}
