//! Routing tables made from the forwarding tables of real switches, and from a routing rule.

use std::collections::HashMap;

use crate::NONE;
use crate::memory::filled;
use crate::routes::TABLE;
use crate::{Fabric, FabricError, Routes};

impl Routes {
    /// Routes from forwarding tables: `forward[switch * n_nodes + node]` is the link on which a
    /// switch forwards packets for a node, `u32::MAX` where its table has no entry.
    ///
    /// Every node gets a column of its own, since the paths to two nodes of one switch may differ.
    /// Switches from which packets run into a missing entry or a wrong node get no route;
    /// [`Routes::require`] names them.
    ///
    /// # Errors
    /// [`FabricError::Length`], [`FabricError::ForeignLink`], [`FabricError::ForwardingLoop`] or
    /// [`FabricError::NodeCables`].
    pub fn forwarding(fabric: &Fabric, forward: &[u32]) -> Result<Self, FabricError> {
        let (nodes, switches) = (fabric.n_nodes as usize, fabric.n_switches as usize);
        if forward.len() != nodes * switches {
            let (length, expected) = (forward.len(), nodes * switches);
            return Err(FabricError::Length { name: "forward", length, expected });
        }
        let mut routes = Self::attach_nodes(fabric)?;
        routes.column = (0..fabric.n_nodes).collect();
        routes.columns = fabric.n_nodes;
        routes.table = filled(TABLE, nodes.saturating_mul(switches), NONE)?;
        // An entry names one link, so every link is a candidate set of its own.
        routes.set_start = (0..=fabric.n_links() as u32).collect();
        routes.set_links = (0..fabric.n_links() as u32).collect();
        for switch in 0..fabric.n_switches {
            for node in 0..fabric.n_nodes {
                let entry = switch as usize * nodes + node as usize;
                let link = forward[entry];
                if link == NONE {
                    continue;
                }
                if !fabric.out_links(fabric.n_nodes + switch).contains(&link) {
                    return Err(FabricError::ForeignLink { switch, node, link });
                }
                routes.table[entry] = link;
            }
        }
        for node in 0..fabric.n_nodes {
            routes.remove_dead_ends(fabric, node)?;
        }
        Ok(routes)
    }

    /// Removes the entries for `node` on paths that do not arrive there.
    fn remove_dead_ends(&mut self, fabric: &Fabric, node: u32) -> Result<(), FabricError> {
        const UNKNOWN: u8 = 0;
        const ON_PATH: u8 = 1;
        const ARRIVES: u8 = 2;
        const DEAD_END: u8 = 3;
        let columns = self.columns as usize;
        let node_switch = fabric.link_dst[self.injection[node as usize] as usize] - fabric.n_nodes;
        let mut state = vec![UNKNOWN; fabric.n_switches as usize];
        state[node_switch as usize] = ARRIVES;
        let mut path = Vec::new();
        for start in 0..fabric.n_switches {
            let mut switch = start;
            path.clear();
            let end = loop {
                match state[switch as usize] {
                    UNKNOWN => {}
                    ON_PATH => return Err(FabricError::ForwardingLoop { switch, node }),
                    link => break link,
                }
                state[switch as usize] = ON_PATH;
                path.push(switch);
                let link = self.table[switch as usize * columns + node as usize];
                if link == NONE || fabric.is_node(fabric.link_dst[link as usize]) {
                    break DEAD_END;
                }
                switch = fabric.link_dst[link as usize] - fabric.n_nodes;
            };
            for &passed in &path {
                state[passed as usize] = end;
                if end == DEAD_END {
                    self.table[passed as usize * columns + node as usize] = NONE;
                }
            }
        }
        Ok(())
    }

    /// A routing table with the candidate links that `candidates(switch, node)` returns.
    pub(crate) fn from_candidates<'a>(
        fabric: &Fabric,
        candidates: impl Fn(u32, u32) -> &'a [u32],
    ) -> Result<Self, FabricError> {
        let mut routes = Self::attach_nodes(fabric)?;
        let columns = routes.columns as usize;
        let mut node_of_column = vec![NONE; columns];
        for node in 0..fabric.n_nodes {
            node_of_column[routes.column[node as usize] as usize] = node;
        }
        let switches = fabric.n_switches as usize;
        routes.table = filled(TABLE, switches.saturating_mul(columns), NONE)?;
        let mut set_ids: HashMap<&[u32], u32> = HashMap::new();
        for (column, &node) in node_of_column.iter().enumerate() {
            let node_switch =
                fabric.link_dst[routes.injection[node as usize] as usize] - fabric.n_nodes;
            for switch in (0..fabric.n_switches).filter(|&s| s != node_switch) {
                let links = candidates(switch, node);
                if links.is_empty() {
                    continue;
                }
                let next = routes.set_start.len() as u32 - 1;
                let id = *set_ids.entry(links).or_insert(next);
                if id == next {
                    routes.set_links.extend_from_slice(links);
                    routes.set_start.push(routes.set_links.len() as u32);
                }
                routes.table[switch as usize * columns + column] = id;
            }
        }
        Ok(routes)
    }
}
