//! How switches, cables, adapters and the MPI library behave: every parameter of a run.

mod congestion;
mod pacing;
mod probes;

pub use congestion::{CongestionControl, CongestionScheme};
pub use pacing::{Pacing, PacingOffset};
pub use probes::{HeaderScheme, HeaderSettings, Probes};

use std::fmt;

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
    /// VC routing: by the first packet of each message, where the fewest messages go (document 004).
    #[serde(rename = "vc")]
    VirtualCircuit,
}

/// Who is next at an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The input ports in turn.
    RoundRobin,
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
    /// A line of messages for each destination, the lines in turn.
    PerDestination,
}

/// As a scenario says it.
impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::RoundRobin => "round-robin",
            Self::PerDestination => "per-destination",
        })
    }
}

/// When a port counts as congested (thesis §3.2 and §5.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkingRule {
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
pub enum MarkingPoint {
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
    /// Entries of a switch, of routing `vc`.
    #[serde(default)]
    pub vc_entries: u32,
    /// See [`Pacing`].
    #[serde(default)]
    pub pacing: Pacing,
    /// See [`PacingOffset`].
    #[serde(default)]
    pub pacing_offset: PacingOffset,
    /// See [`Detour`].
    pub detour: Detour,
    /// See [`Arbitration`].
    #[serde(default)]
    pub arbitration: Arbitration,
    /// How much faster than its link an input port hands packets to the crossbar; 0: no limit.
    #[serde(default)]
    pub crossbar_speedup: f64,
    /// Service levels: each has the virtual lanes the routing rule needs for its own.
    #[serde(default = "one")]
    pub services: u8,
    /// Bytes a lane may send before the next one's turn, by service level; empty: no arbitration
    /// between lanes but the order of arrival (or a packet each in turn where outputs are given out
    /// one packet at a time).
    #[serde(default)]
    pub lane_weights: Vec<u32>,
    /// See [`CongestionControl`]; none: off.
    #[serde(default)]
    pub congestion_control: Option<CongestionControl>,
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
    /// See [`MarkingRule`].
    pub rule: MarkingRule,
    /// Threshold of the rules that have one.
    pub rule_bytes: u64,
    /// See [`MarkingPoint`].
    pub when: MarkingPoint,
    /// Count the injection link as a hop.
    pub count_injection: bool,
    /// Time windows: at least so many, at most twice as many (fewer if the run is very short).
    pub windows: u32,
    /// Further probes.
    #[serde(default)]
    pub probes: Probes,
}

impl Default for Settings {
    /// InfiniBand at 100 Gb/s: 4 KiB packets, 64 KiB buffers, 60 ns switches, adaptive routing; no
    /// probes.
    fn default() -> Self {
        Self {
            seed: 1,
            packet_bytes: 4096,
            header_bytes: 0,
            buffer_bytes: 65536,
            buffering: Buffering::Input,
            switching: Switching::CutThrough,
            switch_delay_ps: 60_000,
            routing: Routing::Adaptive,
            vc_entries: 0,
            pacing: Pacing::Off,
            pacing_offset: PacingOffset::None,
            detour: Detour::Never,
            arbitration: Arbitration::Fcfs,
            crossbar_speedup: 0.0,
            services: 1,
            lane_weights: Vec::new(),
            congestion_control: None,
            injection: Injection::Fifo,
            send_delay_ps: 0,
            eager_bytes: u64::MAX,
            local_gbps: 400.0,
            local_delay_ps: 500_000,
            contention: true,
            measure: false,
            rule: MarkingRule::QueueExceedsCredit,
            rule_bytes: 16384,
            when: MarkingPoint::Arrival,
            count_injection: false,
            windows: 64,
            probes: Probes::default(),
        }
    }
}

fn one() -> u8 {
    1
}

/// The least a packet occupies on the wire: an InfiniBand header with its checksums, rounded up.
pub const MIN_WIRE_BYTES: u32 = 32;

impl Settings {
    /// Bytes on the wire of a packet with `payload` bytes.
    #[inline]
    pub fn wire_bytes(&self, payload: u32) -> u32 {
        (payload + self.header_bytes).max(MIN_WIRE_BYTES)
    }

    /// Whether packets of a message arrive in the order they were sent in.
    pub(crate) fn in_order(&self) -> bool {
        matches!(self.routing, Routing::Deterministic | Routing::VirtualCircuit)
            && self.detour == Detour::Never
            && self.contention
    }

    /// Whether a packet that arrives meets congestion just where it has to wait for credit: all that is in the
    /// queue waits for it.
    pub(crate) fn marks_on_grant(&self) -> bool {
        let by_credit = self.rule == MarkingRule::QueueExceedsCredit;
        by_credit && self.when == MarkingPoint::Arrival && !self.arbitrated()
    }

    /// Whether what happens at a switch may matter at once to nodes that are not its neighbours: on an ideal
    /// network, and where switches tell senders of a red light.
    pub(crate) fn reaches_far(&self) -> bool {
        let control = self.congestion_control.as_ref();
        !self.contention
            || control.is_some_and(|c| matches!(c.scheme, CongestionScheme::Rgbcc { .. }))
    }

    /// Whether outputs are given out one packet at a time (see `arbiter.rs`).
    pub fn arbitrated(&self) -> bool {
        self.arbitration != Arbitration::Fcfs
            || self.crossbar_speedup > 0.0
            || !self.lane_weights.is_empty()
    }

    /// What lane `lane` of a link may send before the next one's turn.
    pub(crate) fn weight_bytes(&self, lane: u8) -> u32 {
        let services = usize::from(self.services.max(1));
        let weight = self.lane_weights.get(usize::from(lane) % services);
        weight.copied().unwrap_or(0)
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
        if !(1..=8).contains(&self.services) {
            return wrong("services", self.services.to_string(), "1 to 8".into());
        }
        if !(self.crossbar_speedup == 0.0 || (0.1..=1000.0).contains(&self.crossbar_speedup)) {
            let valid = "0 (no limit) or 0.1 to 1000".into();
            return wrong("crossbar_speedup", self.crossbar_speedup.to_string(), valid);
        }
        if !(self.lane_weights.is_empty() || self.lane_weights.len() == usize::from(self.services))
        {
            let valid = format!("as many as services, {}, or none", self.services);
            return wrong("lane_weights", format!("{} weights", self.lane_weights.len()), valid);
        }
        if self.pacing != Pacing::Off && self.injection != Injection::PerDestination {
            let valid = "per-destination where flows are paced".into();
            return wrong("injection", self.injection.to_string(), valid);
        }
        if let Pacing::Elastic { percent } = self.pacing
            && !(1..=100).contains(&percent)
        {
            return wrong("pacing percent", percent.to_string(), "1 to 100".into());
        }
        if self.routing == Routing::VirtualCircuit && self.detour != Detour::Never {
            let valid = "never where routing is vc".into();
            return wrong("detour", format!("{:?}", self.detour), valid);
        }
        if let Some(control) = &self.congestion_control {
            if self.injection != Injection::PerDestination {
                let valid = "per-destination where congestion control is on".into();
                return wrong("injection", self.injection.to_string(), valid);
            }
            if let Some((value, valid)) = control.problem() {
                return wrong("congestion_control", value, valid.into());
            }
        }
        self.probes.check()?;
        if self.windows == 0 {
            return wrong("windows", "0".into(), "at least 1".into());
        }
        if self.rule == MarkingRule::Proportional && self.rule_bytes == 0 {
            return wrong("rule_bytes", "0".into(), "above 0 for rule proportional".into());
        }
        Ok(())
    }
}
