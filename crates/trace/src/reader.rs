//! Reads the locations of an archive in parallel; each location opens the archive anew.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::definitions::Definitions;
use crate::error::TraceError;
use crate::events::{Collector, RegionClass};
use crate::ffi::Library;
use crate::lookup::ById;
use crate::precheck::{self, Anchor, FileContent};
use crate::tables::LocationEvents;

/// A trace in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Name of the tracer, empty if it is not recorded (as by EZTrace).
    pub creator: String,
    /// Ranks, regions, communicators.
    pub definitions: Definitions,
    /// Events, in the order of `definitions.locations`.
    pub locations: Vec<LocationEvents>,
}

/// Called with the number of locations that have been read, and the number of all, by any thread.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Reads the archive of `anchor` with the OTF2 library at `library` on up to `threads` threads.
///
/// The result does not depend on the number of threads.
///
/// # Errors
/// [`TraceError`] if the library cannot be loaded or a file is missing, truncated or damaged; of
/// several damaged locations, the error is about the first in rank order.
pub fn read(
    library: &Path,
    anchor: &Path,
    threads: usize,
    progress: Progress<'_>,
) -> Result<Trace, TraceError> {
    let library = Library::load(library)?;
    let layout = precheck::anchor(anchor)
        .map_err(|reason| TraceError::Anchor { file: anchor.to_path_buf(), reason })?;
    let global = anchor.with_extension("def");
    check_definitions(&global, layout)?;
    let archive = library.open(anchor)?;
    let announced = archive.n_locations();
    let definitions = Definitions::resolve(&global, archive.definitions()?)?;
    let creator = archive.creator();
    drop(archive);
    if (definitions.locations.len() as u64) > announced {
        return Err(TraceError::Anchor {
            file: anchor.to_path_buf(),
            reason: format!(
                "declares {announced} locations, but the definitions contain {}",
                definitions.locations.len()
            ),
        });
    }
    let locations = read_locations(&library, (anchor, layout), &definitions, threads, progress)?;
    Ok(Trace { creator, definitions, locations })
}

fn read_locations(
    library: &Library,
    anchor: (&Path, Anchor),
    definitions: &Definitions,
    threads: usize,
    progress: Progress<'_>,
) -> Result<Vec<LocationEvents>, TraceError> {
    let (total, done) = (definitions.locations.len(), AtomicUsize::new(0));
    let classes = ById::new(&definitions.classes);
    in_order(total, threads, |index| {
        let location = definitions.locations[index].0;
        // A panic of the reader is reported as an error of the location that it was reading.
        let reading =
            AssertUnwindSafe(|| read_location(library, anchor, (definitions, &classes), location));
        let outcome = panic::catch_unwind(reading).unwrap_or_else(|_| {
            Err(TraceError::Events {
                file: anchor.0.with_extension("").join(format!("{location}.evt")),
                location,
                event: 0,
                reason: "the reader failed; this is a bug in Tailback, please report it".into(),
            })
        });
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        outcome
    })
}

/// The results of `work` for the indices below `total`, computed on up to `threads` threads, in order;
/// or the error of the smallest index that failed.
fn in_order<T: Send, E: Send>(
    total: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let worker = || -> Vec<(usize, Result<T, E>)> {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                break;
            }
            let outcome = work(index);
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            done.push((index, outcome));
        }
        done
    };
    let mut outcomes: Vec<(usize, Result<T, E>)> = thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads.clamp(1, total.max(1))).map(|_| scope.spawn(worker)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload))
        };
        running.into_iter().flat_map(join).collect()
    });
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Checks that a file of definitions is not truncated; returns whether it contains any (for compressed
/// files: whether it may).
fn check_definitions(file: &Path, layout: Anchor) -> Result<bool, TraceError> {
    if layout.compressed {
        return Ok(true);
    }
    let records = precheck::count_records(file, layout.definition_chunk, FileContent::Definitions);
    records.map(|records| records > 0).map_err(|damage| TraceError::Definitions {
        file: file.to_path_buf(),
        place: format!("definition {}", damage.records),
        reason: damage.reason,
    })
}

fn read_location(
    library: &Library,
    (anchor, layout): (&Path, Anchor),
    (definitions, classes): (&Definitions, &ById<RegionClass>),
    location: u64,
) -> Result<LocationEvents, TraceError> {
    let file = anchor.with_extension("").join(format!("{location}.evt"));
    let fault = |event: u64, reason: String| TraceError::Events {
        file: file.clone(),
        location,
        event,
        reason,
    };
    if definitions.without_events.contains(&location) && !file.exists() {
        return Ok(LocationEvents { location, ..LocationEvents::default() });
    }
    let size = fs::metadata(&file).map_err(|error| fault(0, error.to_string()))?.len();
    if !layout.compressed {
        precheck::count_records(&file, layout.event_chunk, FileContent::Events)
            .map_err(|damage| fault(damage.records, damage.reason))?;
    }
    // Local definitions are optional.
    let local = file.with_extension("def");
    let has_definitions = local.exists() && check_definitions(&local, layout)?;
    let archive = library.open(anchor)?;
    let clock_offsets = archive.select(location, has_definitions)?;
    // An event takes at least one byte, so the size of the file limits their number.
    let mut collector = Collector::new(location, classes, &definitions.contexts, size);
    let outcome = archive.events(location, &mut collector);
    archive.close_events();
    if let Some(reason) = collector.fault.take() {
        return Err(fault(collector.seen(), reason));
    }
    let records = outcome.map_err(|error| match error {
        TraceError::Events { reason, event, .. } => fault(event.max(collector.seen()), reason),
        other => other,
    })?;
    Ok(LocationEvents { clock_offsets, ..collector.finish(records) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let all: Result<Vec<usize>, ()> = in_order(40, threads, |index| Ok(3 * index));
            assert_eq!(all.unwrap(), (0..40).map(|index| 3 * index).collect::<Vec<_>>());
            assert_eq!(in_order(0, threads, |_| Err::<(), ()>(())), Ok(vec![]));
        }
    }

    #[test]
    fn a_panic_of_a_worker_is_propagated() {
        let fails = |index| if index == 7 { panic!("on purpose") } else { Ok::<usize, ()>(index) };
        let read = panic::catch_unwind(|| in_order(40, 3, fails));
        assert!(read.is_err(), "{read:?}");
    }
}
