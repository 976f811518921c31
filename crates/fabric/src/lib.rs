//! Fabrics: nodes, switches and directed links as flat arrays, and routes over them.
//!
//! A *vertex* is a node (`0..n_nodes`) or a switch (`n_nodes..n_nodes + n_switches`). A cable is
//! two directed links. Links are sorted by source vertex and port, so the links that leave a vertex
//! have consecutive indices.

mod build;
mod d_mod_k;
mod deadlock;
pub mod dragonfly;
pub mod dragonfly_plus;
mod error;
pub mod fat_tree;
mod forwarding;
mod global;
pub mod hyperx;
mod lane_assignment;
mod memory;
pub mod modified_tree;
pub mod pgft;
mod routes;
pub mod rules;
pub mod torus;
mod tree;
pub mod yellowstone;

pub use build::CableList;
pub use error::{FabricError, MessagePart, cycle_message};
pub use global::Arrangement;
pub use lane_assignment::DATA_LANES;
pub use routes::Routes;
pub use rules::{Detour, RoutePlan, RouteState, RouteStep, RoutingRule};

/// No link, switch or column.
pub(crate) const NONE: u32 = u32::MAX;

/// Nodes, switches and directed links.
#[derive(Debug, Clone, Default)]
pub struct Fabric {
    /// Number of nodes (adapter ports).
    pub n_nodes: u32,
    /// Number of switches.
    pub n_switches: u32,
    /// Tier of each switch, 0 = leaf.
    pub switch_tier: Vec<i32>,
    /// Pod of each switch, -1 if it belongs to none.
    pub switch_pod: Vec<i32>,
    /// Source vertex of each link.
    pub link_src: Vec<u32>,
    /// Destination vertex of each link.
    pub link_dst: Vec<u32>,
    /// Port number at the source of each link.
    pub link_src_port: Vec<u32>,
    /// Port number at the destination of each link.
    pub link_dst_port: Vec<u32>,
    /// Data rate of each link in gigabits per second.
    pub link_gbps: Vec<f64>,
    /// Cable delay of each link in picoseconds.
    pub link_delay_ps: Vec<u64>,
    /// The link of the opposite direction of the same cable.
    pub link_reverse: Vec<u32>,
    /// First outgoing link of each vertex, and the number of links as a last entry.
    pub out_start: Vec<u32>,
}

impl Fabric {
    /// Number of directed links.
    pub fn n_links(&self) -> usize {
        self.link_src.len()
    }

    /// Total number of nodes and switches.
    pub fn n_vertices(&self) -> usize {
        (self.n_nodes + self.n_switches) as usize
    }

    /// Outgoing links of `vertex`.
    pub fn out_links(&self, vertex: u32) -> std::ops::Range<u32> {
        self.out_start[vertex as usize]..self.out_start[vertex as usize + 1]
    }

    /// Whether `vertex` is a node.
    pub fn is_node(&self, vertex: u32) -> bool {
        vertex < self.n_nodes
    }

    /// Checks that the arrays are consistent and fills `out_start`.
    ///
    /// # Errors
    /// The first inconsistency: array lengths, vertices out of range, links out of order, links that
    /// do not form cables in pairs, a rate that is not positive.
    pub fn index(mut self) -> Result<Self, FabricError> {
        let links = self.n_links();
        let vertices = self.n_vertices();
        for (name, length, expected) in [
            ("switch_tier", self.switch_tier.len(), self.n_switches as usize),
            ("switch_pod", self.switch_pod.len(), self.n_switches as usize),
            ("link_dst", self.link_dst.len(), links),
            ("link_src_port", self.link_src_port.len(), links),
            ("link_dst_port", self.link_dst_port.len(), links),
            ("link_gbps", self.link_gbps.len(), links),
            ("link_delay_ps", self.link_delay_ps.len(), links),
            ("link_reverse", self.link_reverse.len(), links),
        ] {
            if length != expected {
                return Err(FabricError::Length { name, length, expected });
            }
        }
        for link in 0..links {
            let reverse = self.link_reverse[link] as usize;
            let (src, dst) = (self.link_src[link], self.link_dst[link]);
            if src as usize >= vertices || dst as usize >= vertices {
                return Err(FabricError::Vertex { link, vertices });
            }
            if link > 0 && self.link_src[link - 1] > src {
                return Err(FabricError::Order { link });
            }
            if reverse >= links || self.link_dst[reverse] != src || self.link_src[reverse] != dst {
                return Err(FabricError::Reverse { link });
            }
            if !(self.link_gbps[link] > 0.0 && self.link_gbps[link].is_finite()) {
                return Err(FabricError::Rate { link, gbps: self.link_gbps[link] });
            }
        }
        let mut start = vec![0u32; vertices + 1];
        for &src in &self.link_src {
            start[src as usize + 1] += 1;
        }
        for vertex in 0..vertices {
            start[vertex + 1] += start[vertex];
        }
        self.out_start = start;
        Ok(self)
    }
}
