//! The fluid model: flows with rates instead of packets; an event is the start or end of a flow.
//!
//! Rates are max-min fair (weighted) or those of the single application assignment of
//! Birk and Zdornov (2009, slides): `r(f) = w_f / W_f`. Built on them are simulators of flows and of rank
//! programs, and the static evaluation of permutations on a k-ary n-tree with horizontal links.
//!
//! Times are integer picoseconds; a rate is a floating-point number of gigabits per second, and a
//! flow ends at the first picosecond at which its last bit has left.

mod assigned;
mod error;
mod flows;
mod heap;
mod link_load;
mod links;
mod maxmin;
mod paths;
pub mod permutation;
mod pool;
mod rank_model;
mod ranks;
mod rng;
mod rounds;
mod shared_levels;
mod tree;
mod trunks;
mod waterfill;

pub use assigned::assignment;
pub use error::FluidError;
pub use flows::{FlowSet, FlowTimes, simulate_flows};
pub use paths::{FlowPaths, PathChoice, Router};
pub use pool::{Policy, Work};
pub use rank_model::{LinkUse, RankSettings, RankTimes};
pub use ranks::simulate_program;
pub use rng::random;
pub use rounds::{Rounds, simulate_rounds};
pub use tailback_fabric::Detour;
pub use tailback_program::{Placement, Program, ProgramError};
pub use tree::Tree;
pub use trunks::Trunks;
pub use waterfill::max_min;
