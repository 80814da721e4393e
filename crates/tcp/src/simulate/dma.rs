//! DMA: copies, gathers and scatters between HBM and the chip.

use super::array::{Array, Loop, Nest, layout_table, own_axis};
use super::{Chip, SimulationResult};
use crate::Element;
use crate::axes::DigitLayout;
use crate::program::{Dma, IndexedAxis, Program, Side, View};
use crate::verify::{dma_region, start};

/// One side of a move: the places of indices of axes.
enum IndexPlace<'a> {
    Hbm(DigitLayout),
    Chip(&'a Array),
}

impl IndexPlace<'_> {
    fn table(&self, axis: usize, start: u64, extent: u64) -> Vec<usize> {
        match self {
            IndexPlace::Hbm(layout) => layout_table(layout, axis, start, extent),
            IndexPlace::Chip(array) => array.table(axis, start, extent),
        }
    }
}

/// The source and the destination of a move.
struct MoveEnds<'a> {
    program: &'a Program,
    views: [&'a View; 2],
    places: [IndexPlace<'a>; 2],
}

impl MoveEnds<'_> {
    /// Offsets of `extent` indices of an axis at both ends, from the index `first` of the move on.
    fn run(&self, axis: usize, first: u64, extent: u64) -> Loop {
        let at = |end: usize| {
            let view = self.views[end];
            let own = own_axis(axis, &view.renames, &self.program.axes);
            self.places[end].table(own, start(self.program, view, axis) + first, extent)
        };
        (at(0), at(1))
    }

    /// The nest over whole axes.
    fn plain(&self, shape: &[(usize, u64)]) -> Nest {
        let loops = shape
            .iter()
            .map(|&(axis, extent)| self.run(axis, 0, extent));
        let mut nest = Nest {
            loops: loops.collect(),
        };
        nest.sort();
        nest
    }

    /// Where both ends begin along axes that are not moved.
    fn base(&self, shape: &[(usize, u64)]) -> Loop {
        let axes = &self.program.axes;
        let at = |end: usize| -> usize {
            let view = self.views[end];
            let outside = view.offsets.iter().filter_map(|(name, first)| {
                let axis = axes.id(name).ok()?;
                let moved = shape
                    .iter()
                    .any(|&(a, _)| own_axis(a, &view.renames, axes) == axis);
                (!moved).then(|| self.places[end].table(axis, *first, 1)[0])
            });
            outside.sum()
        };
        (vec![at(0)], vec![at(1)])
    }
}

