//! Probes observe packets and never influence a run.
//!
//! The engine is generic over [`Probe`]; with [`NullProbe`] every hook compiles to nothing. Each
//! probe has a file: [`WindowProbe`] (samples and ground truth per window), [`PortProbe`] (counters
//! and queue lengths at fixed instants), [`HeaderProbe`] (headers of single packets),
//! [`StepProbe`] (the same counts by step of a repeated program);
//! [`CombinedProbe`] combines those that a run asks for.

mod circuits;
mod combined;
mod headers;
mod hooks;
mod input_buffer;
mod passes;
mod ports;
mod queue_pairs;
mod readings;
mod sender;
mod series;
mod slots;
mod steps;
mod windows;

mod truth;
mod truth_table;

pub use crate::settings::{HeaderScheme, HeaderSettings, Probes, PsnStart, QueuePairs, Randomness};
pub(crate) use combined::ShardProbes;
pub use combined::{CombinedProbe, ProbeTables};
pub use headers::{Deployment, HeaderProbe, PacketRecord};
pub use hooks::{DeliveredPacket, Hop, NullProbe, Probe, SentPacket, Transmission};
pub use passes::PassTable;
pub use ports::PortProbe;
pub use queue_pairs::Connection;
pub(crate) use queue_pairs::connections;
pub use readings::{PortCounters, QueueLengths};
pub use series::{LinkReading, LinkReadings, Reading};
pub(crate) use steps::{StepProbe, steps_of_messages};
pub use truth_table::TruthTable;
pub use windows::WindowProbe;
