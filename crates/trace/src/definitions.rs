//! Resolves the global definitions of a trace: the rank of each location, the members of each
//! communicator.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use crate::error::TraceError;
use crate::tables::NONE;

const PARADIGM_MPI: u8 = 4;
const ROLE_ARTIFICIAL: u8 = 31;
const GROUP_COMM_LOCATIONS: u8 = 4;
const GROUP_COMM_GROUP: u8 = 5;
const GROUP_COMM_SELF: u8 = 6;
const LOCATION_CPU_THREAD: u8 = 1;

/// Name of the attribute in which `tailback record` keeps the bytes to each partner of a collective.
const SIZES_ATTRIBUTE: &str = "tailback::bytes_to_each_rank";
/// Name of the attribute in which it keeps the processor time between two calls, ns.
const PROCESSOR_ATTRIBUTE: &str = "tailback::processor_time";

/// A global definition.
///
/// Ids are those of the trace; names are ids of strings, `u32::MAX` if undefined.
#[derive(Debug)]
pub(crate) enum Definition {
    Clock { ticks_per_second: u64, start: u64, length: u64, realtime: u64 },
    String { id: u32, text: String },
    SystemTreeNode { id: u32, name: u32, class: u32, parent: u32 },
    LocationGroup { id: u32, parent: u32 },
    Location { id: u64, kind: u8, group: u32, events: u64 },
    Region { id: u32, name: u32, role: u8, paradigm: u8, file: u32, line: u32 },
    SourceLocation { id: u32, file: u32, line: u32 },
    CallingContext { id: u32, region: u32, site: u32, parent: u32 },
    Group { id: u32, kind: u8, paradigm: u8, members: Vec<u64> },
    Comm { id: u32, name: u32, group: u32 },
    InterComm { id: u32, name: u32, group_a: u32, group_b: u32 },
    Attribute { id: u32, name: u32 },
    RmaWindow { id: u32, comm: u32 },
    CartDimension { id: u32, size: u32 },
    CartTopology { comm: u32, dimensions: Vec<u32> },
}

/// How the reader treats a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionClass {
    /// A call of the MPI library.
    Mpi,
    /// A part of the application that becomes a phase.
    Phase,
    /// A region around the whole program, or one that the tracer adds: ignored.
    Outer,
}

/// A calling context of a tracer that unwinds the stack: a region and the place where it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    /// Region.
    pub region: u32,
    /// Source code location of the call, [`NONE`] if unknown.
    pub site: u32,
    /// Calling context of the caller, [`NONE`] at the top.
    pub parent: u32,
}

/// A communicator and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    /// Id in the trace.
    pub id: u32,
    /// Name; `communicator ID` if the trace has none.
    pub name: String,
    /// World rank of each member; empty for MPI_COMM_SELF, whose only member is the calling rank.
    pub members: Vec<u32>,
    /// World ranks of the remote group of an inter-communicator.
    pub remote: Option<Vec<u32>>,
    /// Whether it is MPI_COMM_SELF, of which each process has its own.
    pub is_self: bool,
}

/// A Cartesian topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cartesian {
    /// Communicator it is defined on.
    pub comm: u32,
    /// Extents in MPI's order: the last dimension varies fastest.
    pub extents: Vec<u32>,
}

/// A part of the machine, such as a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemNode {
    /// Name, empty if the trace has none.
    pub name: String,
    /// Its class, such as `node` or `machine`, empty if the trace does not record it.
    pub class: String,
}

/// The definitions of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions {
    /// Clock ticks per second.
    pub ticks_per_second: u64,
    /// First tick of the trace.
    pub start: u64,
    /// Length in ticks.
    pub length: u64,
    /// Time of `start` in nanoseconds since 1970 UTC, if the tracer recorded it.
    pub realtime_ns: Option<u64>,
    /// Number of ranks.
    pub n_ranks: u32,
    /// Parts of the machine that contain the process of each rank, the innermost first.
    pub system: Vec<Vec<SystemNode>>,
    /// Locations that belong to a rank, with the rank, sorted by rank, then location.
    pub locations: Vec<(u64, u32)>,
    /// Name of each region by id.
    pub regions: BTreeMap<u32, String>,
    /// Source file and line where each region begins, if the tracer recorded them.
    pub region_lines: BTreeMap<u32, (String, u32)>,
    /// Source file and line of each call site by id.
    pub sites: BTreeMap<u32, (String, u32)>,
    /// Communicators by id.
    pub communicators: BTreeMap<u32, Communicator>,
    /// Cartesian topologies in the order of their definition.
    pub cartesian: Vec<Cartesian>,
    /// Attributes of events that the trace has.
    pub attributes: Attributes,
    /// All strings by id, if the trace has the attribute of sizes.
    pub strings: HashMap<u32, String>,
    /// Locations declared to have no events: they may have no file.
    pub(crate) without_events: HashSet<u64>,
    pub(crate) classes: HashMap<u32, RegionClass>,
    pub(crate) contexts: HashMap<u32, Context>,
    /// Communicator of each window of one-sided communication.
    pub(crate) windows: HashMap<u32, u32>,
}

