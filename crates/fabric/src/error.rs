//! Errors of fabrics and routes.

use std::fmt;

use thiserror::Error;

/// A piece of an error message: text, or the number of an object whose name the caller may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePart {
    /// Literal text.
    Text(String),
    /// Node index.
    Node(u32),
    /// Switch index.
    Switch(u32),
    /// Link index.
    Link(u32),
}

impl From<&str> for MessagePart {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for MessagePart {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for MessagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Switch(switch) => write!(f, "switch {switch}"),
            Self::Link(link) => write!(f, "link {link}"),
        }
    }
}

/// A list of [`MessagePart`]s from texts and parts.
macro_rules! message {
    ($($part:expr),+ $(,)?) => { vec![$($crate::error::MessagePart::from($part)),+] };
}
pub(crate) use message;

/// Checks that each parameter, by name, is at least 1.
pub(crate) fn require_positive(parameters: &[(&'static str, u32)]) -> Result<(), FabricError> {
    match parameters.iter().find(|(_, value)| *value == 0) {
        None => Ok(()),
        Some(&(field, _)) => {
            let why = "must be at least 1".to_owned();
            Err(FabricError::Parameter { field, value: 0, why })
        }
    }
}

/// A fabric that is inconsistent, impossible or cannot be routed.
///
/// `Display` gives nodes, switches and links by number; [`FabricError::message`] lets a caller that
/// knows their names write those instead.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum FabricError {
    /// An array has the wrong length.
    Length {
        /// Name of the array.
        name: &'static str,
        /// Its length.
        length: usize,
        /// Expected length.
        expected: usize,
    },
    /// A link starts or ends at a vertex that does not exist.
    Vertex {
        /// Link index.
        link: usize,
        /// Number of vertices.
        vertices: usize,
    },
    /// Links are not sorted by source vertex.
    Order {
        /// The first link that is out of order.
        link: usize,
    },
    /// A link whose `link_reverse` is not the opposite direction of the same cable.
    Reverse {
        /// Link index.
        link: usize,
    },
    /// The rate of a link is not a positive, finite number.
    Rate {
        /// Link index.
        link: usize,
        /// Its rate.
        gbps: f64,
    },
    /// A node that is not attached to a switch by exactly one cable.
    NodeCables {
        /// Node index.
        node: u32,
        /// Number of its cables, to switches or other nodes.
        cables: usize,
    },
    /// No path between two switches with nodes.
    Unconnected {
        /// Switch index.
        from: u32,
        /// Switch index.
        to: u32,
    },
    /// A routing rule for another topology than the fabric has.
    WrongTopology {
        /// Routing rule.
        rule: &'static str,
        /// Where the fabric differs from the topology.
        why: Vec<MessagePart>,
    },
    /// Forwarding tables that send packets in a loop.
    ForwardingLoop {
        /// A switch on the loop.
        switch: u32,
        /// Destination of the packets.
        node: u32,
    },
    /// A forwarding table entry with a link that does not leave the switch.
    ForeignLink {
        /// Switch index.
        switch: u32,
        /// Destination of the entry.
        node: u32,
        /// Link index.
        link: u32,
    },
    /// A cyclic channel dependency.
    Deadlock {
        /// Link and lane of each channel; each waits for the next, the last for the first.
        cycle: Vec<(u32, u8)>,
    },
    /// Routes that can deadlock even if they are spread over so many virtual lanes.
    TooFewLanes {
        /// Number of lanes.
        lanes: u8,
        /// Switch at which the first path begins that would close a cycle on every lane.
        from: u32,
        /// Node where it ends.
        node: u32,
    },
    /// An allocation failed.
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// Size of the allocation.
        bytes: u64,
    },
    /// Parameters of a builder that do not fit together.
    Parameter {
        /// Parameter.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        why: String,
    },
}

