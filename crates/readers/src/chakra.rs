//! Chakra execution traces: length-delimited protobuf messages (mlcommons/chakra, `et_def.proto`).

use crate::numbering::{Interner, NodeRows};
use crate::op;
use crate::requirements::{Dependency, Requirements};

const COMPUTE: u64 = 4;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;
const MAX_BYTES: i128 = 1 << 53;
const PS_PER_US: u64 = 1_000_000;
/// Most names of unused attributes that are kept. Traces have some dozens; a hostile one has millions.
const MOST_UNUSED: usize = 256;

/// Defaults for properties that a trace does not record.
#[derive(Clone, Copy)]
pub struct ChakraOptions<'a> {
    /// Types of collectives that are expanded, with the number of the algorithm.
    pub calls: &'a [(i64, u32)],
    /// Longest valid computation, in picoseconds.
    pub longest_ps: u64,
}

/// Nodes of all ranks, rank by rank, and their dependencies.
#[derive(Debug, Default)]
pub struct Nodes {
    /// First node of each rank, and the number of nodes.
    pub rank_start: Vec<u32>,
    /// Kind of operation, as in [`op`]; `NOTHING` for collectives and computations that take no time.
    pub kind: Vec<u8>,
    /// The other rank of a send or receive, else -1.
    pub peer: Vec<i32>,
    /// Bytes or picoseconds.
    pub amount: Vec<u64>,
    /// Number of the label of a send or receive, which stands for kind and tag.
    pub label: Vec<u32>,
    /// Number within its file.
    pub number: Vec<u64>,
    /// What nodes depend on.
    pub required: Requirements,
    /// Kind and tag of each label; for collectives `NOTHING` and the number of the algorithm.
    pub labels: Vec<(u8, i64)>,
    /// The collectives.
    pub collectives: Collectives,
    /// Number of computations without a duration.
    pub without_duration: u64,
    /// Number of collectives that are not expanded: those of a process group or of another type.
    pub left_out: u64,
    /// Number of dependencies on nodes that are not in the file: converters drop some nodes.
    pub missing_dependencies: u64,
    /// Names of the attributes that are not used, in order, of at most [`MOST_UNUSED`].
    pub unused: Vec<String>,
}

/// Collectives, as columns.
#[derive(Debug, Default)]
pub struct Collectives {
    /// Row of the node.
    pub row: Vec<u32>,
    /// Number of the algorithm, -1 if it is not expanded.
    pub call: Vec<i64>,
    /// Bytes that the rank contributes.
    pub size: Vec<u64>,
    /// Root.
    pub root: Vec<i64>,
    /// Which collective of the rank it is, counted from 1.
    pub ordinal: Vec<i64>,
    /// Number of the label.
    pub label: Vec<u32>,
}

/// What is wrong with a trace.
#[derive(Debug, PartialEq, Eq)]
pub struct ChakraError {
    /// Index of the file.
    pub file: usize,
    /// What is wrong, and where.
    pub what: ChakraProblem,
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub enum ChakraProblem {
    /// Bytes that cannot be decoded: their offset, and why.
    Bytes(u64, String),
    /// A file without nodes.
    Empty,
    /// Two nodes with this number.
    DuplicateNode(u64),
    /// An invalid node: its number, its name, and why.
    InvalidNode(u64, String, String),
    /// More nodes than can be numbered.
    TooLarge,
}

/// Reads the files of all ranks.
///
/// # Errors
/// [`ChakraError`] for the first file with an error.
pub fn read(files: &[&[u8]], options: ChakraOptions<'_>) -> Result<Nodes, ChakraError> {
    let mut reader = ChakraReader::new(files.len(), options);
    files.iter().try_for_each(|data| reader.file(data))?;
    Ok(reader.finish())
}

/// Reads the files of the ranks one by one.
pub struct ChakraReader<'a> {
    out: Nodes,
    options: ChakraOptions<'a>,
    n_ranks: usize,
    files: usize,
    labels: Interner,
    rows: NodeRows,
    /// Row of a node, and the number of a node that it depends on.
    dependencies: Vec<(u32, u64)>,
    /// The same by row.
    by_row: Vec<Dependency>,
}

