/// Counts of a lane so far. All counts are since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Packets sent, of every kind.
    pub packets_sent: u64,
    /// Packets sent that carried object bytes sent before.
    pub packets_resent: u64,
    /// IP-layer bytes sent.
    pub bytes_sent: u64,
    /// Object bytes sent for the first time.
    pub fresh_bytes_sent: u64,
    /// Object bytes that are known to have arrived. Those of an extent offered again count again.
    pub fresh_bytes_delivered: u64,
    /// Packets taken as lost, or refused by the local stack. [`Path::losses`](crate::path::Path::losses)
    /// says why.
    pub lost: u64,
    /// Packets taken as lost that arrived later.
    pub spurious: u64,
    /// Packets of ours that arrived with the ECN mark CE, as the peer counts.
    pub marked: u64,
    /// IP-layer bytes that arrived, as the peer counts.
    pub bytes_delivered: u64,
    /// Probe timeouts.
    pub probe_timeouts: u64,
    /// Rounds of repair completed, where the policy has rounds.
    pub rounds: u64,
    /// FEEDBACK frames received.
    pub feedback_received: u64,
    /// FEEDBACK frames sent.
    pub feedback_sent: u64,
    /// Packets received that authenticated.
    pub packets_received: u64,
    /// IP-layer bytes received.
    pub bytes_received: u64,
    /// Packets missing because the socket of this host was full.
    pub socket_drops: u64,
    /// UDP payload bytes known to pass.
    pub datagram: u16,
}
