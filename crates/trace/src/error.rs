//! Errors of reading a trace, with the file and the place in it.

use std::path::PathBuf;

/// A trace, or the OTF2 library, that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The OTF2 library cannot be loaded, or is too old and lacks a required function.
    #[error("{}: not a usable OTF2 library: {reason}", library.display())]
    Library {
        /// The shared library.
        library: PathBuf,
        /// Message of the dynamic loader.
        reason: String,
    },
    /// The anchor file is missing, unreadable or not an OTF2 anchor.
    #[error("{}: {reason}", file.display())]
    Anchor {
        /// The anchor file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The definitions are damaged or inconsistent.
    #[error("{}: {place}: {reason}", file.display())]
    Definitions {
        /// The definition file.
        file: PathBuf,
        /// Which definition.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The events of one location are damaged or truncated.
    #[error("{}: location {location}, event {event}: {reason}", file.display())]
    Events {
        /// The event file.
        file: PathBuf,
        /// The location, as the trace numbers it.
        location: u64,
        /// The first event that could not be read, counted from 0.
        event: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl TraceError {
    /// The file with the error.
    pub fn file(&self) -> &PathBuf {
        match self {
            Self::Library { library, .. } => library,
            Self::Anchor { file, .. } | Self::Definitions { file, .. } => file,
            Self::Events { file, .. } => file,
        }
    }

    /// The place in the file, if it is known.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Library { .. } | Self::Anchor { .. } => None,
            Self::Definitions { place, .. } => Some(place.clone()),
            Self::Events { location, event, .. } => {
                Some(format!("location {location}, event {event}"))
            }
        }
    }

    /// What is wrong, without file and place.
    pub fn reason(&self) -> &str {
        match self {
            Self::Library { reason, .. }
            | Self::Anchor { reason, .. }
            | Self::Definitions { reason, .. }
            | Self::Events { reason, .. } => reason,
        }
    }
}