impl<'a> ChakraReader<'a> {
    /// A reader for the files of `n_ranks` ranks.
    pub fn new(n_ranks: usize, options: ChakraOptions<'a>) -> Self {
        Self {
            out: Nodes { rank_start: vec![0], ..Nodes::default() },
            options,
            n_ranks,
            files: 0,
            labels: Interner::default(),
            rows: NodeRows::default(),
            dependencies: Vec::new(),
            by_row: Vec::new(),
        }
    }

    /// Reads the file of the next rank.
    ///
    /// # Errors
    /// [`ChakraError`] if the file has an error.
    pub fn file(&mut self, data: &[u8]) -> Result<(), ChakraError> {
        let file = self.files;
        self.files += 1;
        self.nodes(data).map_err(|what| ChakraError { file, what })?;
        if file == 0 {
            self.reserve();
        }
        Ok(())
    }

    /// Reserves memory for as many nodes of each other rank as the first one has, if there is enough:
    /// columns that grow leave memory behind.
    fn reserve(&mut self) {
        let (out, others) = (&mut self.out, self.n_ranks.saturating_sub(1));
        let all = |count: usize| count.saturating_mul(others).min(1 << 26);
        let (nodes, lists) = (all(out.kind.len()), all(out.required.source.len()));
        let _ = out.kind.try_reserve_exact(nodes);
        let _ = out.peer.try_reserve_exact(nodes);
        let _ = out.amount.try_reserve_exact(nodes);
        let _ = out.number.try_reserve_exact(nodes);
        let _ = out.label.try_reserve_exact(nodes);
        let _ = out.required.end.try_reserve_exact(nodes);
        let _ = out.required.source.try_reserve_exact(lists);
    }

    /// The nodes of all files.
    pub fn finish(self) -> Nodes {
        self.out
    }

    fn nodes(&mut self, data: &[u8]) -> Result<(), ChakraProblem> {
        self.rows.clear();
        self.dependencies.clear();
        let mut at = 0;
        let mut messages = 0u64;
        let mut ordinal = 0;
        while at < data.len() {
            let begin = at;
            let length = varint(data, &mut at)?;
            let left = (data.len() - at) as u64;
            if length > left {
                let message =
                    format!("a message of {length} B, but the file has only {left} B left");
                return Err(ChakraProblem::Bytes(begin as u64, message));
            }
            let end = at + length as usize;
            // The first message is the metadata.
            if messages > 0 {
                self.node(&data[..end], at, &mut ordinal)?;
            }
            messages += 1;
            at = end;
        }
        if messages < 2 {
            return Err(ChakraProblem::Empty);
        }
        for &(row, number) in &self.dependencies {
            let Some(before) = self.rows.get(number) else {
                self.out.missing_dependencies += 1;
                continue;
            };
            self.by_row.push(Dependency { before, after: row, begun: false });
        }
        self.out.required.add_rank(&self.out.kind, &mut self.by_row);
        self.out.rank_start.push(self.out.kind.len() as u32);
        Ok(())
    }

