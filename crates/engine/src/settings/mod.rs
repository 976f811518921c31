//! Settings of a run: how switches, cables, adapters and the MPI library behave.

mod adaptive;
mod congestion;
mod dcqcn;
mod pacing;
mod probes;
pub(crate) mod units;

pub use adaptive::{AdaptiveLoad, AdaptiveRule, AdaptiveTies, AdaptiveUnit};
pub use congestion::{CongestionControl, CongestionScheme};
pub use dcqcn::Dcqcn;
pub use pacing::{Pacing, PacingOffset};
pub use probes::{HeaderScheme, HeaderSettings, Probes, PsnStart, QueuePairs, Randomness};

use std::fmt;

use serde::Deserialize;
use tailback_fabric::Detour;

use crate::EngineError;
use crate::error::{ADAPTIVE, CONGESTION_CONTROL, ENGINE, PACING, TELEMETRY};
use units::{MAX_DELAY_PS, MAX_TIME_PS, size, time};

/// When the buffer space of a packet is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buffering {
    /// As in InfiniBand: when the packet's tail has left the switch.
    Input,
    /// An output buffer takes the packet as soon as there is credit for its next hop, which
    /// frees the input buffer. CODES' fat-tree model, which Taffet (2019) used, works this way.
    Output,
}

/// How a buffer keeps its sender from overrunning it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum FlowControl {
    /// InfiniBand: a sender has credit for the free bytes of the buffer.
    #[default]
    Credits,
    /// Priority flow control of Ethernet (IEEE 802.1Qbb): a buffer pauses its sender.
    Pfc {
        /// The buffer sends PAUSE when it holds more.
        xoff_bytes: u32,
        /// And RESUME when it holds no more than this.
        xon_bytes: u32,
    },
}

/// Whether a packet may leave a switch before it has entered completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switching {
    /// The head may leave while the tail is still arriving.
    CutThrough,
    /// The head leaves after the tail has arrived.
    StoreAndForward,
}

/// How one link is selected among the candidates of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// The shortest queue at this switch, ties broken by a random start; per packet.
    Adaptive,
    /// Uniformly at random per packet.
    Random,
    /// D-mod-k: by destination (Zahavi et al., 2010), the same for every packet.
    Deterministic,
    /// By a hash of the flow, the ranks at its ends, and of the hop (ECMP): the same for every packet of
    /// the flow.
    Ecmp,
    /// By a hash of nodes, hop, and an entropy value that the sender draws for each packet, as Ultra
    /// Ethernet does.
    Spray,
    /// Virtual-circuit routing: the first packet of each message takes the link with the fewest
    /// messages (Birk and Zdornov 2009).
    #[serde(rename = "vc")]
    VirtualCircuit,
}

/// Which packet an output serves next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Round-robin over the input ports.
    RoundRobin,
}

/// When a send up to the eager limit is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EagerSends {
    /// When its last byte has left the adapter.
    #[default]
    Sent,
    /// At once: its bytes are copied to a buffer of the library or of the operating system.
    Copied,
}

/// When the MPI library of a rank answers the steps of a rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RendezvousProgress {
    /// At once, by the adapter or a thread of its own.
    #[default]
    Always,
    /// Only while the rank is in a call: not while it computes.
    Calls,
}

/// How an adapter shares its link between messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Injection {
    /// One message after the other.
    Fifo,
    /// One packet of each message in turn.
    RoundRobin,
    /// A queue per destination, served round-robin.
    PerDestination,
}

/// The value as written in a scenario.
impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::RoundRobin => "round-robin",
            Self::PerDestination => "per-destination",
        })
    }
}

/// When a port counts as congested (Taffet 2019, §3.2 and §5.10).
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
    /// When the switch would set FECN: congestion control's threshold is exceeded, and the port is a root of
    /// congestion or victims are marked too. The marking rate does not matter.
    Fecn,
}

/// When the congestion of a port is evaluated (Taffet 2019, §5.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkingPoint {
    /// When the packet arrives and its output is known.
    Arrival,
    /// When the packet has credit and enters the output queue.
    Insertion,
    /// When the packet's head leaves.
    Departure,
}

