use crate::registry::registry;

registry! {
    /// Limit of the rate of a transfer, with the codes of docs/protocol.md section 9.1.
    Bottleneck
    #[default]
    0 Unknown "unknown"
    1 Network "network"
    2 SenderCpu "sender CPU"
    3 ReceiverCpu "receiver CPU"
    4 SenderDisk "sender disk"
    5 ReceiverDisk "receiver disk"
    6 Reservation "reservation"
    7 UserLimit "user limit"
    8 ReceiverBuffer "receiver buffer"
    9 StartUp "start-up"
    10 SenderBuffer "sender buffer"
    11 Input "input"
    12 Output "output"
}

impl Bottleneck {
    /// Their number; codes are below.
    pub const COUNT: usize = Self::ALL.len();
}
