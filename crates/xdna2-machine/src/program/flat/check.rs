//! Errors of `Flat::new`, and the checks that need no expansion.

use super::{Flat, MAX_COPIES, indexed};
use crate::program::{
    Affine, Env, IndexRange, Launch, MAX_NESTING, Op, Operand, Pattern, Place, Var,
};
use std::collections::HashSet;

/// A launch that does not make sense on any machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("launch `{launch}`, {place}: {problem}")]
pub struct FlatError {
    /// The launch's name.
    pub launch: String,
    /// The channel, stage, transfer or herd.
    pub place: String,
    /// The fault.
    pub problem: FlatDefect,
}

/// A fault of a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlatDefect {
    /// Two of a kind have the same name.
    #[error("the name is used twice")]
    Twice,
    /// A reference to something that does not exist: kind, index, number of that kind.
    #[error("{0} {1} does not exist: there are {2}")]
    NoSuch(&'static str, usize, usize),
    /// An index outside a bundle.
    #[error("channel `{channel}` has no index {index:?}: its size is {dims:?}")]
    Index {
        /// The bundle's name.
        channel: String,
        /// The index asked for.
        index: Vec<i64>,
        /// The bundle's size.
        dims: Vec<u32>,
    },
    /// A variable that has no meaning in this place.
    #[error("{0:?} has no meaning here")]
    Variable(Var),
    /// Loops and branches too deep inside each other.
    #[error("loops and branches are nested deeper than {MAX_NESTING}")]
    Nesting,
    /// Too many copies.
    #[error("{0} copies make {1} of this kind; at most {MAX_COPIES} are allowed")]
    Copies(u64, u64),
    /// A dimension of zero.
    #[error("a dimension is zero in {0:?}")]
    Empty(Vec<u32>),
    /// A coordinate that is not a column or row.
    #[error("{0} is not a column or row")]
    Place(i64),
    /// A span that is empty or beyond any array.
    #[error("cores {start} .. {start} + {len} are not a range of columns or rows")]
    Span {
        /// First.
        start: u32,
        /// Length.
        len: u32,
    },
    /// Two herds on one core.
    #[error("core (column {col}, row {row}) is taken by herd `{other}`")]
    CoreTaken {
        /// Column.
        col: u32,
        /// Row.
        row: u32,
        /// The other herd.
        other: String,
    },
    /// A channel to a core that no herd has.
    #[error("no herd has a core at column {col}, row {row}")]
    NoCore {
        /// Column.
        col: u32,
        /// Row.
        row: u32,
    },
    /// A channel with several sources.
    #[error("a channel has one source, this one {0}")]
    Sources(usize),
    /// A channel end that nothing serves.
    #[error("no {user} {} this channel", if *.sink { "takes from" } else { "sends into" })]
    Unused {
        /// Kind of user that it lacks.
        user: &'static str,
        /// Whether the end is the sink.
        sink: bool,
    },
    /// A channel end that two stage ends serve.
    #[error("channel `{0}` is served by two stage ends")]
    Shared(String),
    /// A stage on another memory tile than its channel says.
    #[error("the channel ends at the memory tile of column {col}, its stage `{stage}` is in {at}")]
    Column {
        /// The stage.
        stage: String,
        /// Its column.
        at: u32,
        /// The channel's column.
        col: u32,
    },
    /// A transfer on a channel without a shim end.
    #[error("channel `{0}` has no end at a shim")]
    NotAtShim(String),
    /// A stage end on a channel whose end is not at a memory tile.
    #[error("channel `{channel}` does not {} a memory tile",
        if *.drain { "come from" } else { "go to" })]
    NotAtMemory {
        /// The channel.
        channel: String,
        /// Whether a drain uses it.
        drain: bool,
    },
    /// A core uses a channel that does not begin or end there; whether it sends.
    #[error("core ({x}, {y}) {} channel `{channel}`, which does not {} there",
        if *.sends { "sends into" } else { "takes from" },
        if *.sends { "begin" } else { "end" })]
    NotAtCore {
        /// Core column in the herd.
        x: u32,
        /// Core row in the herd.
        y: u32,
        /// The channel.
        channel: String,
        /// Whether the core sends.
        sends: bool,
    },
    /// A channel that begins or ends at a core whose program never uses it.
    #[error("core ({x}, {y}) never {} channel `{channel}`",
        if *.sends { "sends into" } else { "takes from" })]
    Ignored {
        /// Core column in the herd.
        x: u32,
        /// Core row in the herd.
        y: u32,
        /// The channel.
        channel: String,
        /// Whether the core should send.
        sends: bool,
    },
}

/// The error at a place.
pub(super) fn fail<T>(launch: &Launch, place: &str, problem: FlatDefect) -> Result<T, FlatError> {
    Err(FlatError {
        launch: launch.name.clone(),
        place: place.to_owned(),
        problem,
    })
}

