//! SimGrid's time-independent traces: a line for each call, `rank call arguments…`.

use crate::assembly::UNKNOWN;
use crate::numbering::Map;
use crate::text::{float, integer, lines, natural, trimmed, word};

/// MPI_PROC_NULL and MPI_ANY_TAG of SimGrid; any other negative source is MPI_ANY_SOURCE.
const NOBODY: i32 = -666;
const ANY_TAG: i32 = -444;
/// Largest count: what a double holds without loss.
const MOST: f64 = (1u64 << 53) as f64;

/// Calls that post a message, in the order of their numbers.
pub const POSTS: [&str; 9] =
    ["send", "ssend", "bsend", "recv", "isend", "issend", "ibsend", "irecv", "sendrecv"];
/// Collectives, in the order of their numbers; the non-blocking ones begin with `i`.
pub const COLLECTIVES: [&str; 15] = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "alltoall",
    "allgather",
    "gather",
    "scatter",
    "gatherv",
    "allgatherv",
    "scatterv",
    "alltoallv",
    "reducescatter",
    "scan",
    "exscan",
];
/// Calls that say nothing that counts.
pub const SILENT: [&str; 8] =
    ["comm_size", "comm_dup", "probe", "iprobe", "location", "iteration_in", "iteration_out", "io"];
/// Calls whose completions are not told.
pub const UNTOLD: [&str; 6] = ["test", "testall", "testany", "testsome", "waitany", "waitsome"];
/// One-sided and persistent calls.
pub const LEFT_OUT: [&str; 12] = [
    "put",
    "get",
    "accumulate",
    "get_accumulate",
    "fetch_and_op",
    "compare_and_swap",
    "rput",
    "rget",
    "raccumulate",
    "rget_accumulate",
    "start",
    "startall",
];
/// The other calls.
pub const OTHERS: [&str; 7] =
    ["init", "finalize", "comm_split", "wait", "waitall", "compute", "sleep"];

/// What to take for what a trace does not say.
#[derive(Clone, Copy)]
pub struct Scale<'a> {
    /// Bytes of each type by its number.
    pub type_bytes: &'a [u64],
    /// Picoseconds of a flop.
    pub ps_per_flop: u64,
    /// The longest computation.
    pub longest_ps: u64,
}

/// The calls of all ranks, rank after rank; a row is a line of all files, from 0.
#[derive(Debug, Default)]
pub struct Calls {
    /// Number of ranks.
    pub n_ranks: u32,
    /// First row of each file.
    pub first: Vec<u64>,
    /// Bytes of an element where no type is named.
    pub default_bytes: u64,
    /// Sends and receives.
    pub posts: Posts,
    /// Call and tag of each label.
    pub labels: Vec<(u8, i32)>,
    /// Sends and receives of MPI_PROC_NULL.
    pub nobody: u64,
    /// One-sided and persistent calls.
    pub left_out: u64,
    /// Calls that do not tell what they complete.
    pub untold: u64,
    /// Whether communicators are made.
    pub splits: bool,
    /// Calls that wait for all.
    pub waitalls: Places,
    /// Computations and pauses.
    pub computes: Places,
    /// Picoseconds of each.
    pub computes_ps: Vec<u64>,
    /// Collective calls.
    pub collectives: Places,
    /// Index into `kinds` of each.
    pub collective_kind: Vec<u32>,
    /// The different collective calls.
    pub kinds: Vec<Kind>,
}

/// Where events of ranks stand.
#[derive(Debug, Default)]
pub struct Places {
    /// Whose.
    pub rank: Vec<i64>,
    /// On which row.
    pub row: Vec<i64>,
}

impl Places {
    fn push(&mut self, rank: u32, row: u64) {
        self.rank.push(i64::from(rank));
        self.row.push(row as i64);
    }
}

