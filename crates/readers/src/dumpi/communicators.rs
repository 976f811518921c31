//! Communicators: matches the handles of each rank across all ranks.

use super::arguments::CallError;
use crate::numbering::Map;

const NULL: i64 = 1;
const WORLD: i64 = 2;
const SELF: i64 = 3;
/// Limit of communicators derived from one another.
const MAX_NESTING: u32 = 512;
/// Limit of the members of all groups of a rank.
const MAX_MEMBERS: usize = 1 << 26;

/// A communicator: an index into all.
pub(super) type Comm = u32;

/// How a communicator was created; equal on all its members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Origin {
    World,
    SelfOf(u32),
    /// The k-th communicator derived from a parent.
    Made(Comm, u32, Creation),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Creation {
    Dup,
    Split(i64),
    Ranks(Vec<i64>),
    /// MPI_Cart_sub: the coordinates in the dimensions that are dropped.
    Line(Vec<i64>),
    /// From a group with unknown members, on one rank.
    Unknown(u32),
}

/// A member: key of the split, rank in the parent, world rank.
type Member = (i64, i64, u32);

struct Row {
    how: Origin,
    depth: u32,
    /// `None` if the members are not known.
    members: Option<Vec<Member>>,
}

/// The communicators of all ranks.
pub(super) struct Communicators {
    n_ranks: u32,
    rows: Vec<Row>,
    numbers: Map<Origin, Comm>,
    /// Communicators with known members, in the order in which their first member was added.
    joined: Vec<Comm>,
}

impl Communicators {
    pub fn new(n_ranks: u32) -> Self {
        let mut out =
            Self { n_ranks, rows: Vec::new(), numbers: Map::default(), joined: Vec::new() };
        let world = out.intern(Origin::World, 0);
        for rank in 0..n_ranks {
            out.join(world, (0, i64::from(rank), rank));
        }
        out
    }

    fn intern(&mut self, how: Origin, depth: u32) -> Comm {
        if let Some(&comm) = self.numbers.get(&how) {
            return comm;
        }
        let number = self.rows.len() as Comm;
        self.rows.push(Row { how: how.clone(), depth, members: None });
        self.numbers.insert(how, number);
        number
    }

    fn join(&mut self, comm: Comm, member: Member) {
        if self.rows[comm as usize].members.is_none() {
            self.joined.push(comm);
        }
        self.rows[comm as usize].members.get_or_insert_default().push(member);
    }

    /// Index of each communicator among those with known members, and the world ranks of these members.
    pub fn members(&mut self) -> (Vec<Option<u32>>, Vec<Vec<u32>>) {
        let mut place = vec![None; self.rows.len()];
        let mut out = Vec::with_capacity(self.joined.len());
        for (number, &comm) in self.joined.iter().enumerate() {
            place[comm as usize] = Some(number as u32);
            let mut rows = self.rows[comm as usize].members.take().unwrap_or_default();
            rows.sort_unstable();
            out.push(rows.into_iter().map(|(_, _, world)| world).collect());
        }
        (place, out)
    }

    /// Names of the communicators with known members; `place` is what [`Self::members`] returns.
    pub fn names(&self, place: &[Option<u32>]) -> Vec<String> {
        let mut out = vec![String::new(); self.joined.len()];
        for (comm, place) in (0..).zip(place) {
            if let Some(place) = place {
                out[*place as usize] = self.name(comm);
            }
        }
        out
    }

    /// Name of a communicator for labels.
    pub fn name(&self, comm: Comm) -> String {
        if comm == 0 {
            "MPI_COMM_WORLD".to_owned()
        } else {
            format!("communicator {}", self.path(comm))
        }
    }