    fn node(&mut self, data: &[u8], at: usize, ordinal: &mut i64) -> Result<(), ChakraProblem> {
        let row = self.out.kind.len();
        if row >= 1 << 27 {
            return Err(ChakraProblem::TooLarge);
        }
        let row = row as u32;
        let (dependencies, names) = (&mut self.dependencies, &mut self.out.unused);
        let mut unused = |name: &[u8]| {
            if names.len() < MOST_UNUSED && !names.iter().any(|known| known.as_bytes() == name) {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        };
        let mut depends = |before| dependencies.push((row, before));
        let node = parse(data, at, &mut depends, &mut unused)?;
        let number = node.number;
        if !self.rows.insert(number, row) {
            return Err(ChakraProblem::DuplicateNode(number));
        }
        let name = || String::from_utf8_lossy(node.name).into_owned();
        let wrong = |why| ChakraProblem::InvalidNode(number, name(), why);
        self.add(&node, row, ordinal).map_err(wrong)
    }

    fn add(&mut self, node: &Node<'_>, row: u32, ordinal: &mut i64) -> Result<(), String> {
        let (mut kind, mut peer, mut amount, mut label) = (op::NOTHING, -1, 0, 0);
        match node.kind {
            COMPUTE => {
                let ps = node.duration_us.checked_mul(PS_PER_US);
                let ps = ps.filter(|&ps| ps <= self.options.longest_ps);
                amount =
                    ps.ok_or_else(|| format!("a duration of {} µs is too long", node.duration_us))?;
                self.out.without_duration += u64::from(amount == 0);
                kind = if amount == 0 { op::NOTHING } else { op::COMPUTE };
            }
            SEND | RECEIVE => {
                kind = if node.kind == SEND { op::ISEND } else { op::IRECV };
                let (name, other) = match kind {
                    op::ISEND => ("comm_dst", &node.destination),
                    _ => ("comm_src", &node.source),
                };
                let other = other.number(name, None)?;
                let size = node.size.number("comm_size", None)?;
                let number = node.tag.number("comm_tag", Some(0))?;
                if !(0..self.n_ranks as i128).contains(&other) {
                    let n_ranks = self.n_ranks;
                    return Err(format!(
                        "{name} is {other}, but there are {n_ranks} ranks, from 0"
                    ));
                }
                if !(0..=MAX_BYTES).contains(&size) {
                    return Err(format!("comm_size is {size}; valid: 0 to {MAX_BYTES} bytes"));
                }
                if !(-(1 << 31)..1 << 32).contains(&number) {
                    return Err(format!("comm_tag is {number}; valid: a number of 32 bits"));
                }
                peer = other as i32;
                amount = size as u64;
                label = self.label(kind, number as i64);
            }
            COLLECTIVE => {
                *ordinal += 1;
                self.collective(node, row, *ordinal)?;
            }
            _ => {}
        }
        let out = &mut self.out;
        out.kind.push(kind);
        out.peer.push(peer);
        out.amount.push(amount);
        out.label.push(label);
        out.number.push(node.number);
        Ok(())
    }

    fn collective(&mut self, node: &Node<'_>, row: u32, ordinal: i64) -> Result<(), String> {
        let kind = node.collective.number("comm_type", Some(-1))?;
        let call = self.options.calls.iter().find(|call| i128::from(call.0) == kind);
        let (mut size, mut root, mut label, mut number) = (0, 0, 0, -1);
        match call.filter(|_| !node.has_process_group) {
            Some(&(_, call)) => {
                let bytes = node.size.number("comm_size", Some(0))?;
                let at = node.root.number("root", Some(0))?;
                if !(0..=MAX_BYTES).contains(&bytes) {
                    return Err(format!("comm_size is {bytes}; valid: 0 to {MAX_BYTES} bytes"));
                }
                root = i64::try_from(at).map_err(|_| format!("root is {at}, which is no rank"))?;
                size = bytes as u64;
                number = i64::from(call);
                label = self.label(op::NOTHING, number);
            }
            None => self.out.left_out += 1,
        }
        let out = &mut self.out.collectives;
        out.row.push(row);
        out.call.push(number);
        out.size.push(size);
        out.root.push(root);
        out.ordinal.push(ordinal);
        out.label.push(label);
        Ok(())
    }

    fn label(&mut self, kind: u8, tag: i64) -> u32 {
        let (number, new) = self.labels.number(kind.into(), tag);
        if new {
            self.out.labels.push((kind, tag));
        }
        number
    }
}

/// The fields of a node that are used.
#[derive(Default)]
struct Node<'a> {
    number: u64,
    name: &'a [u8],
    kind: u64,
    duration_us: u64,
    destination: AttributeValue<'a>,
    source: AttributeValue<'a>,
    size: AttributeValue<'a>,
    tag: AttributeValue<'a>,
    collective: AttributeValue<'a>,
    root: AttributeValue<'a>,
    /// Whether it belongs to a process group.
    has_process_group: bool,
}

/// The value of an attribute.
#[derive(Default, Clone, Copy)]
enum AttributeValue<'a> {
    #[default]
    Missing,
    Number(i64),
    /// Larger than the largest signed number.
    Large(u64),
    Real(f64),
    Text(&'a [u8]),
}

impl AttributeValue<'_> {
    fn number(&self, name: &str, default: Option<i128>) -> Result<i128, String> {
        match self {
            Self::Number(value) => Ok((*value).into()),
            Self::Large(value) => Ok((*value).into()),
            Self::Missing => default.ok_or_else(|| format!("has no {name}")),
            Self::Real(value) => Err(format!("{name} is '{value:?}'")),
            Self::Text(text) => {
                let text = String::from_utf8_lossy(text);
                Err(format!("{name} is '{}'", text.escape_debug().take(60).collect::<String>()))
            }
        }
    }
}

