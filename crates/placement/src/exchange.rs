//! One Kernighan–Lin pass between two parts: which vertices to swap.

/// The vertices of two parts that may be swapped.
pub(crate) struct Pair<'a> {
    /// Reduction of the cut if each vertex of the first part alone moved to the second.
    pub gain_a: Vec<f64>,
    /// The same for the second part.
    pub gain_b: Vec<f64>,
    /// Weights among all these vertices, row by row, those of the first part first.
    pub between: &'a [f64],
}

/// The swaps, as positions in the two parts, that reduce the cut most; empty if none reduces it.
///
/// Floating-point sums have a fixed order, so equal input gives equal partitions on every machine.
pub(crate) fn best_swaps(
    pair: Pair<'_>,
    depth: usize,
    may_swap: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let Pair { mut gain_a, mut gain_b, between } = pair;
    let (n, m) = (gain_a.len(), gain_b.len());
    let width = n + m;
    // Gain that a swap loses to an edge between its two vertices; infinite if it is not allowed.
    let mut penalty = Vec::with_capacity(n * m);
    for i in 0..n {
        let row = &between[i * width + n..(i + 1) * width];
        let penalty_of =
            |(j, w): (usize, &f64)| if may_swap(i, j) { 2.0 * w } else { f64::INFINITY };
        penalty.extend(row.iter().enumerate().map(penalty_of));
    }
    let scale = sum_of_magnitudes(&gain_a) + sum_of_magnitudes(&gain_b) + 1.0;
    let (mut total, mut best, mut best_length) = (0.0, 0.0, 0);
    let mut chosen = Vec::new();
    for _ in 0..depth.min(n).min(m) {
        let Some((gain, i, j)) = largest(&gain_a, &gain_b, &penalty) else { break };
        total += gain;
        chosen.push((i, j));
        // 1e-9 of the weights involved: rounding must not count as progress, or the search never ends.
        if total > best + 1e-9 * scale {
            (best, best_length) = (total, chosen.len());
        } else if best_length == 0 && depth == 1 {
            break;
        }
        penalty[i * m..(i + 1) * m].fill(f64::INFINITY);
        (0..n).for_each(|row| penalty[row * m + j] = f64::INFINITY);
        for (k, gain) in gain_a.iter_mut().enumerate() {
            *gain += 2.0 * (between[k * width + i] - between[k * width + n + j]);
        }
        for (k, gain) in gain_b.iter_mut().enumerate() {
            *gain += 2.0 * (between[(n + k) * width + n + j] - between[(n + k) * width + i]);
        }
    }
    chosen.truncate(best_length);
    chosen
}

/// The swap that gains most, the first of equals.
fn largest(gain_a: &[f64], gain_b: &[f64], penalty: &[f64]) -> Option<(f64, usize, usize)> {
    let (mut best, mut place) = (f64::NEG_INFINITY, None);
    for (i, (a, row)) in gain_a.iter().zip(penalty.chunks_exact(gain_b.len())).enumerate() {
        for (j, (b, penalty)) in gain_b.iter().zip(row).enumerate() {
            let gain = (a + b) - penalty;
            if gain > best {
                (best, place) = (gain, Some((i, j)));
            }
        }
    }
    place.map(|(i, j)| (best, i, j))
}

/// The sum in eight lanes, added in pairs, then the rest: NumPy's order for up to 128 numbers.
fn sum_of_magnitudes(values: &[f64]) -> f64 {
    if values.len() < 8 {
        return values.iter().fold(0.0, |sum, value| sum + value.abs());
    }
    let mut chunks = values.chunks_exact(8);
    let mut lanes = [0.0; 8];
    for chunk in chunks.by_ref() {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value.abs());
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
    chunks.remainder().iter().fold(sum, |sum, value| sum + value.abs())
}
