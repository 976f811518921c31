//! Communicators: numbers within each rank, joined over all ranks.

use super::arguments::Trouble;
use crate::numbering::Map;

const NULL: i64 = 1;
const WORLD: i64 = 2;
const SELF: i64 = 3;
/// Communicators made from one another, one within the other.
const DEEPEST: u32 = 512;
/// Members of all groups of a rank.
const MOST_MEMBERS: usize = 1 << 26;

/// A communicator: a place among all.
pub(super) type Comm = u32;

/// How a communicator was made, alike on all its members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum How {
    World,
    SelfOf(u32),
    /// The k-th that the members of one made.
    Made(Comm, u32, Way),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Way {
    Dup,
    Split(i64),
    Ranks(Vec<i64>),
    /// The other coordinates in the grid.
    Line(Vec<i64>),
    /// Of a group whose members are not known, on one rank.
    Unknown(u32),
}

/// A member: order, place in what it was made from, world rank.
type Member = (i64, i64, u32);

struct Row {
    how: How,
    depth: u32,
    /// None for those whose members are not known.
    members: Option<Vec<Member>>,
}

/// The communicators of all ranks.
pub(super) struct Communicators {
    n_ranks: u32,
    rows: Vec<Row>,
    known: Map<How, Comm>,
    /// Those with members, in the order in which they got their first.
    joined: Vec<Comm>,
}

impl Communicators {
    pub fn new(n_ranks: u32) -> Self {
        let mut out = Self { n_ranks, rows: Vec::new(), known: Map::default(), joined: Vec::new() };
        let world = out.intern(How::World, 0);
        for rank in 0..n_ranks {
            out.join(world, (0, i64::from(rank), rank));
        }
        out
    }

    fn intern(&mut self, how: How, depth: u32) -> Comm {
        if let Some(&known) = self.known.get(&how) {
            return known;
        }
        let number = self.rows.len() as Comm;
        self.rows.push(Row { how: how.clone(), depth, members: None });
        self.known.insert(how, number);
        number
    }

    fn join(&mut self, comm: Comm, member: Member) {
        if self.rows[comm as usize].members.is_none() {
            self.joined.push(comm);
        }
        self.rows[comm as usize].members.get_or_insert_default().push(member);
    }

    /// Place of each among those with members, and world ranks of their members in order.
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

    /// What to call a communicator.
    pub fn name(&self, comm: Comm) -> String {
        if comm == 0 {
            "MPI_COMM_WORLD".to_owned()
        } else {
            format!("communicator {}", self.path(comm))
        }
    }

    fn path(&self, comm: Comm) -> String {
        match &self.rows[comm as usize].how {
            How::World => String::new(),
            How::SelfOf(rank) => rank.to_string(),
            How::Made(parent, turn, way) => {
                let mut parts = vec![self.path(*parent), turn.to_string()];
                parts.retain(|part| !part.is_empty());
                let text = |values: &[i64], between: &str| {
                    values.iter().map(i64::to_string).collect::<Vec<_>>().join(between)
                };
                match way {
                    Way::Dup => {}
                    Way::Split(color) => parts.push(color.to_string()),
                    Way::Ranks(ranks) if ranks.len() == 1 => parts.push(format!("({},)", ranks[0])),
                    Way::Ranks(ranks) => parts.push(format!("({})", text(ranks, ", "))),
                    Way::Line(fixed) => parts.push(text(fixed, "-")),
                    Way::Unknown(rank) => parts.push(rank.to_string()),
                }
                parts.join(".")
            }
        }
    }
}

/// The communicators of one rank, by its own numbers.
///
/// The k-th communicator that the members of one make is the same for all of them, for making one is
/// collective.
pub(super) struct OfRank {
    rank: u32,
    keys: Map<i64, Comm>,
    last: (i64, Comm),
    made: Map<Comm, u32>,
    place: Map<Comm, i64>,
    groups: Map<i64, (Comm, Option<Vec<i64>>)>,
    grids: Map<Comm, Vec<i64>>,
    in_groups: usize,
}

impl OfRank {
    pub fn new(all: &mut Communicators, rank: u32) -> Self {
        let own = all.intern(How::SelfOf(rank), 0);
        all.join(own, (0, 0, rank));
        let place = Map::from_iter([(0, i64::from(rank)), (own, 0)]);
        Self {
            rank,
            keys: Map::from_iter([(WORLD, 0), (SELF, own)]),
            last: (WORLD, 0),
            made: Map::default(),
            place,
            groups: Map::default(),
            grids: Map::default(),
            in_groups: 0,
        }
    }

    /// The communicator of this number.
    #[inline]
    pub fn key(&mut self, number: i64) -> Result<Comm, Trouble> {
        if number != self.last.0 {
            let found = self.keys.get(&number).copied();
            let wrong = || Trouble::Wrong(format!("communicator {number} was not made before"));
            self.last = (number, found.ok_or_else(wrong)?);
        }
        Ok(self.last.1)
    }

    /// A communicator that all members of `old` make, of those of one color in the order of their keys.
    pub fn split(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        color: i64,
        order: i64,
    ) -> Result<(), Trouble> {
        self.make(all, old, new, Way::Split(color), order).map(|_| ())
    }

