//! Routes from forwarding tables of real switches, and from the steps of a rule.

use std::collections::HashMap;

use crate::memory::filled;
use crate::routes::{NONE, TABLE};
use crate::{Fabric, FabricError, Routes};

impl Routes {
    /// Routes from forwarding tables: `forward[switch * n_nodes + node]` is the link by which a
    /// switch sends packets for a node, `u32::MAX` where its table has no entry.
    ///
    /// Every node gets a column of its own, since two nodes of one switch may be reached by
    /// different paths. Switches whose packets end at a missing entry, or at the wrong switch, are
    /// left without a route: [`Routes::require`] names them.
    ///
    /// # Errors
    /// A wrong length, a link of another switch, packets that go in circles, or a node without
    /// exactly one switch cable.
    pub fn forwarding(fabric: &Fabric, forward: &[u32]) -> Result<Self, FabricError> {
        let (nodes, switches) = (fabric.n_nodes as usize, fabric.n_switches as usize);
        if forward.len() != nodes * switches {
            let (length, expected) = (forward.len(), nodes * switches);
            return Err(FabricError::Length { name: "forward", length, expected });
        }
        let mut routes = Self::attach(fabric)?;
        routes.column = (0..fabric.n_nodes).collect();
        routes.columns = fabric.n_nodes;
        routes.table = filled(TABLE, nodes.saturating_mul(switches), NONE)?;
        // A set for every link: a table names one link.
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
                    return Err(FabricError::Forward { switch, node, link });
                }
                routes.table[entry] = link;
            }
        }
        for node in 0..fabric.n_nodes {
            routes.keep_what_arrives(fabric, node)?;
        }
        Ok(routes)
    }

    /// Removes the entries for `node` that lead nowhere.
    fn keep_what_arrives(&mut self, fabric: &Fabric, node: u32) -> Result<(), FabricError> {
        const UNKNOWN: u8 = 0;
        const WALKED: u8 = 1;
        const ARRIVES: u8 = 2;
        const LOST: u8 = 3;
        let columns = self.columns as usize;
        let node_switch = fabric.link_dst[self.injection[node as usize] as usize] - fabric.n_nodes;
        let mut fate = vec![UNKNOWN; fabric.n_switches as usize];
        fate[node_switch as usize] = ARRIVES;
        let mut walk = Vec::new();
        for start in 0..fabric.n_switches {
            let mut switch = start;
            walk.clear();
            let end = loop {
                match fate[switch as usize] {
                    UNKNOWN => {}
                    WALKED => return Err(FabricError::Circle { switch, node }),
                    known => break known,
                }
                fate[switch as usize] = WALKED;
                walk.push(switch);
                let link = self.table[switch as usize * columns + node as usize];
                if link == NONE || fabric.is_node(fabric.link_dst[link as usize]) {
                    break LOST;
                }
                switch = fabric.link_dst[link as usize] - fabric.n_nodes;
            };
            for &passed in &walk {
                fate[passed as usize] = end;
                if end == LOST {
                    self.table[passed as usize * columns + node as usize] = NONE;
                }
            }
        }
        Ok(())
    }

    /// A table of the links that `step(switch, node)` gives.
    pub(crate) fn from_steps<'a>(
        fabric: &Fabric,
        step: impl Fn(u32, u32) -> &'a [u32],
    ) -> Result<Self, FabricError> {
        let mut routes = Self::attach(fabric)?;
        let columns = routes.columns as usize;
        let mut bearer = vec![NONE; columns];
        for node in 0..fabric.n_nodes {
            bearer[routes.column[node as usize] as usize] = node;
        }
        let switches = fabric.n_switches as usize;
        routes.table = filled(TABLE, switches.saturating_mul(columns), NONE)?;
        let mut known: HashMap<&[u32], u32> = HashMap::new();
        for (column, &node) in bearer.iter().enumerate() {
            let node_switch =
                fabric.link_dst[routes.injection[node as usize] as usize] - fabric.n_nodes;
            for switch in (0..fabric.n_switches).filter(|&s| s != node_switch) {
                let links = step(switch, node);
                if links.is_empty() {
                    continue;
                }
                let next = routes.set_start.len() as u32 - 1;
                let id = *known.entry(links).or_insert(next);
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