/// Columns of `tailback.traffic.readers.posts.Posts`.
#[derive(Debug, Default)]
pub struct Posts {
    /// Who posts.
    pub rank: Vec<i64>,
    /// Twice the row.
    pub position: Vec<i64>,
    /// Order among those of one row.
    pub step: Vec<i64>,
    /// Send or receive.
    pub is_send: Vec<bool>,
    /// The other rank, or `UNKNOWN`.
    pub peer: Vec<i64>,
    /// The tag.
    pub channel: Vec<i64>,
    /// Bytes.
    pub size: Vec<u64>,
    /// Number of the label.
    pub label: Vec<i64>,
    /// Where it is waited for, or `UNKNOWN`.
    pub wait_position: Vec<i64>,
    /// Whether the line says whom it meets and how large it is.
    pub peer_known: Vec<bool>,
}

/// Collective calls with the same arguments.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
pub struct Kind {
    /// Index into [`COLLECTIVES`].
    pub operation: u8,
    /// Whether it blocks.
    pub blocking: bool,
    /// The rank that calls, where the arguments mean another thing at the root; else 0.
    pub me: u32,
    /// The arguments.
    pub arguments: Vec<u8>,
    /// Row of the first.
    pub row: u64,
}

/// What is wrong, and on which row.
#[derive(Debug, PartialEq)]
pub enum LineError {
    /// There is no call at all.
    Empty,
    /// A line that does not begin with a rank.
    NoRank(u64),
    /// A line without a call.
    NoCall(u64),
    /// A call that is not known, in lower case.
    Unknown(u64, Vec<u8>),
    /// No lines of a rank: which, and the last that has some.
    Missing(u64, u64),
    /// A second beginning of a rank.
    Twice(u64, u32),
    /// The last line of a rank that does not finish.
    Unfinished(u64, u32),
    /// An argument that is not there.
    Lacks(u64, &'static str),
    /// An argument that is no whole number.
    NotWhole(u64, &'static str, Vec<u8>),
    /// An argument that is no number up to a limit.
    NotCount(u64, &'static str, Vec<u8>, f64),
    /// A type that does not exist.
    NoType(u64, Vec<u8>),
    /// A rank that does not exist, and how many there are.
    Beyond(u64, i32, u32),
    /// More lines than can be numbered.
    Large,
}

/// Reads the lines of files, one file after the other.
pub fn read(files: &[&[u8]], scale: Scale<'_>) -> Result<Calls, LineError> {
    let mut reader = Reader::new(scale);
    let mut row = 0;
    for data in files {
        reader.out.first.push(row);
        for line in lines(data) {
            let line = trimmed(line);
            if !line.is_empty() && line[0] != b'#' {
                reader.line(row, line)?;
            }
            row += 1;
        }
    }
    reader.finish()
}

/// What a line says, as small as it can be: there are many.
#[derive(Clone, Copy)]
struct Record {
    row: u64,
    /// Bytes, picoseconds, number of the kind of a collective, or the tag of a wait.
    amount: u64,
    rank: u32,
    peer: i32,
    tag: i32,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Post {
        call: u8,
        is_send: bool,
    },
    /// Only counts as a line of its rank.
    Nothing,
    Wait,
    WaitAll,
    Compute,
    Collective,
    Init,
    Finalize,
}

struct Reader<'a> {
    scale: Scale<'a>,
    calls: Map<&'static [u8], Call>,
    records: Vec<Record>,
    kinds: Map<(u8, bool, u32, &'a [u8]), u32>,
    largest: u64,
    wide: bool,
    /// The first line with a wrong argument, reported once the trace is known to be whole.
    fault: Option<LineError>,
    out: Calls,
}

#[derive(Clone, Copy)]
enum Call {
    Post(u8),
    Collective(u8, bool),
    Silent,
    Untold,
    LeftOut,
    Split,
    Init,
    Finalize,
    Wait,
    WaitAll,
    Compute,
    Sleep,
}

fn calls() -> Map<&'static [u8], Call> {
    let mut out: Map<&'static [u8], Call> = Map::default();
    let mut add = |name: &'static str, call| out.insert(name.as_bytes(), call);
    for (number, name) in POSTS.iter().enumerate() {
        add(name, Call::Post(number as u8));
    }
    for name in SILENT {
        add(name, Call::Silent);
    }
    for name in UNTOLD {
        add(name, Call::Untold);
    }
    for name in LEFT_OUT {
        add(name, Call::LeftOut);
    }
    let others = [
        Call::Init,
        Call::Finalize,
        Call::Split,
        Call::Wait,
        Call::WaitAll,
        Call::Compute,
        Call::Sleep,
    ];
    for (name, call) in OTHERS.iter().zip(others) {
        add(name, call);
    }
    out
}

/// A collective by its name, and whether it blocks.
fn collective(name: &[u8]) -> Option<Call> {
    let find = |name: &[u8]| COLLECTIVES.iter().position(|one| one.as_bytes() == name);
    if let Some(number) = find(name) {
        return Some(Call::Collective(number as u8, true));
    }
    let number = find(name.strip_prefix(b"i")?)?;
    Some(Call::Collective(number as u8, false))
}

impl<'a> Reader<'a> {
    fn new(scale: Scale<'a>) -> Self {
        Self {
            scale,
            calls: calls(),
            records: Vec::new(),
            kinds: Map::default(),
            largest: 0,
            wide: false,
            fault: None,
            out: Calls::default(),
        }
    }

    fn line(&mut self, row: u64, line: &'a [u8]) -> Result<(), LineError> {
        let mut rest = line;
        let who = word(&mut rest).unwrap_or_default();
        let who = who.strip_prefix(b"p").unwrap_or(who);
        let rank = natural(who).filter(|&rank| rank < 1 << 63).ok_or(LineError::NoRank(row))?;
        self.largest = self.largest.max(rank);
        // A rank without lines of its own is found before this number counts.
        let rank = rank.min(u64::from(u32::MAX)) as u32;
        let name = word(&mut rest).ok_or(LineError::NoCall(row))?;
        let mut buffer = [0u8; 24];
        let lower = match buffer.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                &*lower
            }
            None => return Err(LineError::Unknown(row, name.to_ascii_lowercase())),
        };
        let call = match self.calls.get(lower) {
            Some(&call) => call,
            None if lower.starts_with(b"win_") => Call::Silent,
            None => collective(lower).ok_or_else(|| LineError::Unknown(row, lower.to_vec()))?,
        };
        if self.records.len() >= 1 << 29 {
            return Err(LineError::Large);
        }
        if let Err(fault) = self.call(row, rank, call, rest) {
            self.fault.get_or_insert(fault);
        }
        Ok(())
    }

