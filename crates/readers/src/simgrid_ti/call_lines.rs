//! Parses lines into records of fixed size, and turns these into columns once every rank is complete.

use super::calls::{
    Action, COLLECTIVES, CollectiveKind, IGNORED, LEFT_OUT, LineError, OTHERS, POSTS, Record,
    ReplayCalls, TYPED, TiOptions, UNNAMED_COMPLETIONS,
};
use super::columns::{CallRows, RankOrder};
use crate::numbering::Map;
use crate::text::{float, integer, natural, word};

/// Largest count: the largest integer range that a double represents exactly.
const MAX_COUNT: f64 = (1u64 << 53) as f64;

/// The number of `sendrecv` among [`POSTS`].
const SENDRECV: u8 = 8;

pub(super) struct LineReader<'a> {
    options: TiOptions<'a>,
    calls: Map<&'static [u8], Call>,
    records: Vec<Record>,
    kinds: Map<(u8, bool, u32, &'a [u8]), u32>,
    largest: u64,
    typed: bool,
    /// The first line with an invalid argument, reported only if the trace is complete.
    fault: Option<LineError>,
    pub out: ReplayCalls,
}

#[derive(Clone, Copy)]
enum Call {
    Post(u8),
    Collective(u8, bool),
    Ignored,
    UnnamedCompletion,
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
    for name in IGNORED {
        add(name, Call::Ignored);
    }
    for name in UNNAMED_COMPLETIONS {
        add(name, Call::UnnamedCompletion);
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
    let find =
        |name: &[u8]| COLLECTIVES.iter().position(|collective| collective.as_bytes() == name);
    if let Some(number) = find(name) {
        return Some(Call::Collective(number as u8, true));
    }
    let number = find(name.strip_prefix(b"i")?)?;
    Some(Call::Collective(number as u8, false))
}

impl<'a> LineReader<'a> {
    pub fn new(options: TiOptions<'a>) -> Self {
        Self {
            options,
            calls: calls(),
            records: Vec::new(),
            kinds: Map::default(),
            largest: 0,
            typed: false,
            fault: None,
            out: ReplayCalls::default(),
        }
    }

