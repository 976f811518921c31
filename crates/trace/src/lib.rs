//! Reads OTF2 traces location by location through the OTF2 C library.
//!
//! The library can also merge the events of all locations by time, but that is ten times slower than
//! reading one location after another. Instead, several threads read one location at a time, each
//! with an archive handle of its own, and the events are returned as columns.

#![deny(unsafe_code)]

mod definitions;
mod error;
mod event;
mod events;
#[allow(unsafe_code)]
mod ffi;
mod lookup;
mod posts;
mod precheck;
mod reader;
mod tables;

pub use definitions::{Cartesian, Communicator, Definitions, SystemNode};
pub use error::TraceError;
pub use posts::{LocationPosts, PostLabel, RegionCalls};
pub use reader::{PostTrace, Progress, Trace, read, read_definitions, read_posts};
pub use tables::{
    CallPaths, Calls, ClockOffset, LocationEvents, Messages, NO_ID, NONE, RecordKind,
};