/// A field of a protobuf message.
struct ProtobufField {
    number: u64,
    content: FieldContent,
}

/// Content of a field; for bytes, their range.
enum FieldContent {
    Varint(u64),
    Wide(u64),
    Narrow(u32),
    Bytes(usize, usize),
}

#[inline(always)]
fn field(data: &[u8], at: &mut usize) -> Result<ProtobufField, ChakraProblem> {
    let begin = *at;
    let key = varint(data, at)?;
    let length = match key & 7 {
        0 => {
            return Ok(ProtobufField {
                number: key >> 3,
                content: FieldContent::Varint(varint(data, at)?),
            });
        }
        1 => 8,
        2 => varint(data, at)?,
        5 => 4,
        kind => {
            return Err(ChakraProblem::Bytes(
                begin as u64,
                format!("a field has the unknown wire type {kind}"),
            ));
        }
    };
    let left = (data.len() - *at) as u64;
    if length > left {
        let message = format!("a field of {length} B, but the file has only {left} B left");
        return Err(ChakraProblem::Bytes(begin as u64, message));
    }
    let (from, to) = (*at, *at + length as usize);
    *at = to;
    let content = match (key & 7, &data[from..to]) {
        (1, &[a, b, c, d, e, f, g, h]) => {
            FieldContent::Wide(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
        }
        (5, &[a, b, c, d]) => FieldContent::Narrow(u32::from_le_bytes([a, b, c, d])),
        _ => FieldContent::Bytes(from, to),
    };
    Ok(ProtobufField { number: key >> 3, content })
}

#[inline(always)]
fn varint(data: &[u8], at: &mut usize) -> Result<u64, ChakraProblem> {
    match data.get(*at) {
        Some(&byte) if byte < 128 => {
            *at += 1;
            Ok(byte.into())
        }
        _ => long_varint(data, at),
    }
}

fn long_varint(data: &[u8], at: &mut usize) -> Result<u64, ChakraProblem> {
    let begin = *at;
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some(&byte) = data.get(*at) else { break };
        *at += 1;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    Err(ChakraProblem::Bytes(begin as u64, "a number has no last byte".to_owned()))
}

fn parse<'a>(
    data: &'a [u8],
    mut at: usize,
    depends: &mut impl FnMut(u64),
    unused: &mut impl FnMut(&[u8]),
) -> Result<Node<'a>, ChakraProblem> {
    let mut node = Node::default();
    while at < data.len() {
        let begin = at;
        let content = field(data, &mut at)?;
        match (content.number, content.content) {
            (1, FieldContent::Varint(number)) => node.number = number,
            (2, FieldContent::Bytes(from, to)) => node.name = text(data, from, to)?,
            (3, FieldContent::Varint(kind)) => node.kind = kind,
            (4 | 5, FieldContent::Varint(before)) => depends(before),
            (4 | 5, FieldContent::Bytes(from, to)) => {
                let mut spot = from;
                while spot < to {
                    depends(varint(&data[..to], &mut spot)?);
                }
            }
            (6, FieldContent::Varint(start)) if start > 0 => unused(b"start_time_micros"),
            (7, FieldContent::Varint(duration)) => node.duration_us = duration,
            (10, FieldContent::Bytes(from, to)) => {
                attribute(&data[..to], from, &mut node, unused)?;
            }
            (1 | 3 | 4 | 5 | 7, _) => {
                let message = "a field has the wrong type: expected a number".to_owned();
                return Err(ChakraProblem::Bytes(begin as u64, message));
            }
            (2 | 10, _) => {
                let message = "a field has the wrong type: expected text".to_owned();
                return Err(ChakraProblem::Bytes(begin as u64, message));
            }
            _ => {}
        }
    }
    Ok(node)
}

#[inline]
fn text(data: &[u8], from: usize, to: usize) -> Result<&[u8], ChakraProblem> {
    let text = &data[from..to];
    if text.is_ascii() || std::str::from_utf8(text).is_ok() {
        return Ok(text);
    }
    Err(ChakraProblem::Bytes(from as u64, "a name is not UTF-8 text".to_owned()))
}

