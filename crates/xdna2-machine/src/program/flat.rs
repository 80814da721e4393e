//! Elaboration: every bundle expanded, every name resolved.

mod check;
mod cores;
mod ports;

pub use check::{FlatDefect, FlatError};

use super::{Channel, Env, Herd, Indices, Launch, Place, Program, Stage, StageEnd, Transfer};
use check::fail;
use ports::column;
use std::collections::HashMap;

/// Largest number of copies in a launch of channels, stages, stage ends, transfers and cores, each. It is far above the
/// size of any array, and far below a number that would exhaust memory.
pub const MAX_COPIES: usize = 16_384;

/// A launch with every bundle expanded and every name resolved. Everything is in the order of the declarations, then of
/// the indices (last dimension fastest), so it is deterministic.
#[derive(Clone, Debug)]
pub struct Flat<'p> {
    /// The launch.
    pub launch: &'p Launch,
    /// Channels; a channel's id is its position.
    pub channels: Vec<FlatChannel<'p>>,
    /// Stages.
    pub stages: Vec<FlatStage<'p>>,
    /// Transfers, in the order in which they are queued on their shim channels.
    pub transfers: Vec<FlatTransfer<'p>>,
    /// Cores, herd by herd, the row `y` fastest.
    pub cores: Vec<FlatCore<'p>>,
    /// First flat channel of each bundle.
    bases: Vec<usize>,
    /// Core by column and row.
    at: HashMap<(u32, u32), usize>,
}

/// One channel.
#[derive(Clone, Debug)]
pub struct FlatChannel<'p> {
    /// Index in the launch's channels.
    pub bundle: usize,
    /// Index in the bundle.
    pub index: Vec<u32>,
    /// The declaration.
    pub decl: &'p Channel,
    /// Source of blocks.
    pub from: Port,
    /// Sinks of blocks, columns before rows; more than one is a broadcast.
    pub to: Vec<Port>,
}

/// One end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The shim tile of a column.
    Shim {
        /// Column.
        col: u32,
    },
    /// A stage on the memory tile of a column.
    Memory {
        /// Column.
        col: u32,
        /// Index in [`Flat::stages`].
        stage: usize,
        /// Index in the stage's drains (a source) or fills (a sink).
        end: usize,
    },
    /// A core.
    Core {
        /// Index in [`Flat::cores`].
        core: usize,
    },
}

/// One stage.
#[derive(Clone, Debug)]
pub struct FlatStage<'p> {
    /// Index in the launch's stages.
    pub bundle: usize,
    /// Index in the bundle.
    pub index: Vec<u32>,
    /// The declaration.
    pub decl: &'p Stage,
    /// Column of its memory tile.
    pub col: u32,
    /// Ends that write a block.
    pub fills: Vec<FlatEnd<'p>>,
    /// Ends that read it.
    pub drains: Vec<FlatEnd<'p>>,
}

/// One end of a stage. Its pattern is evaluated with the stage's index, `each` and the grid.
#[derive(Clone, Debug)]
pub struct FlatEnd<'p> {
    /// The declaration.
    pub decl: &'p StageEnd,
    /// Its number among the declaration's copies.
    pub each: u32,
    /// The channel's id.
    pub channel: usize,
}

/// One transfer: the tasks of all its loop iterations, at every grid point.
#[derive(Clone, Debug)]
pub struct FlatTransfer<'p> {
    /// The declaration.
    pub decl: &'p Transfer,
    /// Index in the bundle.
    pub index: Vec<u32>,
    /// The channel's id.
    pub channel: usize,
    /// Whether it reads DDR (the channel comes from a shim) or writes it.
    pub reads: bool,
}

