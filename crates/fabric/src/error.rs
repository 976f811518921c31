//! Errors of fabrics and routes.

use thiserror::Error;

/// A fabric that is inconsistent, impossible or cannot be routed.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum FabricError {
    /// An array has the wrong length.
    #[error("{name} has {length} entries, expected {expected}")]
    Length {
        /// Array.
        name: &'static str,
        /// Its length.
        length: usize,
        /// Expected length.
        expected: usize,
    },
    /// A link names a vertex that does not exist.
    #[error("link {link} names a vertex beyond the {vertices} there are")]
    Vertex {
        /// Link.
        link: usize,
        /// Number of vertices.
        vertices: usize,
    },
    /// Links are not sorted by source vertex.
    #[error("link {link} is out of order: links must be sorted by source vertex and port")]
    Order {
        /// Link.
        link: usize,
    },
    /// A link has no proper opposite.
    #[error("link {link} has no opposite link of the same cable")]
    Pair {
        /// Link.
        link: usize,
    },
    /// A link's rate is not a positive number.
    #[error("link {link} has a rate of {gbps} Gb/s; valid: a number above 0")]
    Rate {
        /// Link.
        link: usize,
        /// Its rate.
        gbps: f64,
    },
    /// A node without exactly one cable to a switch.
    #[error(
        "node {node} has {cables} cables to switches; a node is one adapter port with one cable"
    )]
    NodeCables {
        /// Node.
        node: u32,
        /// Cables it has.
        cables: usize,
    },
    /// No path between two switches that carry nodes.
    #[error("no path from switch {from} to switch {to}: the fabric is not connected")]
    Unconnected {
        /// Switch index.
        from: u32,
        /// Switch index.
        to: u32,
    },
    /// A fabric whose wiring does not fit a routing rule.
    #[error("{rule} routing does not fit this fabric: {why}")]
    Unfit {
        /// Routing rule.
        rule: &'static str,
        /// What does not fit, and where.
        why: String,
    },
    /// Forwarding tables that form a loop.
    #[error("the forwarding tables loop: packets for node {node} return to switch {switch}")]
    Circle {
        /// A switch on the loop.
        switch: u32,
        /// Node the packets are for.
        node: u32,
    },
    /// A forwarding table entry that names a link of another switch.
    #[error(
        "switch {switch} forwards to node {node} by link {link}, which is not one of its links"
    )]
    Forward {
        /// Switch index.
        switch: u32,
        /// Node.
        node: u32,
        /// Link.
        link: u32,
    },
    /// Buffers that wait for each other in a cycle.
    #[error("the routes can deadlock: {}", channels(.cycle))]
    Deadlock {
        /// Link and lane of each buffer; each waits for the next, the last for the first.
        cycle: Vec<(u32, u8)>,
    },
    /// An allocation fails.
    #[error("{what} would take {:.1} GiB of memory, which this machine does not have", *.bytes as f64 / f64::from(1 << 30))]
    OutOfMemory {
        /// What is allocated.
        what: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// Parameters of a builder that do not fit together.
    #[error("{field} = {value}: {why}")]
    Parameter {
        /// Parameter.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// A cycle of buffers as text, with the middle of long ones left out.
fn channels(cycle: &[(u32, u8)]) -> String {
    const SHOWN: usize = 12;
    let name = |&(link, lane): &(u32, u8)| format!("link {link} lane {lane}");
    let mut names: Vec<String> = cycle.iter().take(SHOWN).map(name).collect();
    if cycle.len() > SHOWN {
        names.push(format!("{} more", cycle.len() - SHOWN));
    }
    if let Some(first) = cycle.first() {
        names.push(name(first));
    }
    names.join(" waits for ")
}