/// Ids of the attributes of events that are read, if the trace has them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Of collectives: a string with the bytes to each partner ([`SIZES_ATTRIBUTE`]).
    pub sizes: Option<u32>,
    /// Of enter events: the processor time since the previous call ([`PROCESSOR_ATTRIBUTE`]).
    pub processor: Option<u32>,
}

struct Group {
    kind: u8,
    members: Vec<u64>,
}

/// The definitions before ids are resolved.
#[derive(Default)]
struct Raw {
    clock: Option<(u64, u64, u64, u64)>,
    strings: HashMap<u32, String>,
    location_groups: Vec<u32>,
    system: HashMap<u32, (u32, u32, u32)>,
    parent_of_group: HashMap<u32, u32>,
    without_events: HashSet<u64>,
    locations: BTreeMap<u64, u32>,
    regions: Vec<(u32, u32, u8, u8)>,
    region_lines: Vec<(u32, u32, u32)>,
    sites: Vec<(u32, u32, u32)>,
    contexts: HashMap<u32, Context>,
    windows: HashMap<u32, u32>,
    attributes: Vec<(u32, u32)>,
    /// Locations of MPI_COMM_WORLD by rank. Kept apart from `groups`, because EZTrace defines group 0
    /// twice: as the list of locations and as the group of MPI_COMM_WORLD.
    world: Vec<u64>,
    groups: HashMap<u32, Group>,
    comms: Vec<(u32, u32, u32, Option<u32>)>,
    dimensions: HashMap<u32, u32>,
    topologies: Vec<(u32, Vec<u32>)>,
}

impl Raw {
    fn collect(definitions: Vec<Definition>) -> Self {
        let mut raw = Self::default();
        for definition in definitions {
            match definition {
                Definition::Clock { ticks_per_second, start, length, realtime } => {
                    raw.clock = Some((ticks_per_second, start, length, realtime));
                }
                Definition::SystemTreeNode { id, name, class, parent } => {
                    raw.system.insert(id, (name, class, parent));
                }
                Definition::String { id, text } => {
                    raw.strings.insert(id, text);
                }
                Definition::LocationGroup { id, parent } => {
                    raw.location_groups.push(id);
                    raw.parent_of_group.insert(id, parent);
                }
                Definition::Location { id, kind, group, events } if kind == LOCATION_CPU_THREAD => {
                    if events == 0 {
                        raw.without_events.insert(id);
                    }
                    raw.locations.insert(id, group);
                }
                Definition::Location { .. } => {}
                Definition::Region { id, name, role, paradigm, file, line } => {
                    raw.regions.push((id, name, role, paradigm));
                    raw.region_lines.push((id, file, line));
                }
                Definition::SourceLocation { id, file, line } => raw.sites.push((id, file, line)),
                Definition::CallingContext { id, region, site, parent } => {
                    raw.contexts.insert(id, Context { region, site, parent });
                }
                Definition::Attribute { id, name } => raw.attributes.push((id, name)),
                Definition::RmaWindow { id, comm } => {
                    raw.windows.insert(id, comm);
                }
                Definition::Group { id, kind, paradigm, members } => {
                    raw.group(id, kind, paradigm, members);
                }
                Definition::Comm { id, name, group } => raw.comms.push((id, name, group, None)),
                Definition::InterComm { id, name, group_a, group_b } => {
                    raw.comms.push((id, name, group_a, Some(group_b)));
                }
                Definition::CartDimension { id, size } => {
                    raw.dimensions.insert(id, size);
                }
                Definition::CartTopology { comm, dimensions } => {
                    raw.topologies.push((comm, dimensions));
                }
            }
        }
        raw
    }