    fn call(&mut self, row: u64, rank: u32, call: Call, rest: &'a [u8]) -> Result<(), LineError> {
        let mut record = Record { row, amount: 0, rank, peer: 0, tag: 0, what: What::Nothing };
        match call {
            Call::Post(EXCHANGE) => return self.exchange(record, rest),
            Call::Post(number) => return self.post(record, number, rest),
            Call::Collective(operation, blocking) => {
                let rooted = matches!(operation, 8 | 10);
                let me = if rooted { rank } else { 0 };
                let next = self.kinds.len() as u32;
                let number = *self.kinds.entry((operation, blocking, me, rest)).or_insert(next);
                if number == next {
                    let arguments = rest.to_vec();
                    self.out.kinds.push(Kind { operation, blocking, me, arguments, row });
                }
                record.amount = u64::from(number);
                record.what = What::Collective;
            }
            Call::Silent => {}
            Call::Untold => self.out.untold += 1,
            Call::LeftOut => self.out.left_out += 1,
            Call::Split => self.out.splits = true,
            Call::Init => {
                self.wide |= !rest.is_empty();
                record.what = What::Init;
            }
            Call::Finalize => record.what = What::Finalize,
            Call::WaitAll => record.what = What::WaitAll,
            Call::Wait => return self.wait(record, rest),
            Call::Compute | Call::Sleep => {
                record.what = What::Compute;
                record.amount = self.duration(row, matches!(call, Call::Compute), rest)?;
            }
        }
        self.records.push(record);
        Ok(())
    }

