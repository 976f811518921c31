//! Simulation without rate control: switches with small buffers serve their inputs round-robin.
//!
//! The fluid model has neither arbitration nor back-pressure, so "no control" is modelled in
//! rounds. In a round every link moves at most one cell, to a buffer with free space. Switches have
//! virtual output queues and infinite speed-up; an output serves its inputs round-robin; a node serves
//! its own flows round-robin (Birk and Zdornov 2009: "outputs serve different inputs in Round-Robin"). With cells much
//! smaller than the flows, this approaches the fluid limit of that discipline.

use std::collections::VecDeque;

use crate::FluidError;
use crate::paths::FlowPaths;

/// Equal flows in cells.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// Cells of each flow.
    pub cells: u32,
    /// Cells the buffer at the far end of each link holds.
    pub buffer: u32,
    /// Inject each flow no faster than its assignment `1 / W_f`, one cell every `W_f` rounds.
    pub assigned: bool,
}

/// Cells of one input that wait for one output.
#[derive(Debug, Default)]
struct VirtualOutputQueue {
    /// Link whose buffer holds them; `u32::MAX` at the node that sends.
    input: u32,
    /// (flow, hop).
    cells: VecDeque<(u32, u32)>,
}

/// State of a simulation in rounds.
struct RoundSimulation<'a> {
    paths: &'a FlowPaths,
    rounds: Rounds,
    /// Queues of each output, and the index of the queue served next.
    queues: Vec<Vec<VirtualOutputQueue>>,
    turn: Vec<usize>,
    waiting: Vec<u32>,
    /// Queue of each path entry among the queues of its link.
    queue_of: Vec<u32>,
    held: Vec<u32>,
    /// Outputs with cells, and whether each link is among them.
    active: Vec<u32>,
    listed: Vec<bool>,
}

/// Rounds until the last cell of each flow has arrived; all start at once, links carry a cell a round.
///
/// # Errors
/// As [`FlowPaths::check`], paths with shares, or no cells or buffer.
pub fn simulate_rounds(
    n_links: usize,
    paths: &FlowPaths,
    rounds: Rounds,
) -> Result<Vec<u64>, FluidError> {
    let flows = paths.start.len().saturating_sub(1);
    paths.check(n_links, flows)?;
    for (name, value) in [("cells", rounds.cells), ("buffer", rounds.buffer)] {
        if value == 0 {
            let (place, valid) = ("the rounds".to_owned(), "1 or more");
            return Err(FluidError::Value { name, place, value: "0".into(), valid });
        }
    }
    if !paths.share.is_empty() {
        let (name, place) = ("share", "the flows".to_owned());
        let (value, valid) = ("given".to_owned(), "single paths only");
        return Err(FluidError::Value { name, place, value, valid });
    }
    Ok(RoundSimulation::new(n_links, paths, rounds).run(flows))
}

impl<'a> RoundSimulation<'a> {
    fn new(n_links: usize, paths: &'a FlowPaths, rounds: Rounds) -> Self {
        let mut sim = Self {
            paths,
            rounds,
            queues: (0..n_links).map(|_| Vec::new()).collect(),
            turn: vec![0; n_links],
            waiting: vec![0; n_links],
            queue_of: vec![0; paths.link.len()],
            held: vec![0; n_links],
            active: Vec::new(),
            listed: vec![false; n_links],
        };
        for flow in 0..paths.start.len() - 1 {
            let mut input = u32::MAX;
            for at in paths.start[flow] as usize..paths.start[flow + 1] as usize {
                let queues = &mut sim.queues[paths.link[at] as usize];
                // A node keeps its flows apart; a switch keeps its inputs apart.
                let queue_index = match input {
                    u32::MAX => None,
                    _ => queues.iter().position(|queue| queue.input == input),
                };
                sim.queue_of[at] = queue_index.unwrap_or(queues.len()) as u32;
                if queue_index.is_none() {
                    queues.push(VirtualOutputQueue { input, ..VirtualOutputQueue::default() });
                }
                input = paths.link[at];
            }
        }
        sim
    }