    fn group(&mut self, id: u32, kind: u8, paradigm: u8, members: Vec<u64>) {
        if kind == GROUP_COMM_LOCATIONS && paradigm == PARADIGM_MPI && self.world.is_empty() {
            self.world.clone_from(&members);
        }
        let is_defined =
            self.groups.get(&id).is_some_and(|group| group.kind != GROUP_COMM_LOCATIONS);
        if !is_defined || kind != GROUP_COMM_LOCATIONS {
            self.groups.insert(id, Group { kind, members });
        }
    }

    /// Source files and lines by id, without entries that lack a file name or a line.
    fn lines(&self, from: &[(u32, u32, u32)]) -> BTreeMap<u32, (String, u32)> {
        from.iter()
            .filter(|&&(_, _, line)| line > 0 && line != NONE)
            .filter_map(|&(id, file, line)| Some((id, (self.name(file)?.to_owned(), line))))
            .collect()
    }

    /// Parts of the machine that contain the process of a location, the innermost first.
    fn system_path(&self, location: u64) -> Vec<SystemNode> {
        let group = self.locations.get(&location);
        let mut at = group.and_then(|group| self.parent_of_group.get(group)).copied();
        let mut out = Vec::new();
        let text = |id| self.name(id).unwrap_or_default().to_owned();
        // In a damaged trace, the tree may contain a loop.
        while let (Some(&(name, class, parent)), true) =
            (at.and_then(|id| self.system.get(&id)), out.len() < self.system.len())
        {
            out.push(SystemNode { name: text(name), class: text(class) });
            at = Some(parent);
        }
        out
    }

    /// Attributes of events that are read.
    fn attributes(&self) -> Attributes {
        let id_of = |text: &str| {
            self.attributes
                .iter()
                .find(|(_, name)| self.name(*name) == Some(text))
                .map(|&(id, _)| id)
        };
        Attributes { sizes: id_of(SIZES_ATTRIBUTE), processor: id_of(PROCESSOR_ATTRIBUTE) }
    }

    fn name(&self, id: u32) -> Option<&str> {
        self.strings.get(&id).map(String::as_str).filter(|name| !name.is_empty())
    }
}

impl Definitions {
    /// Resolves the definitions read from `file`.
    ///
    /// # Errors
    /// [`TraceError::Definitions`] if the trace has no clock or no process, or if a group names a
    /// location or rank that does not exist.
    pub(crate) fn resolve(file: &Path, read: Vec<Definition>) -> Result<Self, TraceError> {
        let bad = |place: String, reason: String| TraceError::Definitions {
            file: file.to_path_buf(),
            place,
            reason,
        };
        let mut raw = Raw::collect(read);
        let (ticks_per_second, start, length, realtime) =
            raw.clock.filter(|clock| clock.0 > 0).ok_or_else(|| {
                bad("clock".to_owned(), "the trace has no clock properties".to_owned())
            })?;
        if raw.world.is_empty() {
            raw.world = first_location_of_each_process(&raw);
        }
        let ranks = ranks_of_locations(&raw).map_err(|(place, reason)| bad(place, reason))?;
        let n_ranks = raw.world.len() as u32;
        if n_ranks == 0 {
            return Err(bad("locations".to_owned(), "the trace has no process".to_owned()));
        }
        let mut out = Self { ticks_per_second, start, length, n_ranks, ..Self::default() };
        out.realtime_ns = (realtime != u64::MAX).then_some(realtime);
        out.system = raw.world.iter().map(|location| raw.system_path(*location)).collect();
        out.without_events = std::mem::take(&mut raw.without_events);
        out.contexts = std::mem::take(&mut raw.contexts);
        out.windows = std::mem::take(&mut raw.windows);
        out.region_lines = raw.lines(&raw.region_lines);
        out.sites = raw.lines(&raw.sites);
        out.locations = ranks.iter().map(|(&location, &rank)| (location, rank)).collect();
        out.locations.sort_by_key(|&(location, rank)| (rank, location));
        for &(id, name, role, paradigm) in &raw.regions {
            let name = raw.name(name).map_or_else(|| format!("region {id}"), str::to_owned);
            out.classes.insert(id, class_of(&name, role, paradigm));
            out.regions.insert(id, name);
        }
        for &(id, name, group, remote) in &raw.comms {
            let place = || format!("communicator {id}");
            let members = |group| members_of(&raw, group, &ranks, n_ranks);
            let (list, is_self) = members(group).map_err(|reason| bad(place(), reason))?;
            let remote = match remote {
                Some(group) => Some(members(group).map_err(|reason| bad(place(), reason))?.0),
                None => None,
            };
            let name = raw.name(name).map_or_else(|| format!("communicator {id}"), str::to_owned);
            let communicator = Communicator { id, name, members: list, remote, is_self };
            out.communicators.insert(id, communicator);
        }
        for (comm, dimensions) in &raw.topologies {
            let extents: Option<Vec<u32>> =
                dimensions.iter().map(|id| raw.dimensions.get(id).copied()).collect();
            if let Some(extents) = extents {
                out.cartesian.push(Cartesian { comm: *comm, extents });
            }
        }
        out.attributes = raw.attributes();
        if out.attributes.sizes.is_some() {
            out.strings = raw.strings;
        }
        Ok(out)
    }
}