    fn path(&self, comm: Comm) -> String {
        match &self.rows[comm as usize].how {
            Origin::World => String::new(),
            Origin::SelfOf(rank) => rank.to_string(),
            Origin::Made(parent, turn, way) => {
                let mut parts = vec![self.path(*parent), turn.to_string()];
                parts.retain(|part| !part.is_empty());
                let text = |values: &[i64], between: &str| {
                    values.iter().map(i64::to_string).collect::<Vec<_>>().join(between)
                };
                match way {
                    Creation::Dup => {}
                    Creation::Split(color) => parts.push(color.to_string()),
                    Creation::Ranks(ranks) if ranks.len() == 1 => {
                        parts.push(format!("({},)", ranks[0]))
                    }
                    Creation::Ranks(ranks) => parts.push(format!("({})", text(ranks, ", "))),
                    Creation::Line(fixed) => parts.push(text(fixed, "-")),
                    Creation::Unknown(rank) => parts.push(rank.to_string()),
                }
                parts.join(".")
            }
        }
    }
}

/// The communicators of one rank by handle.
///
/// Creating a communicator is collective, so the k-th communicator derived from a parent is the same on
/// all its members.
pub(super) struct RankCommunicators {
    rank: u32,
    by_handle: Map<i64, Comm>,
    last: (i64, Comm),
    made: Map<Comm, u32>,
    place: Map<Comm, i64>,
    groups: Map<i64, (Comm, Option<Vec<i64>>)>,
    grids: Map<Comm, Vec<i64>>,
    in_groups: usize,
}

impl RankCommunicators {
    pub fn new(all: &mut Communicators, rank: u32) -> Self {
        let self_comm = all.intern(Origin::SelfOf(rank), 0);
        all.join(self_comm, (0, 0, rank));
        let place = Map::from_iter([(0, i64::from(rank)), (self_comm, 0)]);
        Self {
            rank,
            by_handle: Map::from_iter([(WORLD, 0), (SELF, self_comm)]),
            last: (WORLD, 0),
            made: Map::default(),
            place,
            groups: Map::default(),
            grids: Map::default(),
            in_groups: 0,
        }
    }

    /// The communicator with this handle.
    #[inline]
    pub fn comm(&mut self, number: i64) -> Result<Comm, CallError> {
        if number != self.last.0 {
            let comm = self.by_handle.get(&number).copied();
            let wrong = || {
                CallError::Invalid(format!("communicator {number} is used before it is created"))
            };
            self.last = (number, comm.ok_or_else(wrong)?);
        }
        Ok(self.last.1)
    }

    /// MPI_Comm_split: members of `old` with the same color, ordered by key.
    pub fn split(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        color: i64,
        order: i64,
    ) -> Result<(), CallError> {
        self.make(all, old, new, Creation::Split(color), order).map(|_| ())
    }

    /// MPI_Comm_dup: the same members.
    pub fn dup(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
    ) -> Result<(), CallError> {
        self.make(all, old, new, Creation::Dup, 0).map(|_| ())
    }

    /// MPI_Cart_create: a Cartesian grid of these extents.
    pub fn cart_create(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        dims: &[i64],
    ) -> Result<(), CallError> {
        if let Some(made) = self.make(all, old, new, Creation::Dup, 0)? {
            self.grids.insert(made, dims.to_vec());
        }
        Ok(())
    }

    /// MPI_Cart_sub: the ranks of a subgrid, with equal coordinates in the dropped dimensions.
    pub fn cart_sub(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        remain: &[i64],
    ) -> Result<(), CallError> {
        let parent = self.comm(old.unwrap_or(0))?;
        let dims = self.grids.get(&parent).cloned().unwrap_or_default();
        if dims.len() != remain.len() {
            return Err(CallError::Invalid(
                "the parent communicator has no recorded Cartesian grid".to_owned(),
            ));
        }
        let mut left = self.rank_within(parent);
        let mut coordinates = vec![0; dims.len()];
        for (coordinate, &extent) in coordinates.iter_mut().zip(&dims).rev() {
            *coordinate = left % extent.max(1);
            left /= extent.max(1);
        }
        let kept = |keep: bool, values: &[i64]| -> Vec<i64> {
            let every = values.iter().zip(remain);
            every.filter(|&(_, &kept)| (kept != 0) == keep).map(|(&value, _)| value).collect()
        };
        let fixed = kept(false, &coordinates);
        if let Some(made) = self.make(all, old, new, Creation::Line(fixed), 0)? {
            self.grids.insert(made, kept(true, &dims));
        }
        Ok(())
    }