/// All parameters of a run except the fabric and the traffic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seed of every random choice.
    pub seed: u64,
    /// Payload of a full packet.
    pub packet_bytes: u32,
    /// Bytes a packet adds to its payload on the wire.
    pub header_bytes: u32,
    /// Buffer at the far end of each link.
    pub buffer_bytes: u32,
    /// See [`Buffering`].
    pub buffering: Buffering,
    /// See [`FlowControl`].
    #[serde(default)]
    pub flow_control: FlowControl,
    /// See [`Switching`].
    pub switching: Switching,
    /// Latency from a packet's head at the input to its head at the output, without contention.
    pub switch_delay_ps: u64,
    /// See [`Routing`].
    pub routing: Routing,
    /// Seed of the hash of routing `ecmp` and `spray`; `seed` when absent.
    #[serde(default)]
    pub path_seed: Option<u64>,
    /// Seed of the hash of single flows of routing `ecmp`, in place of `path_seed`: the rank that
    /// sends, the one that receives, and the seed.
    #[serde(default)]
    pub flow_seeds: Vec<(u32, u32, u64)>,
    /// Queue pairs over which the packets of a message are spread, of routing `ecmp`: each has a path
    /// of its own.
    #[serde(default = "one")]
    pub queue_pairs: u8,
    /// See [`AdaptiveRule`]; of routing `adaptive`.
    #[serde(default)]
    pub adaptive: AdaptiveRule,
    /// Table entries of a switch, for routing `vc`.
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
    /// Crossbar rate of an input port relative to its link; 0 for no limit.
    #[serde(default)]
    pub crossbar_speedup: f64,
    /// Service levels, each with its own set of the virtual lanes that the routing rule needs.
    #[serde(default = "one")]
    pub services: u8,
    /// Bytes that a lane may send before the next lane's turn, by service level. Empty for no
    /// weights: lanes are served in order of arrival, or one packet each in turn where outputs
    /// are arbitrated per packet.
    #[serde(default)]
    pub lane_weights: Vec<u32>,
    /// See [`CongestionControl`]; off when absent.
    #[serde(default)]
    pub congestion_control: Option<CongestionControl>,
    /// See [`Injection`].
    pub injection: Injection,
    /// Rate at which an adapter sends, in megabits per second; 0 for the rate of its link.
    #[serde(default)]
    pub injection_mbps: u32,
    /// Software latency between the posting of a send and its first byte at the adapter.
    pub send_delay_ps: u64,
    /// Time of its processor that a rank spends on each message that it sends or receives: `o` of
    /// LogGP (Alexandrov et al. 1995).
    #[serde(default)]
    pub overhead_ps: u64,
    /// Rate at which either processor copies a message up to the eager limit; 0 if it takes no time.
    #[serde(default)]
    pub copy_gbps: f64,
    /// Larger messages wait until their receive is posted (rendezvous).
    pub eager_bytes: u64,
    /// See [`EagerSends`].
    #[serde(default)]
    pub eager_sends: EagerSends,
    /// See [`RendezvousProgress`].
    #[serde(default)]
    pub progress: RendezvousProgress,
    /// Rate of a message between ranks of one host.
    pub local_gbps: f64,
    /// Rate that all messages within a host share; at least the rate of one message.
    pub memory_gbps: f64,
    /// Latency between ranks of one host.
    pub local_delay_ps: u64,
    /// Whether messages within a host share ports instead of memory. Each rank then has a port,
    /// with the rate of a message, to a switch in its host.
    #[serde(default)]
    pub local_ports: bool,
    /// False for the ideal network: packets meet no contention, only the line rate of their own
    /// adapter.
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
    /// One packet in this many of observed jobs carries a sample, where samples are whole links.
    #[serde(default = "every_packet")]
    pub one_in: u64,
    /// Share of the packets whose sample is lost before it arrives, 0 to below 1.
    #[serde(default)]
    pub header_loss: f64,
    /// Whether the switch or adapter at the head of each link of the fabric puts samples into packets; all do
    /// when empty.
    #[serde(default)]
    pub stamping: Vec<bool>,
    /// Time windows: at least this many and at most twice as many; fewer if the run is very
    /// short.
    pub windows: u32,
    /// Record when each rank begins each of its computations.
    #[serde(default)]
    pub record_computation: bool,
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
            flow_control: FlowControl::Credits,
            switching: Switching::CutThrough,
            switch_delay_ps: 60_000,
            routing: Routing::Adaptive,
            path_seed: None,
            flow_seeds: Vec::new(),
            queue_pairs: 1,
            adaptive: AdaptiveRule::default(),
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
            injection_mbps: 0,
            send_delay_ps: 0,
            overhead_ps: 0,
            copy_gbps: 0.0,
            eager_bytes: u64::MAX,
            eager_sends: EagerSends::Sent,
            progress: RendezvousProgress::Always,
            local_gbps: 80.0,
            memory_gbps: 400.0,
            local_delay_ps: 500_000,
            local_ports: false,
            contention: true,
            measure: false,
            rule: MarkingRule::QueueExceedsCredit,
            rule_bytes: 16384,
            when: MarkingPoint::Arrival,
            count_injection: false,
            one_in: 1,
            header_loss: 0.0,
            stamping: Vec::new(),
            windows: 64,
            record_computation: false,
            probes: Probes::default(),
        }
    }
}