impl Chip<'_> {
    pub(super) fn dma(&mut self, dma: &Dma) -> SimulationResult<()> {
        let region = dma_region(self.program, dma).map_err(|(_, message)| (None, message))?;
        let nests = self.nests(dma, &region.shape)?;
        let element = self.program.tensors[dma.from.tensor].element;
        let n: usize = region.shape.iter().map(|r| r.1 as usize).product();
        let bytes = element.bytes(n as u64);
        let (from, to) = (dma.from.tensor, dma.to.tensor);
        if self.slot_of[from].is_some() {
            self.counters.hbm_read_bytes += bytes;
        }
        if self.slot_of[to].is_some() {
            self.counters.hbm_written_bytes += bytes;
        }
        match (self.slot_of[from], self.slot_of[to]) {
            (Some(slot), None) => {
                let source = std::mem::take(&mut self.slots[slot]);
                let outcome = self.written(to, n).map(|array| {
                    load(element, &source, array, &nests);
                });
                self.slots[slot] = source;
                outcome
            }
            (None, Some(slot)) => {
                let mut target = std::mem::take(&mut self.slots[slot]);
                let outcome = self.array(from).map(|array| {
                    store(element, array, &mut target, &nests);
                });
                self.slots[slot] = target;
                outcome
            }
            (None, None) => {
                let source = self.array(from)?.clone();
                let target = self.written(to, n)?;
                for nest in &nests {
                    nest.runs(|l, r, n| {
                        target.data[r..r + n].copy_from_slice(&source.data[l..l + n]);
                    });
                }
                Ok(())
            }
            (Some(a), Some(b)) => {
                let source = self.slots[a].clone();
                let target = &mut self.slots[b];
                let mut value = [0.0];
                for nest in &nests {
                    nest.runs(|l, r, n| {
                        for i in 0..n {
                            element.decode(&source, l + i, &mut value);
                            element.encode(value[0], target, r + i);
                        }
                    });
                }
                Ok(())
            }
        }
    }

    fn place(&self, view: &View) -> SimulationResult<IndexPlace<'_>> {
        match self.slot_of[view.tensor] {
            Some(_) => {
                let mapping = self.program.tensors[view.tensor].layout();
                let layout = DigitLayout::of(mapping, &self.program.axes);
                let layout = layout.map_err(|error| (Some(view.tensor), error.to_string()))?;
                Ok(IndexPlace::Hbm(layout))
            }
            None => match &self.arrays[view.tensor] {
                Some(array) => Ok(IndexPlace::Chip(array)),
                None => Err((
                    Some(view.tensor),
                    "it is read before it is written".to_owned(),
                )),
            },
        }
    }

    /// The loop nests of a move: one, or one for each index that is looked up.
    fn nests(&mut self, dma: &Dma, shape: &[(usize, u64)]) -> SimulationResult<Vec<Nest>> {
        if self.slot_of[dma.to.tensor].is_none() {
            let n = shape.iter().map(|(_, extent)| *extent as usize).product();
            self.written(dma.to.tensor, n)?;
        }
        let sides = [&dma.from, &dma.to];
        let ends = MoveEnds {
            program: self.program,
            views: sides,
            places: [self.place(sides[0])?, self.place(sides[1])?],
        };
        let base = ends.base(shape);
        match &dma.indexed {
            None => {
                let mut nest = ends.plain(shape);
                nest.loops.insert(0, base);
                Ok(vec![nest])
            }
            Some(indexed) => self.indexed_nests(&ends, indexed, shape, &base),
        }
    }

    /// A loop nest for each index that is looked up.
    fn indexed_nests(
        &self,
        ends: &MoveEnds<'_>,
        indexed: &IndexedAxis,
        shape: &[(usize, u64)],
        base: &Loop,
    ) -> SimulationResult<Vec<Nest>> {
        let axes = &self.program.axes;
        let looked_up = axes.id(&indexed.axis).map_err(|e| (None, e.to_string()))?;
        let side = match indexed.side {
            Side::From => 0,
            Side::To => 1,
        };
        let (table_view, table_place) = (ends.views[side], &ends.places[side]);
        let extent = self.program.tensors[table_view.tensor].shape(axes);
        let extent = extent.map_err(|error| (Some(table_view.tensor), error.to_string()))?;
        let own = own_axis(looked_up, &table_view.renames, axes);
        let extent = extent.iter().find(|(a, _)| *a == own).map_or(1, |a| a.1);
        let indices = self.indices(indexed.index)?;
        let rest: Vec<(usize, u64)> = (shape.iter().copied())
            .filter(|(axis, _)| !indices.shape.iter().any(|(a, _)| a == axis))
            .collect();
        let mut nests = Vec::new();
        for (flat, &index) in indices.data.iter().enumerate() {
            if !(index >= 0.0 && index < extent as f32) {
                let message = format!("index {index} where `{}` has {extent}", indexed.axis);
                return Err((Some(indexed.index), message));
            }
            let mut loops = vec![base.clone()];
            for &(axis, n) in &indices.shape {
                let at = (flat / indices.step(axis) % n as usize) as u64;
                loops.push(ends.run(axis, at, 1));
            }
            let at = table_place.table(own, index as u64, 1);
            loops.push(match indexed.side {
                Side::From => (at, vec![0]),
                Side::To => (vec![0], at),
            });
            loops.extend(ends.plain(&rest).loops);
            nests.push(Nest { loops });
        }
        Ok(nests)
    }

    /// The indices of a tensor in HBM, as an array.
    fn indices(&self, tensor: usize) -> SimulationResult<Array> {
        let broken = |error: crate::axes::AxesError| (Some(tensor), error.to_string());
        let axes = &self.program.axes;
        let mut array = Array::new(self.program.tensors[tensor].shape(axes).map_err(broken)?);
        let layout =
            DigitLayout::of(self.program.tensors[tensor].layout(), axes).map_err(broken)?;
        let slot = self.slot_of[tensor].ok_or((Some(tensor), "not in HBM".to_owned()))?;
        let loops = array.shape.iter().map(|&(axis, extent)| {
            (
                layout_table(&layout, axis, 0, extent),
                array.table(axis, 0, extent),
            )
        });
        let mut nest = Nest {
            loops: loops.collect(),
        };
        nest.sort();
        load(Element::I32, &self.slots[slot], &mut array, &[nest]);
        Ok(array)
    }
}

fn load(element: Element, source: &[u8], array: &mut Array, nests: &[Nest]) {
    for nest in nests {
        nest.runs(|l, r, n| element.decode(source, l, &mut array.data[r..r + n]));
    }
}

fn store(element: Element, array: &Array, target: &mut [u8], nests: &[Nest]) {
    for nest in nests {
        nest.runs(|l, r, n| {
            for i in 0..n {
                element.encode(array.data[l + i], target, r + i);
            }
        });
    }
}
