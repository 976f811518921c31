//! How switches, cables, adapters and the MPI library behave: every parameter of a run.

use serde::Deserialize;

use crate::EngineError;

/// Where the buffer space a packet holds is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buffering {
    /// InfiniBand: the packet stays in the input buffer until its tail has left the switch.
    Input,
    /// An output buffer takes the packet as soon as there is credit for its next hop, and the
    /// input space is free at once. CODES' fat tree, which the thesis used, is of this kind.
    Output,
}

/// When a packet may leave a switch it is still entering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switching {
    /// Its head leaves while its tail arrives.
    CutThrough,
    /// Its head leaves after its tail has arrived.
    StoreAndForward,
}

/// How one link is chosen among the candidates of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Least queue at the switch itself, ties by a random start (per packet).
    Adaptive,
    /// Uniformly at random per packet.
    Random,
    /// D-mod-k: by destination (Zahavi et al., 2010), the same for every packet.
    Deterministic,
}

/// Whether packets leave the shortest way, where the routing rule offers detours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detour {
    /// Minimal routes.
    Never,
    /// By a random intermediate place (Valiant, 1982).
    Valiant,
    /// Minimal or Valiant, whichever looks cheaper at the first switch (UGAL-L; Singh, 2005).
    Ugal,
}

/// How an adapter shares its link between messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Injection {
    /// One message after the other.
    Fifo,
    /// A packet of each message in turn.
    RoundRobin,
}

/// When a port counts as congested (thesis §3.2 and §5.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Its queue, the packet included, exceeds its available credit (§3.2).
    QueueExceedsCredit,
    /// Its queue exceeds a threshold.
    Queue,
    /// Its credit falls below a threshold.
    Credit,
    /// With a probability that grows with its queue, 1 at the threshold.
    Proportional,
}

/// When a port is looked at (thesis §5.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// As the packet arrives and its output is known.
    Arrival,
    /// As it is inserted in the output queue, credit in hand.
    Insertion,
    /// As its head leaves.
    Departure,
}

/// Every parameter of a run but the fabric and the traffic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seed of every random choice.
    pub seed: u64,
    /// Payload of a full packet.
    pub packet_bytes: u32,
    /// What a packet costs on the wire on top of its payload.
    pub header_bytes: u32,
    /// Buffer at the far end of each link.
    pub buffer_bytes: u32,
    /// See [`Buffering`].
    pub buffering: Buffering,
    /// See [`Switching`].
    pub switching: Switching,
    /// From a packet's head at the input to its head at the output, nothing in the way.
    pub switch_delay_ps: u64,
    /// See [`Routing`].
    pub routing: Routing,
    /// See [`Detour`].
    pub detour: Detour,
    /// See [`Injection`].
    pub injection: Injection,
    /// Software latency between the posting of a send and its first byte at the adapter.
    pub send_delay_ps: u64,
    /// Messages above this wait for their receive to be posted.
    pub eager_bytes: u64,
    /// Rate between ranks of one host.
    pub local_gbps: f64,
    /// Latency between ranks of one host.
    pub local_delay_ps: u64,
    /// False: packets meet nobody, only their own adapter's line rate (the ideal network).
    pub contention: bool,
    /// Sample packets and count links.
    pub measure: bool,
    /// See [`Rule`].
    pub rule: Rule,
    /// Threshold of the rules that have one.
    pub rule_bytes: u64,
    /// See [`When`].
    pub when: When,
    /// Count the injection link as a hop.
    pub count_injection: bool,
    /// Time windows: at least so many, at most twice as many (fewer if the run is very short).
    pub windows: u32,
}

/// The least a packet occupies on the wire: an InfiniBand header with its checksums, rounded up.
pub const MIN_WIRE_BYTES: u32 = 32;

impl Settings {
    /// Bytes on the wire of a packet with `payload` bytes.
    #[inline]
    pub fn wire_bytes(&self, payload: u32) -> u32 {
        (payload + self.header_bytes).max(MIN_WIRE_BYTES)
    }

    /// Checks values against each other.
    ///
    /// # Errors
    /// [`EngineError::Setting`] names the field, the value and the valid range.
    pub fn check(&self) -> Result<(), EngineError> {
        let wrong =
            |field, value: String, valid: String| Err(EngineError::Setting { field, value, valid });
        if self.packet_bytes == 0 || self.packet_bytes > 1 << 20 {
            return wrong("packet", self.packet_bytes.to_string(), "1 B to 1 MiB".into());
        }
        if self.header_bytes > 1 << 16 {
            return wrong("header", self.header_bytes.to_string(), "0 B to 64 KiB".into());
        }
        let least = self.wire_bytes(self.packet_bytes);
        if self.buffer_bytes < least {
            let valid = format!("at least one packet: {least} B");
            return wrong("buffer", format!("{} B", self.buffer_bytes), valid);
        }
        if !(self.local_gbps > 0.0 && self.local_gbps.is_finite()) {
            return wrong("local_rate", self.local_gbps.to_string(), "above 0".into());
        }
        if self.windows == 0 {
            return wrong("windows", "0".into(), "at least 1".into());
        }
        if self.rule == Rule::Proportional && self.rule_bytes == 0 {
            return wrong("rule_bytes", "0".into(), "above 0 for rule proportional".into());
        }
        Ok(())
    }
}
