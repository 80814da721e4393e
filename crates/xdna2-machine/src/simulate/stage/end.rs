//! An end of a stage: where a fill or a drain is.

use std::collections::VecDeque;

use crate::program::{Env, FlatEnd, Pattern, Var};
use crate::simulate::context::{LaunchContext, Trouble, coordinates, motion};
use crate::simulate::fault::Site;
use crate::simulate::motion::Motion;

/// A fill or a drain: one DMA channel.
#[derive(Debug)]
pub(super) struct DmaEnd {
    /// Number of the stage block it is at.
    pub(super) at: u64,
    /// Channel blocks moved of it.
    pub(super) moved: i64,
    pub(super) motion: Option<Motion>,
    /// The grid point that `motion` is for; any, where the pattern does not depend on it.
    pub(super) point: Option<u64>,
    pub(super) depends_on_grid: bool,
    /// For a drain: for each stage block made into channel blocks that have not all gone, the number of blocks sent
    /// when it ended.
    pub(super) unsettled: VecDeque<u64>,
}

/// Whether a pattern mentions the grid.
pub(super) fn depends_on_grid(pattern: &Pattern) -> bool {
    let mut expressions = pattern.dims.iter().map(|d| &d.0).chain([&pattern.offset]);
    expressions.any(|e| e.terms.iter().any(|(var, _)| matches!(var, Var::Grid(_))))
}

impl DmaEnd {
    pub(super) fn new(end: &FlatEnd<'_>) -> DmaEnd {
        DmaEnd {
            at: 0,
            moved: 0,
            motion: None,
            point: None,
            depends_on_grid: depends_on_grid(&end.decl.pattern),
            unsettled: VecDeque::new(),
        }
    }

    /// Number of the oldest stage block that the end still needs.
    pub(super) fn oldest(&self) -> u64 {
        self.at - self.unsettled.len() as u64
    }

    /// The motion at a grid point.
    pub(super) fn motion_at(
        &mut self,
        point: u64,
        stage: &StageGeometry,
        end: &FlatEnd<'_>,
        ctx: &LaunchContext<'_>,
    ) -> Result<&Motion, Trouble> {
        if self.motion.is_none() || (self.depends_on_grid && self.point != Some(point)) {
            let grid = coordinates(ctx.flat.launch, point);
            let flat = &ctx.flat.stages[stage.number];
            let env = Env {
                grid: &grid,
                index: &flat.index,
                each: end.each,
                ..Env::default()
            };
            let size = (stage.element_bytes, stage.n_elements);
            let made = motion(&end.decl.pattern, &env, ctx.flat, end.channel, size);
            let made = made.map_err(|problem| Trouble {
                place: format!(
                    "stage {}, channel {}",
                    ctx.flat.stage_name(stage.number),
                    ctx.flat.channel_name(end.channel)
                ),
                site: Site::default(),
                point: Some(grid.clone()),
                problem,
            })?;
            self.motion = Some(made);
            self.point = Some(point);
        }
        let name = || ctx.flat.stage_name(stage.number);
        (self.motion.as_ref()).ok_or_else(|| Trouble::at(name(), "no motion"))
    }
}

/// Properties of a stage that motions need.
#[derive(Clone, Copy)]
pub(super) struct StageGeometry {
    pub(super) number: usize,
    pub(super) element_bytes: u64,
    pub(super) n_elements: u64,
}