    fn duration(&self, row: u64, flops: bool, mut rest: &[u8]) -> Result<u64, LineError> {
        let text = word(&mut rest).ok_or(LineError::Lacks(row, "amount"))?;
        let longest = self.scale.longest_ps as f64;
        if flops {
            let most = MOST.min(longest / self.scale.ps_per_flop as f64);
            Ok(count(row, "amount", text, 0.0, most)? * self.scale.ps_per_flop)
        } else {
            let value =
                float(text).map(|value| value * 1e12).filter(|ps| (0.0..=longest).contains(ps));
            let wrong = || LineError::NotCount(row, "amount", text.to_vec(), longest * 1e-12);
            Ok(value.ok_or_else(wrong)?.round_ties_even() as u64)
        }
    }

    fn post(&mut self, mut record: Record, call: u8, mut rest: &[u8]) -> Result<(), LineError> {
        let row = record.row;
        record.peer = whole(row, "peer", word(&mut rest))?;
        record.tag = whole(row, "tag", word(&mut rest))?;
        let size = word(&mut rest).ok_or(LineError::Lacks(row, "size"))?;
        let is_send = !matches!(call, 3 | 7);
        self.sized(&mut record, "size", size, rest)?;
        record.what = What::Post { call, is_send };
        self.records.push(record);
        Ok(())
    }

    /// A receive and a send of one call, which has tag 0.
    fn exchange(&mut self, record: Record, mut rest: &[u8]) -> Result<(), LineError> {
        let row = record.row;
        let lacks = |what| LineError::Lacks(row, what);
        let sent = word(&mut rest).ok_or(lacks("size"))?;
        let to = whole(row, "peer", word(&mut rest))?;
        let received = word(&mut rest).ok_or(lacks("size"))?;
        let source = whole(row, "peer", word(&mut rest))?;
        let sent_type = word(&mut rest).unwrap_or_default();
        for (is_send, peer, size, kind) in
            [(false, source, received, rest), (true, to, sent, sent_type)]
        {
            let mut one = Record { peer, ..record };
            self.sized(&mut one, "size", size, kind)?;
            one.what = What::Post { call: EXCHANGE, is_send };
            self.records.push(one);
        }
        Ok(())
    }

    /// Fills in the bytes; of elements without a type their number, until their width is known.
    fn sized(
        &self,
        record: &mut Record,
        what: &'static str,
        size: &[u8],
        kind: &[u8],
    ) -> Result<(), LineError> {
        let elements = count(record.row, what, size, -1.0, MOST)?;
        if kind.is_empty() {
            record.amount = elements;
            return Ok(());
        }
        let number = natural(kind).filter(|_| kind.len() <= 4);
        let width = number.and_then(|number| self.scale.type_bytes.get(number as usize));
        let width = width.ok_or_else(|| LineError::NoType(record.row, kind.to_vec()))?;
        record.amount = elements.saturating_mul(*width) | TYPED;
        Ok(())
    }

    fn wait(&mut self, mut record: Record, mut rest: &[u8]) -> Result<(), LineError> {
        let row = record.row;
        let source = whole(row, "source", word(&mut rest))?;
        record.peer = whole(row, "destination", word(&mut rest))?;
        record.tag = whole(row, "tag", (!rest.is_empty()).then_some(rest))?;
        record.amount = source as u32 as u64;
        record.what = What::Wait;
        self.records.push(record);
        Ok(())
    }

    fn finish(mut self) -> Result<Calls, LineError> {
        let records = std::mem::take(&mut self.records);
        let order = Order::of(&records, self.largest)?;
        self.out.n_ranks = order.first.len() as u32 - 1;
        let mut finished = Ok(());
        for rank in 0..self.out.n_ranks {
            let (mut begun, mut ended, mut last) = (false, false, 0);
            for record in order.of_rank(&records, rank) {
                let begins = record.what == What::Init;
                if begins && std::mem::replace(&mut begun, true) {
                    return Err(LineError::Twice(record.row, rank));
                }
                ended |= record.what == What::Finalize;
                last = record.row;
            }
            if !ended && finished.is_ok() {
                finished = Err(LineError::Unfinished(last, rank));
            }
        }
        finished?;
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.out.default_bytes = if self.wide { 8 } else { 1 };
        let mut rows = Rows { out: self.out, labels: Map::default(), last: [None; POSTS.len()] };
        for rank in 0..rows.out.n_ranks {
            rows.rank(order.of_rank(&records, rank))?;
        }
        Ok(rows.out)
    }
}