    fn run(mut self, flows: usize) -> Vec<u64> {
        let mut done = vec![0u64; flows];
        let mut left = vec![self.rounds.cells; flows];
        let mut unsent = vec![self.rounds.cells; flows];
        let heaviest = self.heaviest(flows);
        let mut sources: Vec<u32> = (0..flows as u32).collect();
        let mut moves: Vec<(u32, u32, u32)> = Vec::new();
        let mut round = 0u64;
        let mut missing = flows;
        while missing > 0 {
            self.inject(&mut sources, &mut unsent, &heaviest, round);
            moves.clear();
            let outputs = std::mem::take(&mut self.active);
            for &link in &outputs {
                if self.held[link as usize] < self.rounds.buffer {
                    let (queue, flow, hop) = self.serve(link as usize);
                    moves.push((queue, flow, hop));
                }
            }
            self.active = outputs;
            round += 1;
            // Space freed in a round can be used in the next.
            for &(input, flow, hop) in &moves {
                if input != u32::MAX {
                    self.held[input as usize] -= 1;
                }
                let at = self.paths.start[flow as usize] as usize + hop as usize;
                if at + 1 == self.paths.start[flow as usize + 1] as usize {
                    left[flow as usize] -= 1;
                    if left[flow as usize] == 0 {
                        done[flow as usize] = round;
                        missing -= 1;
                    }
                } else {
                    self.held[self.paths.link[at] as usize] += 1;
                    self.put(at + 1, (flow, hop + 1));
                }
            }
            let (waiting, listed) = (&self.waiting, &mut self.listed);
            self.active.retain(|&link| {
                listed[link as usize] = waiting[link as usize] > 0;
                listed[link as usize]
            });
        }
        done
    }

    /// Flows on the most used link of each flow's path.
    fn heaviest(&self, flows: usize) -> Vec<u64> {
        let mut weight = vec![0u64; self.held.len()];
        self.paths.link.iter().for_each(|&link| weight[link as usize] += 1);
        (0..flows)
            .map(|flow| {
                self.paths.of(flow).map(|(link, _)| weight[link as usize]).max().unwrap_or(1)
            })
            .collect()
    }

    /// Injects cells: all of a flow at once, or one every `W_f` rounds.
    fn inject(&mut self, sources: &mut Vec<u32>, unsent: &mut [u32], every: &[u64], round: u64) {
        let assigned = self.rounds.assigned;
        sources.retain(|&flow| {
            let f = flow as usize;
            // Flows with the same interval are staggered by their numbers.
            let due = !assigned || round % every[f] == u64::from(flow) % every[f];
            if due {
                let cells = if assigned { 1 } else { unsent[f] };
                for _ in 0..cells {
                    self.put(self.paths.start[f] as usize, (flow, 0));
                }
                unsent[f] -= cells;
            }
            unsent[f] > 0
        });
    }

    fn put(&mut self, at: usize, cell: (u32, u32)) {
        let link = self.paths.link[at] as usize;
        self.queues[link][self.queue_of[at] as usize].cells.push_back(cell);
        self.waiting[link] += 1;
        if !std::mem::replace(&mut self.listed[link], true) {
            self.active.push(link as u32);
        }
    }

    /// Takes a cell for `link` from the next input with one waiting.
    fn serve(&mut self, link: usize) -> (u32, u32, u32) {
        let n = self.queues[link].len();
        loop {
            let at = self.turn[link];
            self.turn[link] = if at + 1 == n { 0 } else { at + 1 };
            if let Some((flow, hop)) = self.queues[link][at].cells.pop_front() {
                self.waiting[link] -= 1;
                return (self.queues[link][at].input, flow, hop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links: 0 and 1 feed 2 through a switch.
    #[test]
    fn two_inputs_take_turns() {
        let paths = FlowPaths::single(&[&[0, 2], &[1, 2]]);
        let rounds = Rounds { cells: 100, buffer: 4, assigned: false };
        let done = simulate_rounds(3, &paths, rounds).unwrap();
        assert_eq!(done.iter().max(), Some(&201));
        assert!(done[0].abs_diff(done[1]) <= 1);
    }

    #[test]
    fn a_full_buffer_blocks_upstream() {
        // Flow 0 (0,1,2) and flow 1 (0,1,3) share links 0 and 1; link 2 is also used by flows 2 to 4,
        // each by its own input: flow 0 gets a quarter of it and flow 1, behind it, no more.
        let paths = FlowPaths::single(&[&[0, 1, 2], &[5, 1, 3], &[6, 2], &[7, 2], &[8, 2]]);
        let rounds = Rounds { cells: 1000, buffer: 2, assigned: false };
        let done = simulate_rounds(9, &paths, rounds).unwrap();
        assert!(done[1] > 3500, "{done:?}");
        let paced = Rounds { assigned: true, ..rounds };
        let done = simulate_rounds(9, &paths, paced).unwrap();
        assert!((1990..2100).contains(&done[1]), "{done:?}");
    }
}
