//! Division of windows among threads.

/// Divides `windows` into consecutive shares of about equal `weight`, one per thread, and returns
/// the results of `work` in order. `work` receives the index of the first window of its share.
pub fn in_shares<W: Send, T: Send>(
    mut windows: Vec<W>,
    threads: usize,
    weight: impl Fn(&W) -> usize,
    work: impl Fn(usize, Vec<W>) -> T + Sync,
) -> Vec<T> {
    let weights: Vec<usize> = windows.iter().map(weight).collect();
    let total: usize = weights.iter().sum();
    let mut shares = Vec::new();
    let (mut before, mut first) = (0, 0);
    for (window, weight) in weights.into_iter().enumerate() {
        before += weight;
        let threads_left = threads - shares.len();
        if threads_left > 1 && before * threads >= total * (shares.len() + 1) {
            let later = windows.split_off(window + 1 - first);
            shares.push((first, std::mem::replace(&mut windows, later)));
            first = window + 1;
        }
    }
    let work = &work;
    std::thread::scope(|scope| {
        let others: Vec<_> = shares
            .into_iter()
            .map(|(first, share)| scope.spawn(move || work(first, share)))
            .collect();
        let last = work(first, windows);
        let joined = others.into_iter().map(|other| match other.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.chain([last]).collect()
    })
}

/// Runs two functions, in parallel if there are several threads.
pub fn side_by_side<A: Send, B>(
    threads: usize,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (A, B) {
    if threads < 2 {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        match first.join() {
            Ok(first) => (first, second),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_about_equal_and_in_order() {
        for threads in 1..6 {
            for n in [0, 1, 3, 100usize] {
                let windows: Vec<usize> = (0..n).collect();
                let made = in_shares(
                    windows,
                    threads,
                    |_| 7,
                    |first, share| {
                        assert!(share.iter().copied().eq(first..first + share.len()));
                        share
                    },
                );
                assert!(made.len() <= threads);
                assert!(made.iter().all(|share| share.len() <= n.div_ceil(threads)));
                assert!(made.into_iter().flatten().eq(0..n));
            }
        }
    }
}
