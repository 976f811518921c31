//! Single application assignment (Birk and Zdornov 2009): a flow gets `r(f) = w_f / W_f`, where `W_f` is the
//! weight of the heaviest link on its path.
//!
//! With capacities, `W_l` is the time link l needs for the weights of its flows. Every link carries
//! at most `sum w_f / W_l = capacity`, so the rates are feasible; a flow of size `w_f` ends at `W_f`,
//! so all end by W, and no assignment ends before W because the heaviest link is busy until then.

use crate::FluidError;
use crate::links::{ActiveFlows, User};
use crate::paths::FlowPaths;

/// Link weights and the flows' maxima, updated as flows start and end.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    /// `W_l`: weight by capacity of each link.
    pub heaviness: Vec<f64>,
    seen_flow: Vec<u32>,
    seen_link: Vec<u32>,
    round: u32,
    links: Vec<u32>,
}

impl Assigned {
    /// Sets the rates after flows have entered and left; reports the flows that were examined, with
    /// their rates.
    pub fn settle(&mut self, links: &ActiveFlows, touched: &[u32], changed: &mut Vec<(u32, f64)>) {
        self.heaviness.resize(links.capacity.len(), 0.0);
        self.seen_link.resize(links.capacity.len(), 0);
        self.seen_flow.resize(links.weight.len(), 0);
        self.round += 1;
        self.links.clear();
        for &flow in touched {
            for (link, _) in links.path(flow) {
                if std::mem::replace(&mut self.seen_link[link as usize], self.round) != self.round {
                    self.links.push(link);
                }
            }
        }
        for &link in &self.links {
            let weight: f64 = links.users[link as usize]
                .iter()
                .map(|user| links.weight[user.flow as usize] * links.share(user.entry))
                .sum();
            self.heaviness[link as usize] = weight / links.capacity[link as usize];
        }
        for &link in &self.links {
            for &User { flow, .. } in &links.users[link as usize] {
                if std::mem::replace(&mut self.seen_flow[flow as usize], self.round) == self.round {
                    continue;
                }
                let heaviness = links.path(flow).map(|(link, _)| self.heaviness[link as usize]);
                let rate = links.weight[flow as usize] / heaviness.fold(0.0, f64::max);
                changed.push((flow, rate));
            }
        }
    }
}

/// The assignment's rates of flows that are all active, in Gb/s, and `W_l` of each link in the
/// unit of weight by Gb/s.
///
/// # Errors
/// As [`crate::max_min`].
pub fn assignment(
    capacity: &[f64],
    paths: &FlowPaths,
    weight: &[f64],
) -> Result<(Vec<f64>, Vec<f64>), FluidError> {
    let links = ActiveFlows::of_active(capacity, paths, weight)?;
    let mut state = Assigned::default();
    let all: Vec<u32> = (0..weight.len() as u32).collect();
    let mut rates = Vec::new();
    state.settle(&links, &all, &mut rates);
    rates.sort_unstable_by_key(|&(flow, _)| flow);
    state.heaviness.resize(capacity.len(), 0.0);
    Ok((rates.into_iter().map(|(_, rate)| rate).collect(), state.heaviness))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_link_decides() {
        // Weights 1, 2, 3; link 0 carries the first two, link 1 the last two.
        let paths = FlowPaths::single(&[&[0], &[0, 1], &[1]]);
        let (rate, heavy) = assignment(&[1.0, 1.0], &paths, &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(heavy, [3.0, 5.0]);
        assert_eq!(rate, [1.0 / 3.0, 2.0 / 5.0, 3.0 / 5.0]);
        // The heaviest link counts wherever it is on the path, and relative to its capacity: link 1
        // has half of the capacity that it needs.
        let paths = FlowPaths::single(&[&[0], &[0, 1, 2], &[1], &[2]]);
        let (rate, heavy) = assignment(&[1.0, 1.0, 0.5], &paths, &[1.0, 2.0, 3.0, 1.0]).unwrap();
        assert_eq!(heavy, [3.0, 5.0, 6.0]);
        assert_eq!(rate[1], 2.0 / 6.0);
        let (rate, _) = assignment(&[0.25, 1.0, 0.5], &paths, &[1.0, 2.0, 3.0, 1.0]).unwrap();
        assert_eq!(rate[1], 2.0 / 12.0);
    }
}