/// Scope in which [`Flat::ports`](super::Flat) looks up ends.
pub(super) struct PortScope<'a> {
    pub env: Env<'a>,
    pub id: usize,
    pub ends: &'a Ends,
}

/// By flat channel: the stage and end that drain into it, that fill from it, and whether a
/// transfer serves it.
pub(super) struct Ends {
    drains: Vec<Option<(usize, usize)>>,
    fills: Vec<Option<(usize, usize)>>,
    pub shim: Vec<bool>,
}

impl Ends {
    pub(super) fn of(&self, id: usize, sink: bool) -> Option<(usize, usize)> {
        if sink {
            self.fills[id]
        } else {
            self.drains[id]
        }
    }
}

pub(super) fn ends_by_channel(flat: &Flat<'_>) -> Result<Ends, FlatError> {
    let launch = flat.launch;
    let n = launch.channels.iter().map(|c| c.n_copies() as usize).sum();
    let mut ends = Ends {
        drains: vec![None; n],
        fills: vec![None; n],
        shim: vec![false; n],
    };
    let bundle_of = |id: usize| flat.bases.partition_point(|&base| base <= id) - 1;
    for (number, stage) in flat.stages.iter().enumerate() {
        let name = flat.stage_name(number);
        for (list, is_drain) in [(&stage.fills, false), (&stage.drains, true)] {
            for (position, end) in list.iter().enumerate() {
                let decl = &launch.channels[bundle_of(end.channel)];
                let place = if is_drain { &decl.from } else { &decl.to };
                if !matches!(place, Place::Memory(_)) {
                    let problem = FlatDefect::NotAtMemory {
                        channel: decl.name.clone(),
                        drain: is_drain,
                    };
                    return fail(launch, &name, problem);
                }
                let users = if is_drain {
                    &mut ends.drains
                } else {
                    &mut ends.fills
                };
                if users[end.channel].replace((number, position)).is_some() {
                    return fail(launch, &name, FlatDefect::Shared(decl.name.clone()));
                }
            }
        }
    }
    for transfer in &flat.transfers {
        ends.shim[transfer.channel] = true;
    }
    Ok(ends)
}

/// The number of copies of a bundle, checked against the limit together with `so_far`.
pub(super) fn copies(
    launch: &Launch,
    place: &str,
    dims: &[u32],
    so_far: usize,
) -> Result<usize, FlatError> {
    if dims.contains(&0) {
        return fail(launch, place, FlatDefect::Empty(dims.to_vec()));
    }
    let product = |n: u64, &d: &u32| n.saturating_mul(u64::from(d));
    let n = dims.iter().fold(1u64, product);
    let total = n.saturating_add(so_far as u64);
    if total > MAX_COPIES as u64 {
        return fail(launch, place, FlatDefect::Copies(n, total));
    }
    Ok(n as usize)
}

pub(super) fn bad_index(launch: &Launch, bundle: usize, index: &[i64]) -> FlatDefect {
    match launch.channels.get(bundle) {
        None => FlatDefect::NoSuch("channel", bundle, launch.channels.len()),
        Some(channel) => FlatDefect::Index {
            channel: channel.name.clone(),
            index: index.to_vec(),
            dims: channel.dims.clone(),
        },
    }
}

/// Refuses a name used twice among channels, stages or herds, or locals of a herd.
pub(super) fn names(launch: &Launch) -> Result<(), FlatError> {
    let channels = launch.channels.iter().map(|c| &c.name).collect();
    let stages = launch.stages.iter().map(|s| &s.name).collect();
    let herds = launch.herds.iter().map(|h| &h.name).collect();
    let locals = launch.herds.iter();
    let locals = locals.map(|h| h.locals.iter().map(|l| &l.name).collect());
    for list in [channels, stages, herds].into_iter().chain(locals) {
        let list: Vec<&String> = list;
        let mut seen = HashSet::new();
        for name in list {
            if !seen.insert(name) {
                return fail(launch, name, FlatDefect::Twice);
            }
        }
    }
    Ok(())
}

/// Variables that an expression may use: numbers of grid, index and loop dimensions, and whether `e`, and `x` and `y`,
/// exist.
#[derive(Clone, Copy, Default)]
struct Vars {
    grid: usize,
    index: usize,
    loops: usize,
    nesting: usize,
    each: bool,
    core: bool,
}

impl Vars {
    fn deeper(mut self) -> Result<Vars, FlatDefect> {
        self.nesting += 1;
        match self.nesting > MAX_NESTING {
            true => Err(FlatDefect::Nesting),
            false => Ok(self),
        }
    }

    fn affine(&self, affine: &Affine) -> Result<(), FlatDefect> {
        for &(var, _) in &affine.terms {
            let known = match var {
                Var::Grid(d) => usize::from(d) < self.grid,
                Var::Index(d) => usize::from(d) < self.index,
                Var::Loop(d) => usize::from(d) < self.loops,
                Var::Each => self.each,
                Var::X | Var::Y => self.core,
            };
            if !known {
                return Err(FlatDefect::Variable(var));
            }
        }
        Ok(())
    }

