//! The resources that messages within a host share: its memory, or the ports of its ranks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Memory through which ranks of one host exchange messages.
///
/// A message takes at least the time of one copy at the rate of its host. All copies that a host
/// makes at the same time share the bandwidth of its memory equally. All copies of a host therefore
/// have the same rate. It suffices to track the progress of an imaginary copy that began when the
/// host was last idle: a real copy ends when this progress has grown by its size (virtual time:
/// Parekh and Gallager 1993).
#[derive(Debug)]
pub struct SharedMemory {
    /// Rate that all copies of a host have together, Gb/s.
    gbps: f64,
    hosts: Vec<HostMemory>,
}

#[derive(Debug, Default, Clone)]
struct HostMemory {
    /// Rate of a copy that has the memory to itself, Gb/s.
    copy_gbps: f64,
    /// When `progress` was computed.
    updated_ps: u64,
    /// Progress of a copy since the host was idle, in bits times 1000: picoseconds at 1 Gb/s. It is
    /// never negative, so its bit pattern has the same order.
    progress: f64,
    /// When the first copy ends if no other begins before that.
    due_ps: u64,
    /// Progress at which each copy ends, as a bit pattern, and its message; first end first.
    copies: BinaryHeap<Reverse<(u64, u32)>>,
}

/// When to call [`SharedMemory::finish`], and the message whose copy ends first.
pub type FirstEnd = (u64, u32);

impl SharedMemory {
    /// Memory of `hosts` hosts, each of which copies `gbps` in total, but at least at the rate of one
    /// copy.
    pub fn new(hosts: usize, gbps: f64) -> Self {
        Self { gbps, hosts: vec![HostMemory::default(); hosts] }
    }

    /// A copy of `bytes` begins in `host`, whose copies have a rate of `copy_gbps` each if they do not
    /// share. The result replaces earlier ones of this host.
    pub fn start(
        &mut self,
        host: u32,
        message: u32,
        bytes: u64,
        copy_gbps: f64,
        now: u64,
    ) -> FirstEnd {
        let memory = &mut self.hosts[host as usize];
        if memory.copies.is_empty() {
            // Rounding errors do not accumulate over a run.
            (memory.progress, memory.copy_gbps) = (0.0, copy_gbps);
        } else {
            memory.advance(self.gbps, now);
        }
        memory.updated_ps = now;
        let end = memory.progress + bytes as f64 * 8000.0;
        memory.copies.push(Reverse((end.to_bits(), message)));
        memory.schedule(self.gbps).expect("a copy has just begun")
    }

    /// Calls `ended` with the messages whose copies in `host` end at `now`, and returns when the next one
    /// ends. Nothing ends at a time that a later start has made obsolete.
    pub fn finish(&mut self, host: u32, now: u64, mut ended: impl FnMut(u32)) -> Option<FirstEnd> {
        let memory = &mut self.hosts[host as usize];
        if memory.due_ps != now {
            return None;
        }
        let &Reverse((first, _)) = memory.copies.peek()?;
        memory.advance(self.gbps, now);
        // The first copy ends now by construction, whatever rounding says.
        memory.progress = memory.progress.max(f64::from_bits(first));
        while let Some(&Reverse((end, message))) = memory.copies.peek() {
            if f64::from_bits(end) > memory.progress {
                break;
            }
            memory.copies.pop();
            ended(message);
        }
        memory.schedule(self.gbps)
    }
}

impl HostMemory {
    /// Rate of each copy.
    fn rate(&self, total_gbps: f64) -> f64 {
        let total = total_gbps.max(self.copy_gbps);
        self.copy_gbps.min(total / self.copies.len() as f64)
    }

    fn advance(&mut self, total_gbps: f64, now: u64) {
        self.progress += (now - self.updated_ps) as f64 * self.rate(total_gbps);
        self.updated_ps = now;
    }

    fn schedule(&mut self, total_gbps: f64) -> Option<FirstEnd> {
        let &Reverse((end, message)) = self.copies.peek()?;
        let missing = (f64::from_bits(end) - self.progress) / self.rate(total_gbps);
        self.due_ps = self.updated_ps.saturating_add(missing.max(0.0).ceil() as u64);
        Some((self.due_ps, message))
    }
}

