//! The network that packets cross: links with their virtual lanes, cables, load, packets in flight.

pub(crate) mod cable;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod packet;
pub(crate) mod pause;