    /// MPI_Comm_create: the ranks of a group.
    pub fn create(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        group: i64,
    ) -> Result<(), CallError> {
        let ranks = self.groups.get(&group).and_then(|(_, ranks)| ranks.clone());
        self.count_members(ranks.as_ref().map_or(0, Vec::len))?;
        let way = ranks.map_or(Creation::Unknown(self.rank), Creation::Ranks);
        self.make(all, old, new, way, 0).map(|_| ())
    }

    /// MPI_Comm_group: the group of a communicator.
    pub fn group(&mut self, comm: i64, group: i64) -> Result<(), CallError> {
        let key = self.comm(comm)?;
        self.groups.insert(group, (key, None));
        Ok(())
    }

    /// MPI_Group_incl or MPI_Group_excl: a group of the given ranks of another, or of all others.
    pub fn subgroup(
        &mut self,
        all: &Communicators,
        group: i64,
        new: i64,
        ranks: &[i64],
        included: bool,
    ) -> Result<(), CallError> {
        let Some((parent, of)) = self.groups.get(&group) else { return Ok(()) };
        let world: Vec<i64>;
        let of = match of {
            Some(of) => of,
            None if *parent == 0 => {
                world = (0..i64::from(all.n_ranks)).collect();
                &world
            }
            None => return Ok(()),
        };
        let named = |&rank: &i64| usize::try_from(rank).ok().and_then(|at| of.get(at)).copied();
        let named: Option<Vec<i64>> = ranks.iter().map(named).collect();
        let named = named.ok_or(CallError::MissingArgument("ranks"))?;
        let left = if included {
            named
        } else {
            let gone: Map<i64, ()> = named.into_iter().map(|member| (member, ())).collect();
            of.iter().filter(|member| !gone.contains_key(member)).copied().collect()
        };
        let parent = *parent;
        self.count_members(left.len())?;
        self.groups.insert(new, (parent, Some(left)));
        Ok(())
    }

    /// Limits the memory that the members of groups take.
    fn count_members(&mut self, more: usize) -> Result<(), CallError> {
        self.in_groups += more;
        if self.in_groups > MAX_MEMBERS {
            let message = format!("the groups have more than {MAX_MEMBERS} members");
            return Err(CallError::Invalid(message));
        }
        Ok(())
    }

    /// Adds a communicator and returns it; `None` if this rank is not a member.
    fn make(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        way: Creation,
        order: i64,
    ) -> Result<Option<Comm>, CallError> {
        let (Some(old), Some(new)) = (old, new) else {
            return Err(CallError::Invalid("the communicator is not recorded".to_owned()));
        };
        let parent = self.comm(old)?;
        let turn = self.made.entry(parent).or_default();
        *turn += 1;
        let turn = *turn - 1;
        if new == NULL {
            return Ok(None);
        }
        let depth = all.rows[parent as usize].depth + 1;
        if depth > MAX_NESTING {
            let message = format!("communicators are nested more than {MAX_NESTING} deep");
            return Err(CallError::Invalid(message));
        }
        let place = match &way {
            Creation::Unknown(_) => None,
            Creation::Ranks(ranks) => {
                let place = ranks.iter().position(|&rank| rank == i64::from(self.rank));
                let wrong =
                    || CallError::Invalid(format!("rank {} is not in the group", self.rank));
                Some(place.ok_or_else(wrong)? as i64)
            }
            _ => Some(self.rank_within(parent)),
        };
        let made = all.intern(Origin::Made(parent, turn, way), depth);
        self.by_handle.insert(new, made);
        self.last = (new, made);
        if let Some(place) = place {
            all.join(made, (order, place, self.rank));
            self.place.entry(made).or_insert(place);
        }
        Ok(Some(made))
    }

    /// The rank of this process in a communicator; if it is unknown, its world rank, which sorts
    /// alike.
    fn rank_within(&self, comm: Comm) -> i64 {
        self.place.get(&comm).copied().unwrap_or(i64::from(self.rank))
    }
}
