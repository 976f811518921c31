//! Reads OTF2 traces location by location through the OTF2 C library.
//!
//! The library's own reader of all locations at once merges by time through a heap and is ten
//! times slower than reading one location after another. So each thread here opens the archive for
//! itself, reads its share of the locations, and what was read comes back as columns.

#![deny(unsafe_code)]

mod definitions;
mod error;
mod event;
mod events;
#[allow(unsafe_code)]
mod ffi;
mod precheck;
mod reader;
mod tables;

pub use definitions::{Cartesian, Communicator, Definitions, SystemNode};
pub use error::TraceError;
pub use reader::{Trace, read};
pub use tables::{
    CallPaths, Calls, ClockOffset, LocationEvents, Messages, NO_ID, NONE, RecordKind,
};
