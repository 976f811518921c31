//! Captures of InfiniBand and RoCEv2 packets: pcap, pcapng and ERF files.
//!
//! [`CaptureLog::read`] streams a file through a fixed buffer, finds the base transport header (BTH) of every
//! packet and keeps one row of columns for it. Frames without one are counted by reason
//! ([`Skip`]), never dropped silently. Input is untrusted: no
//! length is used before that many bytes have been read, a record above a fixed size is an error, and a file
//! that ends within a record sets [`FileSummary::cut_at`].

#![forbid(unsafe_code)]

mod dissect;
mod erf;
mod error;
mod input;
mod log;
mod pcap;
mod pcapng;
mod record;

pub use dissect::{Address, Skip};
pub use error::{CaptureError, CaptureFault};
pub use log::{CaptureLog, FileSummary, PacketColumns, Skipped};
pub use record::{Direction, LinkType};