/// Locations by rank for a trace that does not list its MPI locations.
fn first_location_of_each_process(raw: &Raw) -> Vec<u64> {
    let mut first: BTreeMap<u32, u64> = BTreeMap::new();
    for (&location, &group) in &raw.locations {
        first.entry(group).or_insert(location);
    }
    raw.location_groups.iter().filter_map(|group| first.get(group).copied()).collect()
}

/// Rank of every location: that of its process.
fn ranks_of_locations(raw: &Raw) -> Result<BTreeMap<u64, u32>, (String, String)> {
    let mut of_process: HashMap<u32, u32> = HashMap::new();
    let mut ranks = BTreeMap::new();
    for (rank, location) in raw.world.iter().enumerate() {
        let place = || format!("rank {rank}");
        let group = raw
            .locations
            .get(location)
            .ok_or_else(|| (place(), format!("location {location} is not defined")))?;
        if ranks.insert(*location, rank as u32).is_some() {
            return Err((place(), format!("location {location} belongs to two ranks")));
        }
        of_process.entry(*group).or_insert(rank as u32);
    }
    for (&location, group) in &raw.locations {
        if let (false, Some(&rank)) = (ranks.contains_key(&location), of_process.get(group)) {
            ranks.insert(location, rank);
        }
    }
    Ok(ranks)
}

/// World ranks of a group, and whether it is the group of MPI_COMM_SELF.
fn members_of(
    raw: &Raw,
    group: u32,
    ranks: &BTreeMap<u64, u32>,
    n_ranks: u32,
) -> Result<(Vec<u32>, bool), String> {
    if group == NONE {
        return Ok((Vec::new(), false));
    }
    let definition =
        raw.groups.get(&group).ok_or_else(|| format!("group {group} is not defined"))?;
    let rank_of = |member: &u64| match definition.kind {
        GROUP_COMM_LOCATIONS => ranks
            .get(member)
            .copied()
            .ok_or_else(|| format!("group {group} names location {member}, which is not defined")),
        _ => u32::try_from(*member).ok().filter(|&rank| rank < n_ranks).ok_or_else(|| {
            format!("group {group} names rank {member}, but the trace has {n_ranks} ranks, from 0")
        }),
    };
    match definition.kind {
        GROUP_COMM_SELF => Ok((Vec::new(), true)),
        GROUP_COMM_GROUP | GROUP_COMM_LOCATIONS => {
            Ok((definition.members.iter().map(rank_of).collect::<Result<_, _>>()?, false))
        }
        kind => Err(format!("group {group} is of type {kind}, not a group of processes")),
    }
}