/// Marks an amount that is bytes already.
const TYPED: u64 = 1 << 63;
/// The number of `sendrecv` among [`POSTS`].
const EXCHANGE: u8 = 8;

/// The records of each rank in the order of their lines.
struct Order {
    first: Vec<u32>,
    order: Option<Vec<u32>>,
}

impl Order {
    fn of(records: &[Record], largest: u64) -> Result<Self, LineError> {
        if records.is_empty() {
            return Err(LineError::Empty);
        }
        if largest >= records.len() as u64 {
            let mut ranks: Vec<u32> = records.iter().map(|record| record.rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            let gap = ranks.iter().enumerate().find(|&(at, &rank)| at as u64 != u64::from(rank));
            let missing = gap.map_or(ranks.len(), |(at, _)| at);
            return Err(LineError::Missing(missing as u64, largest));
        }
        let n = largest as usize + 1;
        let mut first = vec![0u32; n + 1];
        for record in records {
            first[record.rank as usize + 1] += 1;
        }
        if let Some(rank) = first[1..].iter().position(|&lines| lines == 0) {
            return Err(LineError::Missing(rank as u64, largest));
        }
        for at in 0..n {
            first[at + 1] += first[at];
        }
        if records.is_sorted_by_key(|record| record.rank) {
            return Ok(Self { first, order: None });
        }
        let mut next = first.clone();
        let mut order = vec![0; records.len()];
        for (at, record) in records.iter().enumerate() {
            let slot = &mut next[record.rank as usize];
            order[*slot as usize] = at as u32;
            *slot += 1;
        }
        Ok(Self { first, order: Some(order) })
    }

    fn of_rank<'r>(
        &'r self,
        records: &'r [Record],
        rank: u32,
    ) -> impl Iterator<Item = &'r Record> + Clone {
        (self.first[rank as usize]..self.first[rank as usize + 1]).map(move |at| {
            &records[self.order.as_ref().map_or(at, |order| order[at as usize]) as usize]
        })
    }
}

/// Makes columns of records.
struct Rows {
    out: Calls,
    labels: Map<(u8, u32), u32>,
    /// Tag and label of the last message of each call.
    last: [Option<(i32, u32)>; POSTS.len()],
}

/// Source, destination and tag of a message.
type Triple = (i32, i32, i32);

