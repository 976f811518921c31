//! Congested packets of links from marks on packets whose paths are known: scheme entropy-ecn.
//!
//! The estimator of `tailback.telemetry.marked_paths`, where it is derived: link d marks a share
//! `f_d` of its packets, and a packet of a path is marked with p = 1 − Π (1 − `f_d`). Rates have
//! maximum likelihood; bounds do without the independence of the hops of a packet.

/// Most steps of the expectation maximisation, and the change of a link in packets at which it ends.
const STEPS: usize = 400;
const SETTLED_PACKETS: f64 = 0.01;
/// Most links, connected by paths, whose information matrix is inverted as a whole.
const MAX_DENSE: usize = 200;
const SMALLEST: f64 = 1e-12;
/// Half width of a 95 % interval in standard deviations.
const Z95: f64 = 1.959_963_984_540_054;
/// Eigenvalues below this share of the largest belong to directions that no path determines.
const DETERMINED: f64 = 1e-9;
/// Most sweeps of the Jacobi method, which converges quadratically.
const SWEEPS: usize = 30;

/// Packets of one path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathCount {
    /// Links of the path.
    pub links: Vec<usize>,
    /// Its packets.
    pub packets: f64,
    /// Those of them with a mark.
    pub marked: f64,
}

/// What marks say about links, by link.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkRates {
    /// Share of its packets that each link marked.
    pub rate: Vec<f64>,
    /// Congested packets.
    pub congested: Vec<f64>,
    /// Their variance, of the wider of the two bounds.
    pub variance: Vec<f64>,
}

impl MarkRates {
    /// Infers which links marked the packets of `paths`; links are numbered below `links`.
    pub fn infer(paths: &[PathCount], links: usize) -> Self {
        let crossing = sum_by_link(paths, links, |path| path.packets);
        let rate = fit(paths, &crossing);
        let congested: Vec<f64> = rate.iter().zip(&crossing).map(|(f, n)| f * n).collect();
        let noise = noise(paths, &rate, &congested);
        let least = least_marked(paths, &rate);
        let most = sum_by_link(paths, links, |path| path.marked);
        let variance = (0..links)
            .map(|link| {
                let w = congested[link];
                let low = (least[link] - Z95 * noise[link].sqrt()).clamp(0.0, w);
                let high = most[link].max(w).max(1e-9);
                (w - low).powi(2).max(w * (high - w).powi(2) / high) / Z95.powi(2)
            })
            .collect();
        Self { rate, congested, variance }
    }

    /// Expected share of the marked packets of a path that a link of it marked.
    pub fn share(&self, path: &[usize], link: usize) -> f64 {
        let any = any_mark(path, &self.rate);
        if any > 0.0 { self.rate[link] / any } else { 0.0 }
    }
}

/// Probability of a mark on a path.
fn any_mark(path: &[usize], rate: &[f64]) -> f64 {
    -path.iter().map(|&link| (-rate[link]).ln_1p().max(-700.0)).sum::<f64>().exp_m1()
}

fn sum_by_link(paths: &[PathCount], links: usize, value: impl Fn(&PathCount) -> f64) -> Vec<f64> {
    let mut out = vec![0.0; links];
    for path in paths {
        path.links.iter().for_each(|&link| out[link] += value(path));
    }
    out
}

/// Smallest value of the paths of each link; 0 without paths.
fn least(paths: &[PathCount], links: usize, value: impl Fn(&PathCount) -> f64) -> Vec<f64> {
    let mut out = vec![f64::INFINITY; links];
    for path in paths {
        path.links.iter().for_each(|&link| out[link] = out[link].min(value(path)));
    }
    out.into_iter().map(|least| if least.is_finite() { least } else { 0.0 }).collect()
}

/// Rates of maximum likelihood, from the cleanest path of each link.
fn fit(paths: &[PathCount], crossing: &[f64]) -> Vec<f64> {
    let mut rate = least(paths, crossing.len(), |path| (path.marked + 0.5) / (path.packets + 1.0));
    for _ in 0..STEPS {
        let share = sum_by_link(paths, crossing.len(), |path| {
            path.marked / any_mark(&path.links, &rate).max(SMALLEST)
        });
        let mut change = 0.0f64;
        for (link, f) in rate.iter_mut().enumerate() {
            let new = if crossing[link] > 0.0 { *f * share[link] / crossing[link] } else { 0.0 };
            change = change.max((new - *f).abs() * crossing[link]);
            *f = new.clamp(0.0, 1.0);
        }
        if change < SETTLED_PACKETS {
            break;
        }
    }
    rate
}

/// Fewest packets that each link marks, however hops of a packet depend on one another.
fn least_marked(paths: &[PathCount], rate: &[f64]) -> Vec<f64> {
    let cleanest = least(paths, rate.len(), |path| any_mark(&path.links, rate));
    let most: Vec<f64> = cleanest.iter().zip(rate).map(|(a, b)| a.max(*b)).collect();
    let mut out = vec![0.0; rate.len()];
    for path in paths {
        let marked = any_mark(&path.links, rate);
        let all: f64 = path.links.iter().map(|&link| most[link]).sum();
        for &link in &path.links {
            out[link] += (marked - (all - most[link])).max(0.0) * path.packets;
        }
    }
    out
}