fn one() -> u8 {
    1
}

fn every_packet() -> u64 {
    1
}

/// Smallest packet on the wire: an InfiniBand header with its checksums, rounded up.
pub const MIN_WIRE_BYTES: u32 = 32;

/// Largest number of queue pairs of a message: that of NCCL.
const MOST_QUEUE_PAIRS: u8 = 128;

/// Largest payload of a packet.
const MAX_PACKET_BYTES: u32 = 1 << 20;

/// Most that a packet adds to its payload.
const MAX_HEADER_BYTES: u32 = 1 << 16;

/// Largest packet on the wire.
pub(crate) const MAX_WIRE_BYTES: u32 = MAX_PACKET_BYTES + MAX_HEADER_BYTES;

impl Settings {
    /// Bytes on the wire of a packet with `payload` bytes.
    #[inline]
    pub fn wire_bytes(&self, payload: u32) -> u32 {
        (payload + self.header_bytes).max(MIN_WIRE_BYTES)
    }

    /// How long `bytes` take at a rate between ranks of one host; `None` beyond [`MAX_TIME_PS`].
    pub(crate) fn local_ps(&self, bytes: u64, gbps: f64) -> Option<u64> {
        let wire = (bytes as f64 * 8000.0 / gbps).ceil();
        // An `f64` below 2^62 is a whole number of picoseconds that fits.
        let wire = (wire < MAX_TIME_PS as f64).then_some(wire as u64)?;
        wire.checked_add(self.local_delay_ps).filter(|&ps| ps <= MAX_TIME_PS)
    }

    /// Whether packets of a message arrive in the order they were sent in.
    pub(crate) fn in_order(&self) -> bool {
        let fixed = match self.routing {
            Routing::Deterministic | Routing::VirtualCircuit => true,
            Routing::Ecmp => self.queue_pairs == 1,
            Routing::Adaptive => self.adaptive.per == AdaptiveUnit::Flow,
            _ => false,
        };
        fixed && self.detour == Detour::Never && self.contention
    }

    /// Whether an arriving packet is marked exactly when it has to wait for credit: then the
    /// mark is known when the output is requested.
    pub(crate) fn marks_on_grant(&self) -> bool {
        let by_credit = self.rule == MarkingRule::QueueExceedsCredit;
        by_credit && self.when == MarkingPoint::Arrival && !self.arbitrated()
    }

    /// Whether a switch can affect nodes that are not its neighbours without the lookahead's
    /// delay: on an ideal network, and where switches notify senders directly (RGBCC).
    pub(crate) fn reaches_far(&self) -> bool {
        let control = self.congestion_control.as_ref();
        !self.contention
            || control.is_some_and(|c| matches!(c.scheme, CongestionScheme::Rgbcc { .. }))
    }

