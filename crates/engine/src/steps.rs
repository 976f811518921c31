//! Runs that leave out steps of their program, by decisions made while they run.
//!
//! Both ends of every message lie in the same step, so that a program without some of its steps is
//! still a program. When all ranks have begun a certain step, the caller is asked and may name
//! steps ahead of all ranks to leave out: each rank continues behind them. Simulated steps are
//! kept.

use std::ops::Range;

use tailback_program::Op;

use crate::program::CompiledProgram;

/// When to ask the caller, and about which steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// First step whose messages are reported.
    pub from: u32,
    /// The caller is asked when all ranks have begun this step; the steps before it are reported.
    pub at: u32,
}

/// The answer at a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Steps to leave out, none of which a rank has begun; empty for none.
    pub skip: Range<u32>,
    /// The next check, if there is one.
    pub next: Option<Check>,
}

/// The steps of a program.
#[derive(Debug, Clone)]
pub struct Steps {
    /// First operation of each step and the end of the last one, rank by rank.
    pub bounds: Vec<usize>,
    /// Number of steps.
    pub count: u32,
    /// The first check.
    pub first: Check,
    /// If the program is a single step that is repeated: the offset of the labels of each
    /// repetition.
    pub label_offset: Option<Vec<u32>>,
}

/// Progress of each rank through its steps.
#[derive(Debug, Clone)]
pub(crate) struct StepGates {
    bounds: Vec<usize>,
    count: u32,
    rank_step: Vec<u32>,
    check: Option<Check>,
    /// Ranks that have not begun the step of the check.
    behind: usize,
    /// Steps left out, in order.
    skips: Vec<Range<u32>>,
}

impl StepGates {
    pub fn new(steps: Steps) -> Self {
        let Steps { bounds, count, first, label_offset: _ } = steps;
        let ranks = bounds.len() / (count as usize + 1);
        let mut gates = Self {
            bounds,
            count,
            rank_step: vec![0; ranks],
            check: None,
            behind: 0,
            skips: Vec::new(),
        };
        gates.set_check(Some(first));
        gates
    }

    fn set_check(&mut self, check: Option<Check>) {
        self.check = check;
        let begun = |at: u32| self.rank_step.iter().filter(|&&step| step < at).count();
        self.behind = check.map_or(usize::MAX, |check| begun(check.at));
    }

    fn bound(&self, rank: usize, step: u32) -> usize {
        self.bounds[rank * (self.count as usize + 1) + step as usize]
    }

    /// First operation behind the step that a rank is in.
    pub fn end(&self, rank: usize) -> usize {
        self.bound(rank, (self.rank_step[rank] + 1).min(self.count))
    }

    /// A rank has ended its step: its next operation, `None` if it has finished.
    pub(crate) fn begin_next(&mut self, rank: usize) -> Option<usize> {
        let before = self.rank_step[rank];
        if before == self.count {
            return None;
        }
        let next = before + 1;
        let left_out = self.skips.last().filter(|skip| skip.start == next);
        let now = left_out.map_or(next, |skip| skip.end);
        self.rank_step[rank] = now;
        if let Some(check) = self.check
            && before < check.at
            && now >= check.at
        {
            self.behind -= 1;
        }
        (now < self.count || now > next).then(|| self.bound(rank, now))
    }

    /// The check whose step all ranks have begun.
    pub fn due(&self) -> Option<Check> {
        self.check.filter(|_| self.behind == 0)
    }

    /// The step that each rank is in.
    pub(crate) fn rank_steps(&self) -> &[u32] {
        &self.rank_step
    }

    /// Puts a decision into effect. Steps that a rank has begun already are not left out.
    pub fn apply(&mut self, decision: Decision) {
        let Decision { skip, next } = decision;
        let ahead = self.rank_step.iter().all(|&step| step < skip.start);
        if !skip.is_empty() && ahead {
            self.skips.push(skip.start..skip.end.min(self.count));
        }
        self.set_check(next);
    }

    /// The next check.
    pub fn check(&self) -> Option<Check> {
        self.check
    }

    /// Operations of a rank in a range of steps.
    pub fn operations<'p>(
        &self,
        program: &'p CompiledProgram,
        rank: usize,
        steps: Range<u32>,
    ) -> &'p [Op] {
        &program.ops[self.bound(rank, steps.start)..self.bound(rank, steps.end)]
    }

    /// Messages sent in a range of steps, in order of rank and operation.
    pub fn messages<'g>(
        &'g self,
        program: &'g CompiledProgram,
        steps: Range<u32>,
    ) -> impl Iterator<Item = u32> + 'g {
        let ranks = 0..self.rank_step.len();
        let of_rank = move |rank| self.operations(program, rank, steps.clone());
        ranks.flat_map(of_rank).filter_map(Op::message)
    }

    /// Whether each message of the program is left out; empty if none is.
    pub fn left_out(&self, program: &CompiledProgram) -> Vec<bool> {
        let mut out = Vec::new();
        for skip in &self.skips {
            out.resize(program.messages.len(), false);
            self.messages(program, skip.clone()).for_each(|message| out[message as usize] = true);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks of four steps of two operations.
    fn gates(at: u32) -> StepGates {
        let bounds = vec![0, 2, 4, 6, 8, 8, 10, 12, 14, 16];
        StepGates::new(Steps { bounds, count: 4, first: Check { from: 0, at }, label_offset: None })
    }

    #[test]
    fn a_check_is_due_when_all_ranks_have_begun_its_step() {
        let mut gates = gates(1);
        assert_eq!(gates.begin_next(0), Some(2));
        assert_eq!(gates.begin_next(0), Some(4));
        assert_eq!(gates.due(), None);
        assert_eq!(gates.begin_next(1), Some(10));
        assert_eq!(gates.due(), Some(Check { from: 0, at: 1 }));
        assert_eq!(gates.rank_steps(), [2, 1]);
        assert_eq!((gates.end(0), gates.end(1)), (6, 12));
    }

    #[test]
    fn ranks_continue_behind_the_steps_left_out() {
        let mut gates = gates(1);
        gates.begin_next(0);
        gates.begin_next(1);
        gates.apply(Decision { skip: 2..3, next: None });
        assert_eq!(gates.begin_next(0), Some(6));
        assert_eq!((gates.end(0), gates.begin_next(0)), (8, None));
        assert_eq!(gates.due(), None);
        let mut to_the_end = gates.clone();
        to_the_end.skips = std::iter::once(2..4).collect();
        assert_eq!(to_the_end.begin_next(1), Some(16));
        assert_eq!(to_the_end.begin_next(1), None);
    }

    #[test]
    fn steps_that_a_rank_has_begun_are_not_left_out() {
        let mut gates = gates(1);
        gates.begin_next(0);
        gates.begin_next(1);
        gates.apply(Decision { skip: 1..3, next: Some(Check { from: 0, at: 2 }) });
        assert_eq!(gates.begin_next(0), Some(4));
        assert_eq!(gates.due(), None);
    }
}
