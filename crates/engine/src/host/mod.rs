//! Hosts: adapters with their flows and pacing, and the ranks that run on them.

pub(crate) mod adapter;
pub(crate) mod flows;
mod handling;
mod injection;
pub(crate) mod messages;
pub(crate) mod pacing;
pub(crate) mod processors;
mod ranks;
mod uncontended;
