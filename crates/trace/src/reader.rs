//! Reads the locations of an archive in parallel; each location opens the archive anew.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::definitions::{Definitions, RegionClass};
use crate::error::TraceError;
use crate::events::Collector;
use crate::ffi::Library;
use crate::lookup::ById;
use crate::posts::{LocationPosts, PostBuilder, PostContext, Unusual};
use crate::precheck::{self, Anchor, FileContent};
use crate::tables::{ClockOffset, LocationEvents};

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

/// A trace whose messages between two ranks became posts.
#[derive(Debug, Clone, Default)]
pub struct PostTrace {
    /// Name of the tracer, empty if it is not recorded.
    pub creator: String,
    /// Ranks, regions, communicators.
    pub definitions: Definitions,
    /// What each location contributes, in the order of `definitions.locations`.
    pub locations: Vec<LocationPosts>,
}

/// An archive with its definitions.
struct Opened<'a> {
    otf2: Library,
    anchor: &'a Path,
    layout: Anchor,
    creator: String,
    definitions: Definitions,
}

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
    let opened = open(library, anchor)?;
    let classes = ById::new(&opened.definitions.classes);
    let locations = read_locations(&opened, threads, progress, |location, _| {
        let (collector, records, clock_offsets) = read_location(&opened, &classes, location, None)?;
        Ok(LocationEvents { clock_offsets, ..collector.finish(records) })
    })?;
    Ok(Trace { creator: opened.creator, definitions: opened.definitions, locations })
}

/// Reads the definitions of an archive and none of its events: a trace without locations.
///
/// # Errors
/// As [`read`], for the anchor and the definitions.
pub fn read_definitions(library: &Path, anchor: &Path) -> Result<Trace, TraceError> {
    let opened = open(library, anchor)?;
    Ok(Trace { creator: opened.creator, definitions: opened.definitions, locations: Vec::new() })
}

/// Reads an archive like [`read`], but into posts, which take a fraction of the memory of columns.
///
/// Returns `None` if the archive needs columns; [`read`] then finds the reason. Reasons are a
/// damaged file, several threads of a rank that call MPI, messages without a recorded partner or
/// completion, matched probes, cancelled requests, one-sided operations, non-blocking collectives,
/// and messages between the groups of an inter-communicator.
pub fn read_posts(
    library: &Path,
    anchor: &Path,
    threads: usize,
    progress: Progress<'_>,
) -> Option<PostTrace> {
    let opened = open(library, anchor).ok()?;
    let definitions = &opened.definitions;
    let classes = ById::new(&definitions.classes);
    let by_id =
        definitions.communicators.iter().map(|(&id, communicator)| (id, communicator)).collect();
    let communicators = ById::new(&by_id);
    let ps_per_tick = 1e12 / definitions.ticks_per_second as f64;
    let locations = read_locations(&opened, threads, progress, |location, rank| {
        let context = PostContext { communicators: &communicators, ps_per_tick, rank };
        let (collector, records, clock_offsets) =
            read_location(&opened, &classes, location, Some(context))?;
        // The reason is not reported.
        let mut out =
            collector.finish_posts(records).map_err(|Unusual| unusual(&opened, location))?;
        out.events.clock_offsets = clock_offsets;
        Ok(out)
    })
    .ok()?;
    let mut active = vec![false; definitions.n_ranks as usize];
    for (location_posts, &(_, rank)) in locations.iter().zip(&definitions.locations) {
        let calls = location_posts.regions.values().any(|region| region.calls > 0);
        let records =
            !location_posts.posts.is_empty() || !location_posts.events.messages.kind.is_empty();
        if (calls || records || location_posts.proc_null > 0)
            && std::mem::replace(&mut active[rank as usize], true)
        {
            return None;
        }
    }
    Some(PostTrace { creator: opened.creator, definitions: opened.definitions, locations })
}

fn unusual(opened: &Opened<'_>, location: u64) -> TraceError {
    let file = opened.anchor.with_extension("").join(format!("{location}.evt"));
    TraceError::Events { file, location, event: 0, reason: "not of a common kind".to_owned() }
}

/// Loads the library, opens an archive and reads its definitions.
fn open<'a>(library: &Path, anchor: &'a Path) -> Result<Opened<'a>, TraceError> {
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
    Ok(Opened { otf2: library, anchor, layout, creator, definitions })
}

/// Results of `work` for each location and its rank, in order.
fn read_locations<T: Send>(
    opened: &Opened<'_>,
    threads: usize,
    progress: Progress<'_>,
    work: impl Fn(u64, u32) -> Result<T, TraceError> + Sync,
) -> Result<Vec<T>, TraceError> {
    let locations = &opened.definitions.locations;
    let (total, done) = (locations.len(), AtomicUsize::new(0));
    in_order(total, threads, |index| {
        let (location, rank) = locations[index];
        // A panic of the reader is reported as an error of the location that it was reading.
        let reading = AssertUnwindSafe(|| work(location, rank));
        let outcome = panic::catch_unwind(reading).unwrap_or_else(|_| {
            Err(TraceError::Events {
                file: opened.anchor.with_extension("").join(format!("{location}.evt")),
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

/// Reads the events of a location, to posts with `context`; returns the collector, the number of records
/// and the clock offsets.
fn read_location<'a>(
    opened: &'a Opened<'_>,
    classes: &'a ById<RegionClass>,
    location: u64,
    context: Option<PostContext<'a>>,
) -> Result<(Collector<'a>, u64, Vec<ClockOffset>), TraceError> {
    let (anchor, layout, definitions) = (opened.anchor, opened.layout, &opened.definitions);
    let file = anchor.with_extension("").join(format!("{location}.evt"));
    let fault = |event: u64, reason: String| TraceError::Events {
        file: file.clone(),
        location,
        event,
        reason,
    };
    let absent = definitions.without_events.contains(&location) && !file.exists();
    let size = match fs::metadata(&file) {
        Ok(about) => about.len(),
        Err(_) if absent => 0,
        Err(error) => return Err(fault(0, error.to_string())),
    };
    // An event takes at least one byte, so the size of the file limits their number.
    let mut collector = Collector::new(location, classes, &definitions.contexts, size);
    collector.posts = context.map(PostBuilder::new);
    collector.windows = Some(&definitions.windows);
    collector.has_processor = definitions.attributes.processor.is_some();
    if absent {
        return Ok((collector, 0, Vec::new()));
    }
    if !layout.compressed {
        precheck::count_records(&file, layout.event_chunk, FileContent::Events)
            .map_err(|damage| fault(damage.records, damage.reason))?;
    }
    // Local definitions are optional.
    let local = file.with_extension("def");
    let has_definitions = local.exists() && check_definitions(&local, layout)?;
    let archive = opened.otf2.open(anchor)?;
    let clock_offsets = archive.select(location, has_definitions)?;
    let outcome = archive.events(location, definitions.attributes, &mut collector);
    archive.close_events();
    if let Some(reason) = collector.fault.take() {
        return Err(fault(collector.seen(), reason));
    }
    if collector.unusual {
        return Err(unusual(opened, location));
    }
    let records = outcome.map_err(|error| match error {
        TraceError::Events { reason, event, .. } => fault(event.max(collector.seen()), reason),
        other => other,
    })?;
    Ok((collector, records, clock_offsets))
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