impl Rows {
    fn rank<'r>(
        &mut self,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), LineError> {
        let named = records.clone().any(|record| record.what == What::Wait);
        // Requests that no wait has taken, the oldest first.
        let mut open: Map<Triple, std::collections::VecDeque<usize>> = Map::default();
        for record in records {
            let me = record.rank as i32;
            match record.what {
                What::Post { call, is_send } => {
                    let at = self.post(record, call, is_send)?;
                    if let Some(at) = at.filter(|_| named && !blocking(call)) {
                        let (from, to) =
                            if is_send { (me, record.peer) } else { (record.peer, me) };
                        open.entry((from, to, record.tag)).or_default().push_back(at);
                    }
                }
                What::Wait => {
                    let triple = (record.amount as u32 as i32, record.peer, record.tag);
                    if let Some(at) = open.get_mut(&triple).and_then(|some| some.pop_front()) {
                        self.out.posts.wait_position[at] = 2 * record.row as i64 + 1;
                    }
                }
                What::WaitAll => {
                    open.clear();
                    self.out.waitalls.push(record.rank, record.row);
                }
                What::Compute if record.amount > 0 => {
                    self.out.computes.push(record.rank, record.row);
                    self.out.computes_ps.push(record.amount);
                }
                What::Collective => {
                    self.out.collectives.push(record.rank, record.row);
                    self.out.collective_kind.push(record.amount as u32);
                }
                What::Compute | What::Nothing | What::Init | What::Finalize => {}
            }
        }
        Ok(())
    }

    /// The number of a label; that of each call is mostly the one it had last.
    fn label(&mut self, call: u8, tag: i32) -> u32 {
        let last = &mut self.last[call as usize];
        if let Some(number) = last.filter(|found| found.0 == tag) {
            return number.1;
        }
        let next = self.out.labels.len() as u32;
        let label = *self.labels.entry((call, tag as u32)).or_insert(next);
        if label == next {
            self.out.labels.push((call, tag));
        }
        *last = Some((tag, label));
        label
    }

    /// Adds a send or receive; nothing for one of MPI_PROC_NULL.
    fn post(
        &mut self,
        record: &Record,
        call: u8,
        is_send: bool,
    ) -> Result<Option<usize>, LineError> {
        if record.peer == NOBODY {
            self.out.nobody += 1;
            return Ok(None);
        }
        let anyone = !is_send && (record.peer < 0 || record.tag == ANY_TAG);
        let n_ranks = self.out.n_ranks;
        if !anyone && (record.peer < 0 || record.peer as u32 >= n_ranks) {
            return Err(LineError::Beyond(record.row, record.peer, n_ranks));
        }
        let size = match record.amount & TYPED {
            0 => record.amount * self.out.default_bytes,
            _ => record.amount & !TYPED,
        };
        let label = self.label(call, record.tag);
        let position = 2 * record.row as i64;
        let posts = &mut self.out.posts;
        posts.rank.push(i64::from(record.rank));
        posts.position.push(position);
        posts.step.push(i64::from(is_send));
        posts.is_send.push(is_send);
        posts.peer.push(if anyone { UNKNOWN } else { i64::from(record.peer) });
        posts.channel.push(i64::from(record.tag));
        posts.size.push(size);
        posts.label.push(i64::from(label));
        posts.wait_position.push(if blocking(call) { position + 1 } else { UNKNOWN });
        posts.peer_known.push(!anyone && (is_send || size > 0));
        Ok(Some(posts.rank.len() - 1))
    }
}

fn blocking(call: u8) -> bool {
    !POSTS[call as usize].starts_with('i')
}

fn whole(row: u64, what: &'static str, text: Option<&[u8]>) -> Result<i32, LineError> {
    let text = text.ok_or(LineError::Lacks(row, what))?;
    integer(text).ok_or_else(|| LineError::NotWhole(row, what, text.to_vec()))
}

fn count(
    row: u64,
    what: &'static str,
    text: &[u8],
    least: f64,
    most: f64,
) -> Result<u64, LineError> {
    let value = float(text).filter(|value| (least..=most).contains(value));
    let value = value.ok_or_else(|| LineError::NotCount(row, what, text.to_vec(), most))?;
    Ok(value.round_ties_even().max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::{LineError, Scale, read};

    const SCALE: Scale<'_> = Scale { type_bytes: &[8, 4], ps_per_flop: 1000, longest_ps: 1 << 60 };

    #[test]
    fn a_wait_takes_the_oldest_request_of_its_triple() {
        let text =
            b"0 init\n0 isend 1 7 10\n0 send 1 7 9\n0 isend 1 7 20\n0 wait 0 1 7\n0 waitall\n\
                     0 isend 1 7 5 1\n0 wait 0 1 7\n0 finalize\n1 init\n1 Recv 0 7 4 1\n1 finalize";
        let found = read(&[text], SCALE).expect("it is right").posts;
        assert_eq!(found.wait_position, [9, 5, -1, 15, 21]);
        assert_eq!(found.size, [10, 9, 20, 20, 16]);
    }

    #[test]
    fn faults_have_a_row() {
        let fault = |text: &[u8]| read(&[text], SCALE).err();
        assert_eq!(fault(b"0 init\n\n0 fly\n"), Some(LineError::Unknown(2, b"fly".to_vec())));
        let far = b"4000000000 init\n0 init\n1 init\n";
        assert_eq!(fault(far), Some(LineError::Missing(2, 4_000_000_000)));
        assert_eq!(fault(b"0 init\n0 recv 0 1\n0 finalize"), Some(LineError::Lacks(1, "size")));
        assert_eq!(fault(b"0 init\n"), Some(LineError::Unfinished(0, 0)));
    }
}