    fn all(&self, list: &[Affine]) -> Result<(), FlatDefect> {
        list.iter().try_for_each(|affine| self.affine(affine))
    }

    fn pattern(&self, pattern: &Pattern) -> Result<(), FlatDefect> {
        self.affine(&pattern.offset)?;
        pattern.dims.iter().try_for_each(|d| self.affine(&d.0))
    }

    fn place(&self, place: &Place) -> Result<(), FlatDefect> {
        match place {
            Place::Shim(col) | Place::Memory(col) => self.affine(col),
            Place::Core { col, row } => [col, row].into_iter().try_for_each(|span| match span {
                IndexRange::At(at) => self.affine(at),
                IndexRange::Range { .. } => Ok(()),
            }),
        }
    }
}

/// Refuses variables out of scope, and channels, arguments and locals that do not exist.
pub(super) fn scopes(launch: &Launch) -> Result<(), FlatError> {
    let grid = launch.grid.len();
    if launch.grid.contains(&0) {
        return fail(launch, "grid", FlatDefect::Empty(launch.grid.clone()));
    }
    let index = |dims: &[u32]| Vars {
        index: dims.len(),
        ..Vars::default()
    };
    for channel in &launch.channels {
        let vars = index(&channel.dims);
        let patterns = [&channel.from_pattern, &channel.to_pattern];
        let ends = [&channel.from, &channel.to];
        ends.into_iter()
            .try_for_each(|place| vars.place(place))
            .and_then(|()| {
                patterns
                    .into_iter()
                    .flatten()
                    .try_for_each(|p| vars.pattern(p))
            })
            .or_else(|p| fail(launch, &channel.name, p))?;
    }
    for stage in &launch.stages {
        let vars = index(&stage.dims);
        let ends = stage.fills.iter().chain(&stage.drains);
        vars.affine(&stage.col)
            .and_then(|()| {
                let vars = Vars { each: true, ..vars };
                ends.into_iter().try_for_each(|end| {
                    vars.all(&end.index)?;
                    Vars { grid, ..vars }.pattern(&end.pattern)
                })
            })
            .or_else(|p| fail(launch, &stage.name, p))?;
    }
    for (number, transfer) in launch.transfers.iter().enumerate() {
        transfer_scope(launch, transfer, grid)
            .or_else(|p| fail(launch, &indexed(&format!("transfer {number}"), &[]), p))?;
    }
    for herd in &launch.herds {
        let vars = Vars {
            grid,
            core: true,
            ..Vars::default()
        };
        ops_scope(launch, herd.locals.len(), &herd.body, vars)
            .or_else(|p| fail(launch, &format!("herd `{}`", herd.name), p))?;
    }
    Ok(())
}

fn transfer_scope(
    launch: &Launch,
    transfer: &crate::program::Transfer,
    grid: usize,
) -> Result<(), FlatDefect> {
    if transfer.arg >= launch.args.len() {
        return Err(FlatDefect::NoSuch(
            "argument",
            transfer.arg,
            launch.args.len(),
        ));
    }
    let mut vars = Vars {
        index: transfer.dims.len(),
        ..Vars::default()
    };
    vars.all(&transfer.index)?;
    vars.grid = grid;
    for count in &transfer.loops {
        vars.affine(count)?;
        vars.loops += 1;
    }
    vars.pattern(&transfer.pattern)
}

fn ops_scope(launch: &Launch, n_locals: usize, ops: &[Op], vars: Vars) -> Result<(), FlatDefect> {
    for op in ops {
        match op {
            Op::Loop { count, body } => {
                vars.affine(count)?;
                let mut inner = vars.deeper()?;
                inner.loops += 1;
                ops_scope(launch, n_locals, body, inner)?;
            }
            Op::If {
                value,
                then,
                otherwise,
                ..
            } => {
                vars.affine(value)?;
                let inner = vars.deeper()?;
                ops_scope(launch, n_locals, then, inner)?;
                ops_scope(launch, n_locals, otherwise, inner)?;
            }
            Op::Get { channel, index, .. } | Op::New { channel, index, .. } => {
                vars.all(index)?;
                let rank = launch.channels.get(*channel).map(|c| c.dims.len());
                if rank != Some(index.len()) {
                    let constant: Vec<i64> = index.iter().map(|i| i.constant).collect();
                    return Err(bad_index(launch, *channel, &constant));
                }
            }
            Op::Free { .. } | Op::Put { .. } => {}
            Op::Call {
                operands, scalars, ..
            } => {
                vars.all(scalars)?;
                for operand in operands {
                    if let Operand::Local(local) = *operand
                        && local >= n_locals
                    {
                        return Err(FlatDefect::NoSuch("local buffer", local, n_locals));
                    }
                }
            }
        }
    }
    Ok(())
}