/// Variance of the congested packets of each link under the model, times the dispersion.
fn noise(paths: &[PathCount], rate: &[f64], congested: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; rate.len()];
    let is_active = |&link: &usize| congested[link] > SETTLED_PACKETS;
    let active: Vec<usize> = (0..rate.len()).filter(is_active).collect();
    let dispersion = dispersion(paths, rate, active.len());
    for path in paths {
        let p = any_mark(&path.links, rate).max(SMALLEST);
        for &link in path.links.iter().filter(|link| is_active(link)) {
            let share = rate[link] / p;
            out[link] += path.marked * share * (1.0 - share.min(1.0));
        }
    }
    for part in connected(paths, &active) {
        for (link, spread) in part.iter().zip(spread(paths, rate, &part)) {
            out[*link] = (out[*link] + spread) * dispersion;
        }
    }
    out
}

/// Chi squared of the marks of paths per degree of freedom, at least 1.
fn dispersion(paths: &[PathCount], rate: &[f64], parameters: usize) -> f64 {
    let (mut off, mut count) = (0.0, 0);
    for path in paths {
        let p = any_mark(&path.links, rate);
        let variance = path.packets * p * (1.0 - p);
        if p > SMALLEST && variance > SMALLEST {
            off += (path.marked - path.packets * p).powi(2) / variance;
            count += 1;
        }
    }
    let free = count - i64::try_from(parameters).unwrap_or(i64::MAX);
    if free > 0 { (off / free as f64).max(1.0) } else { 1.0 }
}

/// The links in groups that paths connect.
fn connected(paths: &[PathCount], links: &[usize]) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..links.len()).collect();
    let at = |link: usize| links.binary_search(&link).ok();
    let root = |group: &[usize], mut of: usize| {
        while group[of] != of {
            of = group[of];
        }
        of
    };
    for path in paths {
        let mut members = path.links.iter().filter_map(|&link| at(link));
        if let Some(first) = members.next() {
            for other in members {
                let (a, b) = (root(&group, first), root(&group, other));
                group[a.max(b)] = a.min(b);
            }
        }
    }
    let mut out = vec![Vec::new(); links.len()];
    for (number, &link) in links.iter().enumerate() {
        out[root(&group, number)].push(link);
    }
    out.retain(|part| !part.is_empty());
    out
}

/// Variance of the congested packets of some links by the error of their rates: (J Σ Jᵀ) of each.
fn spread(paths: &[PathCount], rate: &[f64], part: &[usize]) -> Vec<f64> {
    let n = part.len();
    let (mut information, mut jacobian) = (vec![0.0; n * n], vec![0.0; n * n]);
    for path in paths {
        let p = any_mark(&path.links, rate).max(SMALLEST);
        let q = (1.0 - p).max(SMALLEST);
        let members: Vec<(usize, f64, f64)> = path
            .links
            .iter()
            .filter_map(|&link| part.binary_search(&link).ok().map(|at| (at, rate[link])))
            .map(|(at, f)| (at, f, q / (1.0 - f).max(SMALLEST)))
            .collect();
        for &(row, f, slope) in &members {
            jacobian[row * n + row] += path.marked / p;
            for &(column, _, other) in &members {
                information[row * n + column] += path.packets / (p * q) * slope * other;
                jacobian[row * n + column] -= f * path.marked / p.powi(2) * other;
            }
        }
    }
    if n > MAX_DENSE {
        let scale = |row: usize, at: usize| {
            jacobian[row * n + at].powi(2) / information[at * n + at].max(SMALLEST)
        };
        return (0..n).map(|row| (0..n).map(|at| scale(row, at)).sum()).collect();
    }
    let (values, vectors) = eigen(information, n);
    let largest = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let along = |row: usize, k: usize| -> f64 {
        (0..n).map(|at| jacobian[row * n + at] * vectors[at * n + k]).sum()
    };
    (0..n)
        .map(|row| {
            (0..n)
                .filter(|&k| values[k] > DETERMINED * largest)
                .map(|k| along(row, k).powi(2) / values[k])
                .sum()
        })
        .collect()
}

/// Eigenvalues and eigenvectors (columns) of a symmetric n × n matrix, by the cyclic Jacobi method.
fn eigen(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|k| v[k * n + k] = 1.0);
    let size: f64 = a.iter().map(|x| x * x).sum();
    for _ in 0..SWEEPS {
        let beside: f64 = (0..n)
            .flat_map(|i| (0..i).map(move |j| (i, j)))
            .map(|(i, j)| a[i * n + j].powi(2))
            .sum();
        if beside <= f64::EPSILON.powi(2) * size {
            break;
        }
        for (i, j) in (0..n).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let off = a[i * n + j];
            if off == 0.0 {
                continue;
            }
            let theta = (a[j * n + j] - a[i * n + i]) / (2.0 * off);
            let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
            let c = 1.0 / t.hypot(1.0);
            let s = t * c;
            for k in 0..n {
                let (x, y) = (a[k * n + i], a[k * n + j]);
                (a[k * n + i], a[k * n + j]) = (c * x - s * y, s * x + c * y);
            }
            for k in 0..n {
                let (x, y) = (a[i * n + k], a[j * n + k]);
                (a[i * n + k], a[j * n + k]) = (c * x - s * y, s * x + c * y);
                let (x, y) = (v[k * n + i], v[k * n + j]);
                (v[k * n + i], v[k * n + j]) = (c * x - s * y, s * x + c * y);
            }
        }
    }
    ((0..n).map(|k| a[k * n + k]).collect(), v)
}
