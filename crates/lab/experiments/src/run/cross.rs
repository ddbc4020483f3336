use std::io;

use longhaul_lab::Testbed;
use longhaul_lab::pump::{Pumping, TcpPump};
use longhaul_sys::clock;

use crate::experiment::Cross;

/// TCP connections that cross the transfer, until this is dropped.
pub(super) struct Crossing {
    flows: Vec<Pumping>,
}

impl Crossing {
    /// Starts them and gives them time to settle.
    pub(super) fn start(cross: &Cross, testbed: &Testbed) -> io::Result<Self> {
        let host = |name: &str| testbed.host(name).ok_or(io::ErrorKind::NotFound);
        let (from, to) = (host(&cross.from)?, host(&cross.to)?);
        let pump = TcpPump::new(&cross.congestion_control, 1);
        let flows = (0..cross.flows).map(|_| pump.start(from, to));
        let flows = flows.collect::<io::Result<Vec<_>>>()?;
        clock::sleep_until(clock::now() + cross.settle);
        Ok(Self { flows })
    }

    /// Bytes that each of them has received.
    pub(super) fn received(&self) -> Vec<u64> {
        self.flows.iter().map(Pumping::received).collect()
    }
}