/// Stores an attribute of a node; lists are ignored.
fn attribute<'a>(
    data: &'a [u8],
    mut at: usize,
    node: &mut Node<'a>,
    unused: &mut impl FnMut(&[u8]),
) -> Result<(), ChakraProblem> {
    let (mut name, mut value) = (&[][..], AttributeValue::Missing);
    while at < data.len() {
        let begin = at;
        let wire = field(data, &mut at)?;
        if wire.number == 1 {
            let FieldContent::Bytes(from, to) = wire.content else {
                let message = "a field has the wrong type: expected text".to_owned();
                return Err(ChakraProblem::Bytes(begin as u64, message));
            };
            name = text(data, from, to)?;
        } else if (3..33).contains(&wire.number) {
            value = content(data, wire)?;
        }
    }
    let slot = match name {
        b"comm_dst" => &mut node.destination,
        b"comm_src" => &mut node.source,
        b"comm_size" => &mut node.size,
        b"comm_tag" => &mut node.tag,
        b"comm_type" => &mut node.collective,
        b"root" => &mut node.root,
        b"pg_name" => {
            match value {
                AttributeValue::Missing => {}
                AttributeValue::Text(text) => node.has_process_group = !text.is_empty(),
                AttributeValue::Number(number) => node.has_process_group = number != 0,
                AttributeValue::Large(_) => node.has_process_group = true,
                AttributeValue::Real(number) => node.has_process_group = number != 0.0,
            }
            return Ok(());
        }
        _ => {
            unused(name);
            return Ok(());
        }
    };
    if !matches!(value, AttributeValue::Missing) {
        *slot = value;
    }
    Ok(())
}

fn content(data: &[u8], field: ProtobufField) -> Result<AttributeValue<'_>, ChakraProblem> {
    Ok(match (field.number, field.content) {
        (29 | 31, FieldContent::Bytes(from, to)) => AttributeValue::Text(text(data, from, to)?),
        (_, FieldContent::Bytes(..)) => AttributeValue::Missing,
        (3, FieldContent::Wide(bits)) => AttributeValue::Real(f64::from_bits(bits)),
        (5, FieldContent::Narrow(bits)) => AttributeValue::Real(f64::from(f32::from_bits(bits))),
        (23, FieldContent::Narrow(bits)) => AttributeValue::Number((bits as i32).into()),
        (25, FieldContent::Wide(bits)) => AttributeValue::Number(bits as i64),
        (3 | 25, FieldContent::Narrow(_)) | (5 | 23, FieldContent::Wide(_)) => {
            AttributeValue::Missing
        }
        (_, FieldContent::Wide(bits)) => unsigned(bits),
        (_, FieldContent::Narrow(bits)) => AttributeValue::Number(bits.into()),
        (7 | 9, FieldContent::Varint(bits)) => AttributeValue::Number(bits as i64),
        (15 | 17, FieldContent::Varint(bits)) => {
            AttributeValue::Number((bits >> 1) as i64 ^ -((bits & 1) as i64))
        }
        (_, FieldContent::Varint(bits)) => unsigned(bits),
    })
}

fn unsigned(bits: u64) -> AttributeValue<'static> {
    i64::try_from(bits).map_or(AttributeValue::Large(bits), AttributeValue::Number)
}

#[cfg(test)]
mod tests {
    use super::{ChakraError, ChakraOptions, ChakraProblem, read};

    const OPTIONS: ChakraOptions<'_> = ChakraOptions { calls: &[], longest_ps: 1 << 60 };

    #[test]
    fn computations_are_read_and_truncation_refused() {
        // Metadata; node 5, a computation of 3 us; node 6, without a type, depends on node 5.
        let data = [0, 6, 8, 5, 24, 4, 56, 3, 5, 8, 6, 42, 1, 5];
        let nodes = read(&[&data], OPTIONS).expect("a valid trace");
        assert_eq!((nodes.kind, nodes.amount), (vec![0, 255], vec![3_000_000, 0]));
        assert_eq!((nodes.required.end, nodes.required.source), (vec![0, 1], vec![0]));
        let what =
            ChakraProblem::Bytes(8, "a message of 5 B, but the file has only 4 B left".to_owned());
        assert_eq!(read(&[&data[..13]], OPTIONS).err(), Some(ChakraError { file: 0, what }));
        let without_node_5 = [0, 5, 8, 6, 42, 1, 5];
        let nodes = read(&[&without_node_5], OPTIONS).expect("a trace without some nodes");
        assert_eq!((nodes.required.end, nodes.missing_dependencies), (vec![0], 1));
    }
}