/// When the port of each rank to a non-blocking switch inside its host (NVSwitch) is free: a port sends
/// one message after another, and receives one after another, in the order in which they are ready.
#[derive(Debug)]
pub struct LocalPorts {
    /// When each rank can send, and when it can receive.
    free: Vec<[u64; 2]>,
}

impl LocalPorts {
    /// Ports of `ranks` ranks.
    pub fn new(ranks: usize) -> Self {
        Self { free: vec![[0; 2]; ranks] }
    }

    /// When a message begins that is ready at `now` and takes `wire_ps`. Both ports are taken until it
    /// ends; if `contention` is false, only the port of the sender is.
    pub fn begin(
        &mut self,
        from: usize,
        to: usize,
        now: u64,
        wire_ps: u64,
        contention: bool,
    ) -> u64 {
        let receiver = if contention { self.free[to][1] } else { 0 };
        let begin = now.max(self.free[from][0]).max(receiver);
        let end = begin.saturating_add(wire_ps);
        self.free[from][0] = end;
        self.free[to][1] = end;
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::{FirstEnd, LocalPorts, SharedMemory};

    #[test]
    fn a_port_sends_and_receives_one_message_after_another() {
        let mut ports = LocalPorts::new(4);
        assert_eq!(ports.begin(0, 1, 10, 100, true), 10);
        assert_eq!(ports.begin(0, 2, 20, 100, true), 110, "the port of rank 0 sends");
        assert_eq!(ports.begin(3, 1, 30, 100, true), 110, "the port of rank 1 receives");
        assert_eq!(ports.begin(1, 0, 30, 100, true), 30, "a port sends while it receives");
        assert_eq!(ports.begin(2, 1, 40, 100, false), 40, "receivers are not shared");
    }

    /// When each copy ends: `copies` are the time and size of each, in order of time.
    fn ends(memory: &mut SharedMemory, copy_gbps: f64, copies: &[(u64, u64)]) -> Vec<u64> {
        let mut ends = vec![0; copies.len()];
        let mut next: Option<FirstEnd> = None;
        let mut started = 0;
        loop {
            let start = copies.get(started).map(|&(time, _)| time);
            match (start, next) {
                (Some(now), due) if due.is_none_or(|(time, _)| now < time) => {
                    let bytes = copies[started].1;
                    next = Some(memory.start(0, started as u32, bytes, copy_gbps, now));
                    started += 1;
                }
                (_, Some((now, _))) => {
                    let mut ended = 0;
                    next = memory.finish(0, now, |copy| {
                        ends[copy as usize] = now;
                        ended += 1;
                    });
                    assert!(ended > 0, "a copy ends when it is due");
                }
                _ => return ends,
            }
        }
    }

    #[test]
    fn concurrent_copies_share_the_rate() {
        // 1000 bytes at 8 Gb/s take a microsecond.
        for (copies, microseconds) in [(1, 1), (2, 1), (4, 1), (5, 2), (8, 2), (16, 4)] {
            let mut memory = SharedMemory::new(1, 32.0);
            let expected = if copies == 5 { 1_250_000 } else { microseconds * 1_000_000 };
            let ends = ends(&mut memory, 8.0, &vec![(70, 1000); copies]);
            assert_eq!(ends, vec![70 + expected; copies], "{copies} copies");
        }
    }

    #[test]
    fn a_copy_is_slower_only_while_others_run() {
        let mut memory = SharedMemory::new(1, 8.0);
        // Half of the first is done when the second begins; then both have half of the rate.
        let both = ends(&mut memory, 8.0, &[(0, 1000), (500_000, 1000)]);
        assert_eq!(both, [1_500_000, 2_000_000]);
        // The host was idle: nothing remains of the earlier copies.
        assert_eq!(ends(&mut memory, 8.0, &[(3_000_000, 1000)]), [4_000_000]);
    }

    #[test]
    fn a_short_copy_does_not_wait_for_a_long_one() {
        let mut memory = SharedMemory::new(1, 8.0);
        let both = ends(&mut memory, 8.0, &[(0, 1_000_000), (0, 1000)]);
        assert_eq!(both, [1_001_000_000, 2_000_000]);
    }

    #[test]
    fn a_copy_is_limited_by_the_memory() {
        let mut memory = SharedMemory::new(1, 8.0);
        assert_eq!(ends(&mut memory, 16.0, &[(0, 1000), (0, 1000)]), [1_000_000; 2]);
    }
}