/// Classifies a region as MPI call, phase of the application, or region around the whole program.
fn class_of(name: &str, role: u8, paradigm: u8) -> RegionClass {
    let is_mpi_name = name.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("MPI_"));
    if paradigm == PARADIGM_MPI || is_mpi_name {
        return RegionClass::Mpi;
    }
    // EZTrace adds "Working" and "EZTrace finalize".
    let outer = ["main", "MAIN__", "Working", "EZTrace finalize"].contains(&name)
        || name.starts_with("int main(")
        || role == ROLE_ARTIFICIAL;
    if outer { RegionClass::Outer } else { RegionClass::Phase }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_world() -> Vec<Definition> {
        let mut read = vec![
            Definition::Clock { ticks_per_second: 1_000, start: 5, length: 9, realtime: u64::MAX },
            Definition::String { id: 0, text: "MPI_COMM_WORLD".to_owned() },
            Definition::String { id: 1, text: "rows".to_owned() },
        ];
        // Location ids are not ranks: 40 is rank 0, 7 rank 1, 9 a second thread of rank 1.
        for (location, group) in [(7, 1), (9, 1), (40, 0)] {
            read.push(Definition::Location { id: location, kind: 1, group, events: 1 });
        }
        for group in 0..2 {
            read.push(Definition::LocationGroup { id: group, parent: group + 1 });
        }
        for (id, parent) in [(0, NONE), (1, 0), (2, 3), (3, 2)] {
            read.push(Definition::SystemTreeNode { id, name: 0, class: 1, parent });
        }
        let group = |id, kind, members| Definition::Group { id, kind, paradigm: 4, members };
        read.push(group(0, GROUP_COMM_LOCATIONS, vec![40, 7]));
        read.push(group(0, GROUP_COMM_GROUP, vec![0, 1]));
        read.push(group(3, GROUP_COMM_GROUP, vec![1]));
        read.push(group(4, GROUP_COMM_SELF, vec![]));
        read.push(Definition::Comm { id: 0, name: 0, group: 0 });
        read.push(Definition::Comm { id: 3, name: 1, group: 3 });
        read.push(Definition::Comm { id: 4, name: 99, group: 4 });
        read
    }

    fn resolve(read: Vec<Definition>) -> Result<Definitions, TraceError> {
        Definitions::resolve(Path::new("trace.def"), read)
    }

    #[test]
    fn group_zero_may_be_defined_twice() {
        let out = resolve(small_world()).unwrap();
        assert_eq!(out.n_ranks, 2);
        assert_eq!(out.locations, [(40, 0), (7, 1), (9, 1)]);
        assert_eq!(out.communicators[&0].members, [0, 1]);
        assert_eq!(out.communicators[&3].members, [1]);
        assert_eq!(out.communicators[&3].name, "rows");
        assert!(out.communicators[&4].is_self);
        assert_eq!(out.communicators[&4].name, "communicator 4");
        assert_eq!(out.realtime_ns, None);
    }

    #[test]
    fn a_loop_in_the_system_tree_ends() {
        let out = resolve(small_world()).unwrap();
        assert_eq!(out.system[0].len(), 2);
        assert_eq!(out.system[0][0].class, "rows");
        assert_eq!(out.system[1].len(), 4);
    }

    #[test]
    fn a_member_that_does_not_exist_is_an_error() {
        let mut read = small_world();
        read.push(Definition::Group {
            id: 3,
            kind: GROUP_COMM_GROUP,
            paradigm: 4,
            members: vec![2],
        });
        let error = resolve(read).unwrap_err();
        assert_eq!(
            error.to_string(),
            "trace.def: communicator 3: group 3 names rank 2, but the trace has 2 ranks, from 0"
        );
    }

    #[test]
    fn strings_are_kept_if_collectives_name_them() {
        let mut read = small_world();
        read.push(Definition::String { id: 90, text: "another".into() });
        read.push(Definition::Attribute { id: 1, name: 90 });
        assert_eq!(resolve(small_world()).unwrap().attributes, Attributes::default());
        read.push(Definition::String { id: 91, text: SIZES_ATTRIBUTE.into() });
        read.push(Definition::Attribute { id: 2, name: 91 });
        let out = resolve(read).unwrap();
        assert_eq!(out.attributes, Attributes { sizes: Some(2), processor: None });
        assert_eq!(out.strings[&90], "another");
    }

    #[test]
    fn no_clock_is_an_error() {
        assert!(resolve(Vec::new()).unwrap_err().to_string().contains("no clock"));
    }

    #[test]
    fn regions_are_classified() {
        assert_eq!(class_of("MPI_Send", 0, 1), RegionClass::Mpi);
        assert_eq!(class_of("mpi_send_", 0, 1), RegionClass::Mpi);
        assert_eq!(class_of("int main(int, char**)", 1, 2), RegionClass::Outer);
        assert_eq!(class_of("TRACER_Loop", 1, 1), RegionClass::Phase);
        assert_eq!(class_of("µé", 1, 1), RegionClass::Phase);
    }
}
