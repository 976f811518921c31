//! Turns a list of cables into a fabric of sorted directed links.

use crate::{Fabric, FabricError};

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CableEnd {
    /// Vertex.
    pub vertex: u32,
    /// Port number, counted from 1.
    pub port: u32,
}

/// Collects cables; each vertex numbers its ports in the order in which its cables are added.
#[derive(Debug, Default)]
pub struct CableList {
    cables: Vec<(CableEnd, CableEnd, f64, u64)>,
    next_port: Vec<u32>,
}

impl CableList {
    /// An empty list for a fabric of `vertices` nodes and switches.
    pub fn new(vertices: usize) -> Self {
        Self { cables: Vec::new(), next_port: vec![1; vertices] }
    }

    /// Adds a cable between the next free ports of two vertices.
    pub fn add(&mut self, a: u32, b: u32, gbps: f64, delay_ps: u64) {
        let mut end = |vertex: u32| {
            let port = &mut self.next_port[vertex as usize];
            *port += 1;
            CableEnd { vertex, port: *port - 1 }
        };
        let (a, b) = (end(a), end(b));
        self.cables.push((a, b, gbps, delay_ps));
    }

    /// Turns the cables into a fabric with links sorted by source vertex and port.
    ///
    /// # Errors
    /// As [`Fabric::index`].
    pub fn finish(
        self,
        n_nodes: u32,
        switch_tier: Vec<i32>,
        switch_pod: Vec<i32>,
    ) -> Result<Fabric, FabricError> {
        let mut directed: Vec<(CableEnd, CableEnd, usize)> =
            Vec::with_capacity(2 * self.cables.len());
        for (cable, &(a, b, ..)) in self.cables.iter().enumerate() {
            directed.push((a, b, cable));
            directed.push((b, a, cable));
        }
        directed.sort_unstable_by_key(|(src, ..)| (src.vertex, src.port));
        let mut first_of_cable = vec![u32::MAX; self.cables.len()];
        let mut fabric = Fabric {
            n_nodes,
            n_switches: switch_tier.len() as u32,
            switch_tier,
            switch_pod,
            link_reverse: vec![0; directed.len()],
            ..Fabric::default()
        };
        for (link, (src, dst, cable)) in directed.iter().enumerate() {
            let (_, _, gbps, delay_ps) = self.cables[*cable];
            fabric.link_src.push(src.vertex);
            fabric.link_dst.push(dst.vertex);
            fabric.link_src_port.push(src.port);
            fabric.link_dst_port.push(dst.port);
            fabric.link_gbps.push(gbps);
            fabric.link_delay_ps.push(delay_ps);
            let first = &mut first_of_cable[*cable];
            if *first == u32::MAX {
                *first = link as u32;
            } else {
                fabric.link_reverse[link] = *first;
                fabric.link_reverse[*first as usize] = link as u32;
            }
        }
        fabric.index()
    }
}