    /// One with the same members.
    pub fn dup(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
    ) -> Result<(), Trouble> {
        self.make(all, old, new, Way::Dup, 0).map(|_| ())
    }

    /// A grid of these extents.
    pub fn grid(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        dims: &[i64],
    ) -> Result<(), Trouble> {
        if let Some(made) = self.make(all, old, new, Way::Dup, 0)? {
            self.grids.insert(made, dims.to_vec());
        }
        Ok(())
    }

    /// Ranks of one line or plane of a grid: those whose other coordinates are alike.
    pub fn part_of_grid(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        remain: &[i64],
    ) -> Result<(), Trouble> {
        let parent = self.key(old.unwrap_or(0))?;
        let dims = self.grids.get(&parent).cloned().unwrap_or_default();
        if dims.len() != remain.len() {
            return Err(Trouble::Wrong("the grid is not recorded".to_owned()));
        }
        let mut left = self.within(parent);
        let mut coordinates = vec![0; dims.len()];
        for (coordinate, &extent) in coordinates.iter_mut().zip(&dims).rev() {
            *coordinate = left % extent.max(1);
            left /= extent.max(1);
        }
        let kept = |keep: bool, values: &[i64]| -> Vec<i64> {
            let every = values.iter().zip(remain);
            every.filter(|&(_, &one)| (one != 0) == keep).map(|(&value, _)| value).collect()
        };
        let fixed = kept(false, &coordinates);
        if let Some(made) = self.make(all, old, new, Way::Line(fixed), 0)? {
            self.grids.insert(made, kept(true, &dims));
        }
        Ok(())
    }

    /// One of the ranks of a group.
    pub fn create(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        group: i64,
    ) -> Result<(), Trouble> {
        let ranks = self.groups.get(&group).and_then(|(_, ranks)| ranks.clone());
        self.count_members(ranks.as_ref().map_or(0, Vec::len))?;
        let way = ranks.map_or(Way::Unknown(self.rank), Way::Ranks);
        self.make(all, old, new, way, 0).map(|_| ())
    }

    /// The group of a communicator.
    pub fn group(&mut self, comm: i64, group: i64) -> Result<(), Trouble> {
        let key = self.key(comm)?;
        self.groups.insert(group, (key, None));
        Ok(())
    }

    /// A group of some ranks of another, or of all but these.
    pub fn part_of_group(
        &mut self,
        all: &Communicators,
        group: i64,
        new: i64,
        ranks: &[i64],
        included: bool,
    ) -> Result<(), Trouble> {
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
        let named = |&one: &i64| usize::try_from(one).ok().and_then(|at| of.get(at)).copied();
        let named: Option<Vec<i64>> = ranks.iter().map(named).collect();
        let named = named.ok_or(Trouble::Lacks("ranks"))?;
        let left = if included {
            named
        } else {
            let gone: Map<i64, ()> = named.into_iter().map(|one| (one, ())).collect();
            of.iter().filter(|one| !gone.contains_key(one)).copied().collect()
        };
        let parent = *parent;
        self.count_members(left.len())?;
        self.groups.insert(new, (parent, Some(left)));
        Ok(())
    }

    /// Refuses groups whose members would take memory without bound.
    fn count_members(&mut self, more: usize) -> Result<(), Trouble> {
        self.in_groups += more;
        if self.in_groups > MOST_MEMBERS {
            let message = format!("the groups have more than {MOST_MEMBERS} members");
            return Err(Trouble::Wrong(message));
        }
        Ok(())
    }

    /// Adds a communicator and returns it, unless it is null on this rank.
    fn make(
        &mut self,
        all: &mut Communicators,
        old: Option<i64>,
        new: Option<i64>,
        way: Way,
        order: i64,
    ) -> Result<Option<Comm>, Trouble> {
        let (Some(old), Some(new)) = (old, new) else {
            return Err(Trouble::Wrong("the communicator is not recorded".to_owned()));
        };
        let parent = self.key(old)?;
        let turn = self.made.entry(parent).or_default();
        *turn += 1;
        let turn = *turn - 1;
        if new == NULL {
            return Ok(None);
        }
        let depth = all.rows[parent as usize].depth + 1;
        if depth > DEEPEST {
            let message = format!("communicators are made from one another {depth} times");
            return Err(Trouble::Wrong(message));
        }
        let place = match &way {
            Way::Unknown(_) => None,
            Way::Ranks(ranks) => {
                let place = ranks.iter().position(|&one| one == i64::from(self.rank));
                let wrong = || Trouble::Wrong(format!("rank {} is not in the group", self.rank));
                Some(place.ok_or_else(wrong)? as i64)
            }
            _ => Some(self.within(parent)),
        };
        let made = all.intern(How::Made(parent, turn, way), depth);
        self.keys.insert(new, made);
        self.last = (new, made);
        if let Some(place) = place {
            all.join(made, (order, place, self.rank));
            self.place.entry(made).or_insert(place);
        }
        Ok(Some(made))
    }

    /// This rank's number in a communicator, or one that grows with it.
    fn within(&self, comm: Comm) -> i64 {
        self.place.get(&comm).copied().unwrap_or(i64::from(self.rank))
    }
}