impl FabricError {
    /// The message in parts.
    pub fn message(&self) -> Vec<MessagePart> {
        use MessagePart::{Link, Node, Switch};
        match self {
            Self::Length { .. }
            | Self::Vertex { .. }
            | Self::Order { .. }
            | Self::Reverse { .. } => {
                message![self.inconsistency()]
            }
            Self::Rate { link, gbps } => message![
                Link(*link as u32),
                format!(" has a rate of {gbps} Gb/s; it must be a number above 0")
            ],
            Self::NodeCables { node, cables: 1 } => {
                message![Node(*node), " is cabled to another node; its cable must lead to a switch"]
            }
            Self::NodeCables { node, cables } => message![
                Node(*node),
                format!(
                    " has {cables} cables; a node is one adapter port and has exactly one cable, \
                     to a switch"
                )
            ],
            Self::Unconnected { from, to } => message![
                "no path from ",
                Switch(*from),
                " to ",
                Switch(*to),
                ": the fabric is not connected"
            ],
            Self::WrongTopology { rule, why } => {
                let mut parts = message![format!("{rule} routing does not fit this fabric: ")];
                parts.extend_from_slice(why);
                parts
            }
            Self::ForwardingLoop { .. } | Self::ForeignLink { .. } | Self::TooFewLanes { .. } => {
                self.of_forwarding_tables()
            }
            Self::Deadlock { cycle } => cycle_message("the routes can deadlock", cycle),
            Self::OutOfMemory { what, bytes } => {
                let gib = *bytes as f64 / f64::from(1 << 30);
                message![format!(
                    "{what} would take {gib:.1} GiB of memory, more than this machine can provide"
                )]
            }
            Self::Parameter { field, value, why } => message![format!("{field} = {value}: {why}")],
        }
    }

    /// The message for forwarding tables that cannot be used.
    fn of_forwarding_tables(&self) -> Vec<MessagePart> {
        use MessagePart::{Link, Node, Switch};
        match self {
            Self::ForwardingLoop { switch, node } => message![
                "the forwarding tables send packets for ",
                Node(*node),
                " in a loop through ",
                Switch(*switch)
            ],
            Self::ForeignLink { switch, node, link } => message![
                Switch(*switch),
                " forwards packets for ",
                Node(*node),
                " on ",
                Link(*link),
                ", which does not leave that switch"
            ],
            Self::TooFewLanes { lanes, from, node } => message![
                format!("the routes can deadlock on {lanes} virtual lanes: packets from "),
                Switch(*from),
                " to ",
                Node(*node),
                " would close a cycle of waiting buffers on each of them"
            ],
            _ => Vec::new(),
        }
    }

    /// The message for arrays that do not fit together: a bug of the caller, so numbers suffice.
    fn inconsistency(&self) -> String {
        match self {
            Self::Length { name, length, expected } => {
                format!("{name} has {length} entries, expected {expected}")
            }
            Self::Vertex { link, vertices } => {
                format!("link {link} starts or ends at a vertex beyond the last of {vertices}")
            }
            Self::Order { link } => {
                format!(
                    "link {link} is out of order: links must be sorted by source vertex and port"
                )
            }
            Self::Reverse { link } => format!("link {link} has no reverse link of the same cable"),
            _ => String::new(),
        }
    }
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message().iter().try_for_each(|part| part.fmt(f))
    }
}

/// The message for a cyclic channel dependency; the middle of a long cycle is left out.
pub fn cycle_message(problem: &str, cycle: &[(u32, u8)]) -> Vec<MessagePart> {
    const SHOWN: usize = 12;
    let mut parts = message![format!("{problem}: ")];
    let mut add = |&(link, lane): &(u32, u8), after: &str| {
        parts.push(MessagePart::Link(link));
        parts.push(format!(" (lane {lane}){after}").into());
    };
    for channel in cycle.iter().take(SHOWN) {
        add(channel, " waits for ");
    }
    if cycle.len() > SHOWN {
        let more = format!("{} more, the last of which waits for ", cycle.len() - SHOWN);
        parts.push(more.into());
    }
    if let Some(&(link, lane)) = cycle.first() {
        parts.push(MessagePart::Link(link));
        parts.push(format!(" (lane {lane})").into());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_links_and_close_the_cycle() {
        let error = FabricError::Deadlock { cycle: vec![(3, 0), (5, 1)] };
        assert_eq!(
            error.to_string(),
            "the routes can deadlock: link 3 (lane 0) waits for link 5 (lane 1) waits for link 3 \
             (lane 0)"
        );
        assert_eq!(error.message()[1], MessagePart::Link(3));
        let long = FabricError::Deadlock { cycle: (0..20).map(|link| (link, 0)).collect() };
        assert!(long.to_string().contains("8 more, the last of which waits for link 0 (lane 0)"));
    }

    #[test]
    fn a_node_cabled_to_a_node_is_refused() {
        let text = |cables| FabricError::NodeCables { node: 4, cables }.to_string();
        assert!(text(1).starts_with("node 4 is cabled to another node"));
        assert!(text(2).starts_with("node 4 has 2 cables"));
    }
}