/// One core.
#[derive(Clone, Debug)]
pub struct FlatCore<'p> {
    /// Index in the launch's herds.
    pub herd: usize,
    /// The declaration.
    pub decl: &'p Herd,
    /// Column in the herd.
    pub x: u32,
    /// Row in the herd.
    pub y: u32,
    /// Column of the array.
    pub col: u32,
    /// Row of the array, 0 next to the memory tiles.
    pub row: u32,
    /// Ids of the channels that end here, ascending.
    pub inputs: Vec<usize>,
    /// Ids of the channels that begin here, ascending.
    pub outputs: Vec<usize>,
}

impl Program {
    /// Every launch, flat. Also checks that launches name slots that exist.
    pub fn flatten(&self) -> Result<Vec<Flat<'_>>, FlatError> {
        self.launches
            .iter()
            .map(|launch| {
                if let Some(&slot) = launch.args.iter().find(|&&s| s >= self.slots.len()) {
                    let count = self.slots.len();
                    return fail(launch, "args", FlatDefect::NoSuch("slot", slot, count));
                }
                Flat::new(launch)
            })
            .collect()
    }
}

impl<'p> Flat<'p> {
    /// Expands a launch.
    ///
    /// # Errors
    /// A name that is defined twice, an index out of range or of the wrong rank, an expression
    /// that uses a variable not in scope, a place without a core, a channel end that no party or more than one party
    /// uses, a bundle beyond [`MAX_COPIES`].
    pub fn new(launch: &'p Launch) -> Result<Flat<'p>, FlatError> {
        check::names(launch)?;
        check::scopes(launch)?;
        let mut flat = Flat {
            launch,
            channels: Vec::new(),
            stages: Vec::new(),
            transfers: Vec::new(),
            cores: Vec::new(),
            bases: Vec::new(),
            at: HashMap::new(),
        };
        flat.bases(launch)?;
        flat.expand_cores()?;
        flat.expand_stages()?;
        flat.expand_transfers()?;
        flat.expand_channels()?;
        flat.link_cores();
        cores::check_uses(&flat)?;
        Ok(flat)
    }

    /// The id of a channel; `None` when the bundle, the rank or an index is out of range.
    pub fn channel_id(&self, bundle: usize, index: &[i64]) -> Option<usize> {
        let dims = &self.launch.channels.get(bundle)?.dims;
        if dims.len() != index.len() {
            return None;
        }
        let mut position = 0;
        for (&size, &i) in dims.iter().zip(index) {
            let i = u32::try_from(i).ok().filter(|&i| i < size)?;
            position = position * size as usize + i as usize;
        }
        Some(self.bases[bundle] + position)
    }

    /// `name[index]` of a channel, for messages.
    pub fn channel_name(&self, id: usize) -> String {
        let channel = &self.channels[id];
        indexed(&channel.decl.name, &channel.index)
    }

    /// `name[index]` of a stage, for messages.
    pub fn stage_name(&self, stage: usize) -> String {
        let stage = &self.stages[stage];
        indexed(&stage.decl.name, &stage.index)
    }

    /// `herd(x, y)` of a core, for messages.
    pub fn core_name(&self, core: usize) -> String {
        let core = &self.cores[core];
        format!("{}({}, {})", core.decl.name, core.x, core.y)
    }

    fn bases(&mut self, launch: &Launch) -> Result<(), FlatError> {
        let mut total = 0;
        for channel in &launch.channels {
            self.bases.push(total);
            total += check::copies(launch, &channel.name, &channel.dims, total)?;
        }
        Ok(())
    }

    fn expand_cores(&mut self) -> Result<(), FlatError> {
        let launch = self.launch;
        for (number, herd) in launch.herds.iter().enumerate() {
            check::copies(
                launch,
                &herd.name,
                &[herd.cols, herd.rows],
                self.cores.len(),
            )?;
            for at in Indices::new(&[herd.cols, herd.rows]) {
                let (col, row) = (herd.col.checked_add(at[0]), herd.row.checked_add(at[1]));
                let (Some(col), Some(row)) = (col, row) else {
                    return fail(
                        launch,
                        &herd.name,
                        FlatDefect::Place(i64::from(u32::MAX) + 1),
                    );
                };
                if let Some(other) = self.core_at(col, row) {
                    let other = self.cores[other].decl.name.clone();
                    return fail(
                        launch,
                        &herd.name,
                        FlatDefect::CoreTaken { col, row, other },
                    );
                }
                self.at.insert((col, row), self.cores.len());
                self.cores.push(FlatCore {
                    herd: number,
                    decl: herd,
                    x: at[0],
                    y: at[1],
                    col,
                    row,
                    inputs: Vec::new(),
                    outputs: Vec::new(),
                });
            }
        }
        Ok(())
    }

    fn core_at(&self, col: u32, row: u32) -> Option<usize> {
        self.at.get(&(col, row)).copied()
    }

    fn expand_stages(&mut self) -> Result<(), FlatError> {
        let launch = self.launch;
        let mut n_ends = 0;
        for (bundle, stage) in launch.stages.iter().enumerate() {
            check::copies(launch, &stage.name, &stage.dims, self.stages.len())?;
            for index in Indices::new(&stage.dims) {
                let name = || indexed(&stage.name, &index);
                let env = Env {
                    index: &index,
                    ..Env::default()
                };
                let col = column(stage.col.at(&env)).or_else(|p| fail(launch, &name(), p))?;
                let mut ends = [Vec::new(), Vec::new()];
                for (ends, decls) in ends.iter_mut().zip([&stage.fills, &stage.drains]) {
                    for decl in decls {
                        n_ends += check::copies(launch, &stage.name, &[decl.each], n_ends)?;
                        for each in 0..decl.each {
                            let env = Env { each, ..env };
                            let channel = self
                                .resolve(decl.channel, &decl.index, &env)
                                .or_else(|p| fail(launch, &name(), p))?;
                            ends.push(FlatEnd {
                                decl,
                                each,
                                channel,
                            });
                        }
                    }
                }
                let [fills, drains] = ends;
                self.stages.push(FlatStage {
                    bundle,
                    index,
                    decl: stage,
                    col,
                    fills,
                    drains,
                });
            }
        }
        Ok(())
    }

    fn expand_transfers(&mut self) -> Result<(), FlatError> {
        let launch = self.launch;
        for (number, decl) in launch.transfers.iter().enumerate() {
            let name = format!("transfer {number}");
            check::copies(launch, &name, &decl.dims, self.transfers.len())?;
            for index in Indices::new(&decl.dims) {
                let env = Env {
                    index: &index,
                    ..Env::default()
                };
                let place = || indexed(&name, &index);
                let channel = self
                    .resolve(decl.channel, &decl.index, &env)
                    .or_else(|p| fail(launch, &place(), p))?;
                let bundle = &launch.channels[decl.channel];
                let reads = matches!(bundle.from, Place::Shim(_));
                if !reads && !matches!(bundle.to, Place::Shim(_)) {
                    let problem = FlatDefect::NotAtShim(indexed(&bundle.name, &[]));
                    return fail(launch, &place(), problem);
                }
                self.transfers.push(FlatTransfer {
                    decl,
                    index,
                    channel,
                    reads,
                });
            }
        }
        Ok(())
    }

    /// The channel that a bundle's index names at a point.
    fn resolve(
        &self,
        bundle: usize,
        index: &[super::Affine],
        env: &Env<'_>,
    ) -> Result<usize, FlatDefect> {
        let values: Vec<i64> = index.iter().map(|i| i.at(env)).collect();
        self.channel_id(bundle, &values)
            .ok_or_else(|| check::bad_index(self.launch, bundle, &values))
    }
}

/// `name[1, 2]`, or the name alone if there is no index.
pub fn indexed(name: &str, index: &[u32]) -> String {
    match index {
        [] => name.to_owned(),
        _ => format!("{name}{index:?}"),
    }
}

#[cfg(test)]
mod tests;
