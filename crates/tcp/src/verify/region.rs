//! Region of a DMA move: axes and extents, and the start on both sides.

use super::Rule;
use crate::Element;
use crate::axes::Shape;
use crate::flow::stream_renamed_shape;
use crate::program::{Dma, IndexedAxis, Place, Program, Side, View};

/// The values that a move carries, under the names that the command gives its axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmaRegion {
    /// Axes and extents.
    pub shape: Shape,
    /// Axis of the source or the destination that is indexed.
    pub indexed: Option<usize>,
}

type RegionResult<T> = Result<T, (Rule, String)>;

fn shape_of(program: &Program, view: &View) -> RegionResult<Shape> {
    let tensor = program.tensors.get(view.tensor);
    let tensor = tensor.ok_or_else(|| (Rule::Place, "no such tensor".to_owned()))?;
    let broken = |error: crate::axes::AxesError| (Rule::Mapping, error.to_string());
    let shape = tensor.shape(&program.axes).map_err(broken)?;
    stream_renamed_shape(shape, &view.renames, &program.axes).map_err(broken)
}

/// Start of a view along an axis of the command.
pub(crate) fn start(program: &Program, view: &View, axis: usize) -> u64 {
    let name = program.axes.get(axis).0;
    let own = view.renames.iter().find(|(_, to)| to == name);
    let own = own.map_or(name, |(from, _)| from.as_str());
    let offset = view.offsets.iter().find(|(axis, _)| axis == own);
    offset.map_or(0, |(_, start)| *start)
}

/// The region of a move.
///
/// # Errors
/// The rule it breaks, and how.
pub(crate) fn dma_region(program: &Program, dma: &Dma) -> RegionResult<DmaRegion> {
    let (from, to) = (shape_of(program, &dma.from)?, shape_of(program, &dma.to)?);
    let (a, b) = (
        &program.tensors[dma.from.tensor],
        &program.tensors[dma.to.tensor],
    );
    if a.element != b.element {
        let message = format!("`{}` is {}, `{}` {}", a.name, a.element, b.name, b.element);
        return Err((Rule::Elements, message));
    }
    for view in [&dma.from, &dma.to] {
        for (axis, _) in &view.offsets {
            let known = program.axes.id(axis);
            known.map_err(|error| (Rule::Mapping, error.to_string()))?;
        }
    }
    match &dma.indexed {
        None => plain_region(program, dma, (from, to)),
        Some(indexed) => indexed_region(program, dma, indexed, (from, to)),
    }
}

/// Region of a move without an indexed axis: the smaller of the two sides.
fn plain_region(
    program: &Program,
    dma: &Dma,
    (from, to): (Shape, Shape),
) -> RegionResult<DmaRegion> {
    let shape = match (dma.from.offsets.is_empty(), dma.to.offsets.is_empty()) {
        // A part may begin at 0: the smaller side is moved.
        (true, true) if fits(program, &dma.from, &from, &to).is_err() => from.clone(),
        (_, true) => to.clone(),
        (true, false) => from.clone(),
        (false, false) => {
            let message = "both sides begin elsewhere: one has to be a whole tensor";
            return Err((Rule::Region, message.to_owned()));
        }
    };
    fits(program, &dma.from, &from, &shape)?;
    fits(program, &dma.to, &to, &shape)?;
    Ok(DmaRegion {
        shape,
        indexed: None,
    })
}

/// Region of a move with an indexed axis on one side: the other side.
fn indexed_region(
    program: &Program,
    dma: &Dma,
    indexed: &IndexedAxis,
    (from, to): (Shape, Shape),
) -> RegionResult<DmaRegion> {
    let axis = program.axes.id(&indexed.axis);
    let axis = axis.map_err(|error| (Rule::Index, error.to_string()))?;
    let index = index_shape(program, indexed.index)?;
    let (shape, table, view) = match indexed.side {
        Side::From => (to, from, &dma.from),
        Side::To => (from, to, &dma.to),
    };
    if !table.iter().any(|&(a, _)| a == axis) && program.axes.get(axis).1 > 1 {
        let message = format!("the indexed side has no axis `{}`", indexed.axis);
        return Err((Rule::Index, message));
    }
    if shape.iter().any(|&(a, _)| a == axis) {
        let message = format!(
            "axis `{}` is indexed, the other side has it too",
            indexed.axis
        );
        return Err((Rule::Index, message));
    }
    if !index.iter().all(|axis| shape.contains(axis)) {
        let message = "the indices have axes that the move lacks".to_owned();
        return Err((Rule::Index, message));
    }
    let rest: Shape = (shape.iter().copied())
        .filter(|(a, _)| table.iter().any(|(b, _)| a == b) || !index.iter().any(|(b, _)| a == b))
        .collect();
    let table: Shape = table.into_iter().filter(|(a, _)| *a != axis).collect();
    fits(program, view, &table, &rest)?;
    Ok(DmaRegion {
        shape,
        indexed: Some(axis),
    })
}

fn index_shape(program: &Program, index: usize) -> RegionResult<Shape> {
    let Some(tensor) = program.tensors.get(index) else {
        return Err((Rule::Index, "no such tensor".to_owned()));
    };
    let is_index = tensor.element == Element::I32 && matches!(tensor.place, Place::Hbm { .. });
    if !is_index {
        let message = format!("`{}` is not a tensor of i32 in HBM", tensor.name);
        return Err((Rule::Index, message));
    }
    let shape = tensor.shape(&program.axes);
    shape.map_err(|error| (Rule::Mapping, error.to_string()))
}

/// Whether one side holds the region from its start on.
fn fits(program: &Program, view: &View, own: &Shape, region: &Shape) -> RegionResult<()> {
    let name = &program.tensors[view.tensor].name;
    let bad = |axis: usize, asked: u64, held: u64| {
        let axis = program.axes.get(axis).0;
        let message = format!("axis `{axis}`: {asked} indices are moved, `{name}` holds {held}");
        Err((Rule::Region, message))
    };
    for &(axis, extent) in region {
        let held = own.iter().find(|(a, _)| *a == axis).map_or(1, |(_, n)| *n);
        let end = start(program, view, axis).saturating_add(extent);
        if end > held {
            return bad(axis, end, held);
        }
    }
    for &(axis, held) in own {
        let is_moved = region.iter().any(|(a, _)| *a == axis);
        if !is_moved && start(program, view, axis) >= held {
            return bad(axis, 1, held);
        }
    }
    Ok(())
}