    pub fn line(&mut self, row: u64, line: &'a [u8]) -> Result<(), LineError> {
        let mut words = line;
        let who = word(&mut words).unwrap_or_default();
        let who = who.strip_prefix(b"p").unwrap_or(who);
        let rank = natural(who).filter(|&rank| rank < 1 << 63).ok_or(LineError::NoRank(row))?;
        self.largest = self.largest.max(rank);
        // With ranks this large, another rank has no lines, which is the error reported.
        let rank = rank.min(u64::from(u32::MAX)) as u32;
        let name = word(&mut words).ok_or(LineError::NoCall(row))?;
        let mut buffer = [0u8; 24];
        let lower = match buffer.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                &*lower
            }
            None => return Err(LineError::UnknownCall(row, name.to_ascii_lowercase())),
        };
        let call = match self.calls.get(lower) {
            Some(&call) => call,
            None if lower.starts_with(b"win_") => Call::Ignored,
            None => collective(lower).ok_or_else(|| LineError::UnknownCall(row, lower.to_vec()))?,
        };
        if self.records.len() >= 1 << 29 {
            return Err(LineError::TooLarge);
        }
        if let Err(fault) = self.call(row, rank, call, words) {
            self.fault.get_or_insert(fault);
        }
        Ok(())
    }

    fn call(&mut self, row: u64, rank: u32, call: Call, words: &'a [u8]) -> Result<(), LineError> {
        let mut record = Record { row, amount: 0, rank, peer: 0, tag: 0, what: Action::Nothing };
        match call {
            Call::Post(SENDRECV) => return self.sendrecv(record, words),
            Call::Post(number) => return self.post(record, number, words),
            Call::Collective(operation, blocking) => {
                let rooted = matches!(operation, 8 | 10);
                let me = if rooted { rank } else { 0 };
                let next = self.kinds.len() as u32;
                let number = *self.kinds.entry((operation, blocking, me, words)).or_insert(next);
                if number == next {
                    let arguments = words.to_vec();
                    self.out.kinds.push(CollectiveKind { operation, blocking, me, arguments, row });
                }
                record.amount = u64::from(number);
                record.what = Action::Collective;
            }
            Call::Ignored => {}
            Call::UnnamedCompletion => self.out.unnamed_completions += 1,
            Call::LeftOut => self.out.left_out += 1,
            Call::Split => self.out.splits = true,
            Call::Init => {
                self.typed |= !words.is_empty();
                record.what = Action::Init;
            }
            Call::Finalize => record.what = Action::Finalize,
            Call::WaitAll => record.what = Action::WaitAll,
            Call::Wait => return self.wait(record, words),
            Call::Compute | Call::Sleep => {
                record.what = Action::Compute;
                record.amount = self.duration(row, matches!(call, Call::Compute), words)?;
            }
        }
        self.records.push(record);
        Ok(())
    }

    fn duration(&self, row: u64, flops: bool, mut words: &[u8]) -> Result<u64, LineError> {
        let text = word(&mut words).ok_or(LineError::MissingArgument(row, "amount"))?;
        let longest = self.options.longest_ps as f64;
        if flops {
            let most = MAX_COUNT.min(longest / self.options.ps_per_flop as f64);
            Ok(count_argument(row, "amount", text, 0.0, most)? * self.options.ps_per_flop)
        } else {
            let value =
                float(text).map(|value| value * 1e12).filter(|ps| (0.0..=longest).contains(ps));
            let wrong = || LineError::OutOfRange(row, "amount", text.to_vec(), longest * 1e-12);
            Ok(value.ok_or_else(wrong)?.round_ties_even() as u64)
        }
    }

    fn post(&mut self, mut record: Record, call: u8, mut words: &[u8]) -> Result<(), LineError> {
        let row = record.row;
        record.peer = integer_argument(row, "peer", word(&mut words))?;
        record.tag = integer_argument(row, "tag", word(&mut words))?;
        let size = word(&mut words).ok_or(LineError::MissingArgument(row, "size"))?;
        let is_send = !matches!(call, 3 | 7);
        self.set_bytes(&mut record, "size", size, words)?;
        record.what = Action::Post { call, is_send };
        self.records.push(record);
        Ok(())
    }

    /// The receive and the send of a `sendrecv`, both with tag 0.
    fn sendrecv(&mut self, record: Record, mut words: &[u8]) -> Result<(), LineError> {
        let row = record.row;
        let missing = |what| LineError::MissingArgument(row, what);
        let sent = word(&mut words).ok_or(missing("size"))?;
        let to = integer_argument(row, "peer", word(&mut words))?;
        let received = word(&mut words).ok_or(missing("size"))?;
        let source = integer_argument(row, "peer", word(&mut words))?;
        let sent_type = word(&mut words).unwrap_or_default();
        for (is_send, peer, size, kind) in
            [(false, source, received, words), (true, to, sent, sent_type)]
        {
            let mut half = Record { peer, ..record };
            self.set_bytes(&mut half, "size", size, kind)?;
            half.what = Action::Post { call: SENDRECV, is_send };
            self.records.push(half);
        }
        Ok(())
    }

    /// Sets the size in bytes, or the number of elements if the line names no type.
    fn set_bytes(
        &self,
        record: &mut Record,
        what: &'static str,
        size: &[u8],
        kind: &[u8],
    ) -> Result<(), LineError> {
        let elements = count_argument(record.row, what, size, -1.0, MAX_COUNT)?;
        if kind.is_empty() {
            record.amount = elements;
            return Ok(());
        }
        let number = natural(kind).filter(|_| kind.len() <= 4);
        let width = number.and_then(|number| self.options.type_bytes.get(number as usize));
        let width = width.ok_or_else(|| LineError::UnknownType(record.row, kind.to_vec()))?;
        record.amount = elements.saturating_mul(*width) | TYPED;
        Ok(())
    }

    fn wait(&mut self, mut record: Record, mut words: &[u8]) -> Result<(), LineError> {
        let row = record.row;
        let source = integer_argument(row, "source", word(&mut words))?;
        record.peer = integer_argument(row, "destination", word(&mut words))?;
        record.tag = integer_argument(row, "tag", (!words.is_empty()).then_some(words))?;
        record.amount = source as u32 as u64;
        record.what = Action::Wait;
        self.records.push(record);
        Ok(())
    }

    pub fn finish(mut self) -> Result<ReplayCalls, LineError> {
        let records = std::mem::take(&mut self.records);
        let order = RankOrder::of(&records, self.largest)?;
        self.out.n_ranks = order.first.len() as u32 - 1;
        let mut finished = Ok(());
        for rank in 0..self.out.n_ranks {
            let (mut begun, mut ended, mut last) = (false, false, 0);
            for record in order.of_rank(&records, rank) {
                let begins = record.what == Action::Init;
                if begins && std::mem::replace(&mut begun, true) {
                    return Err(LineError::SecondInit(record.row, rank));
                }
                ended |= record.what == Action::Finalize;
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
        self.out.default_bytes = if self.typed { 8 } else { 1 };
        let mut rows = CallRows::new(self.out);
        for rank in 0..rows.out.n_ranks {
            rows.rank(order.of_rank(&records, rank))?;
        }
        Ok(rows.out)
    }
}

fn integer_argument(row: u64, what: &'static str, text: Option<&[u8]>) -> Result<i32, LineError> {
    let text = text.ok_or(LineError::MissingArgument(row, what))?;
    integer(text).ok_or_else(|| LineError::NotInteger(row, what, text.to_vec()))
}

fn count_argument(
    row: u64,
    what: &'static str,
    text: &[u8],
    least: f64,
    most: f64,
) -> Result<u64, LineError> {
    let value = float(text).filter(|value| (least..=most).contains(value));
    let value = value.ok_or_else(|| LineError::OutOfRange(row, what, text.to_vec(), most))?;
    Ok(value.round_ties_even().max(0.0) as u64)
}