    /// Whether outputs are arbitrated one packet at a time (see `switch/arbitration.rs`).
    pub(crate) fn arbitrated(&self) -> bool {
        self.arbitration != Arbitration::Fcfs
            // A packet that is booked on its link cannot be paused any more.
            || self.flow_control != FlowControl::Credits
            || self.crossbar_speedup > 0.0
            || !self.lane_weights.is_empty()
    }

    /// Bytes that lane `lane` of a link may send before the next lane's turn.
    pub(crate) fn weight_bytes(&self, lane: u8) -> u32 {
        let services = usize::from(self.services.max(1));
        let weight = self.lane_weights.get(usize::from(lane) % services);
        weight.copied().unwrap_or(0)
    }

    /// Checks the values and their combinations.
    ///
    /// # Errors
    /// [`EngineError::Setting`] names the key, the value and the valid range.
    pub fn check(&self) -> Result<(), EngineError> {
        self.check_sizes()?;
        self.check_times()?;
        self.check_telemetry()?;
        self.check_switches()?;
        self.check_adapters()?;
        self.check_congestion_control()?;
        self.probes.check()
    }

    fn check_sizes(&self) -> Result<(), EngineError> {
        let (packet, header) = (u64::from(self.packet_bytes), u64::from(self.header_bytes));
        if packet == 0 || self.packet_bytes > MAX_PACKET_BYTES {
            return ENGINE.range("packet", size(packet), "give 1 B to 1 MiB");
        }
        if self.header_bytes > MAX_HEADER_BYTES {
            return ENGINE.range("header", size(header), "give 0 B to 64 KiB");
        }
        let least = self.wire_bytes(self.packet_bytes);
        if self.buffer_bytes < least {
            let value = size(self.buffer_bytes.into());
            let problem = format!("is less than a packet with its header, {}", size(least.into()));
            let remedy = format!("give at least {}, or a smaller packet", size(least.into()));
            return ENGINE.refuse("buffer", value, problem, remedy);
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), EngineError> {
        for (key, gbps) in [("local_rate", self.local_gbps), ("memory_rate", self.memory_gbps)] {
            if !(gbps > 0.0 && gbps.is_finite()) {
                let value = format!("{gbps} Gb/s");
                return ENGINE.range(key, value, "give a rate above 0, like 80 Gb/s");
            }
        }
        if !(self.copy_gbps >= 0.0 && self.copy_gbps.is_finite()) {
            let value = format!("{} Gb/s", self.copy_gbps);
            return ENGINE.range("copy_rate", value, "give a rate above 0, like 80 Gb/s");
        }
        let (mut timer_ps, mut hold, mut poll) = (0, 0, 0);
        if let Some(control) = &self.congestion_control {
            timer_ps = control.timer_ps;
            if let CongestionScheme::Dcms { hold_ps, poll_ps, .. } = control.scheme {
                (hold, poll) = (hold_ps, poll_ps);
            }
        }
        for (section, key, ps) in [
            (ENGINE, "local_delay", self.local_delay_ps),
            (ENGINE, "send_delay", self.send_delay_ps),
            (ENGINE, "overhead", self.overhead_ps),
            (ENGINE, "switch_delay", self.switch_delay_ps),
            (ADAPTIVE, "gap", self.adaptive.gap_ps),
            (CONGESTION_CONTROL, "timer", timer_ps),
            (CONGESTION_CONTROL, "hold", hold),
            (CONGESTION_CONTROL, "poll", poll),
        ] {
            if ps > MAX_DELAY_PS {
                let remedy =
                    format!("give at most {} s (75 minutes)", MAX_DELAY_PS / 1_000_000_000_000);
                return section.range(key, time(ps), remedy);
            }
        }
        Ok(())
    }

    fn check_telemetry(&self) -> Result<(), EngineError> {
        if self.windows == 0 {
            return TELEMETRY.range("windows", 0, "give 1 to 4096");
        }
        if self.rule == MarkingRule::Proportional && self.rule_bytes == 0 {
            let problem = "is no threshold for rule proportional";
            return TELEMETRY.refuse(
                "rule_bytes",
                "0 B",
                problem,
                "give at least 1 B, like 16 KiB",
            );
        }
        if self.one_in == 0 {
            return TELEMETRY.range("one_in", 0, "give at least 1 (every packet)");
        }
        if !(0.0..1.0).contains(&self.header_loss) {
            let remedy = "give a share from 0 to below 1";
            return TELEMETRY.range("header_loss", self.header_loss, remedy);
        }
        if self.rule == MarkingRule::Fecn && self.congestion_control.is_none() {
            let problem = "needs congestion control, which sets FECN";
            let remedy = "add [engine.congestion_control], or choose another rule";
            return TELEMETRY.refuse("rule", "fecn", problem, remedy);
        }
        Ok(())
    }

    fn check_switches(&self) -> Result<(), EngineError> {
        if !(1..=MOST_QUEUE_PAIRS).contains(&self.queue_pairs) {
            let remedy = format!("give 1 to {MOST_QUEUE_PAIRS}");
            return ENGINE.range("queue_pairs", self.queue_pairs, remedy);
        }
        if !(1..=8).contains(&self.services) {
            return ENGINE.range("services", self.services, "give 1 to 8");
        }
        if !(self.crossbar_speedup == 0.0 || (0.1..=1000.0).contains(&self.crossbar_speedup)) {
            let remedy = "give 0 (no limit) or 0.1 to 1000";
            return ENGINE.range("crossbar_speedup", self.crossbar_speedup, remedy);
        }
        let (weights, services) = (self.lane_weights.len(), usize::from(self.services));
        if !(weights == 0 || weights == services) {
            let value = format!("a list of {weights}");
            let problem = format!("does not fit services = {services}");
            let remedy = format!("give one weight for each of the {services} services, or none");
            return ENGINE.refuse("lane_weights", value, problem, remedy);
        }
        if self.routing == Routing::VirtualCircuit && self.detour != Detour::Never {
            let problem = "takes only minimal paths, but the routes take detours";
            let remedy = "choose [fabric] routes without detours, or another routing";
            return ENGINE.refuse("routing", "vc", problem, remedy);
        }
        Ok(())
    }

    fn check_adapters(&self) -> Result<(), EngineError> {
        if self.pacing != Pacing::Off && self.injection != Injection::PerDestination {
            let remedy = "set injection = \"per-destination\", or leave [engine.pacing] out";
            return self.refuse_injection("[engine.pacing]", remedy);
        }
        if let Pacing::Elastic { percent } = self.pacing
            && !(1..=100).contains(&percent)
        {
            return PACING.range("percent", percent, "give 1 to 100");
        }
        Ok(())
    }

    fn refuse_injection(&self, section: &str, remedy: &str) -> Result<(), EngineError> {
        let problem = format!("has no queue per destination, which {section} needs");
        ENGINE.refuse("injection", self.injection, problem, remedy)
    }

    fn check_congestion_control(&self) -> Result<(), EngineError> {
        let Some(control) = &self.congestion_control else { return Ok(()) };
        if self.injection != Injection::PerDestination {
            let remedy =
                "set injection = \"per-destination\", or leave [engine.congestion_control] out";
            return self.refuse_injection("[engine.congestion_control]", remedy);
        }
        if control.scheme == CongestionScheme::Assignment {
            if !self.in_order() {
                let problem = "needs a flow to keep to one path";
                let remedy = "set routing = \"deterministic\" or \"ecmp\"";
                return CONGESTION_CONTROL.refuse("scheme", "assignment", problem, remedy);
            }
            if self.pacing == Pacing::Off {
                let remedy = "set kind = \"elastic\" in [engine.pacing]";
                let problem = "gives flows rates, and nothing paces them";
                return CONGESTION_CONTROL.refuse("scheme", "assignment", problem, remedy);
            }
        }
        control.check()
    }
}
