//! Moves by tensor DMA.

use super::module::{ExportResult, Module};
use super::spelling::size;
use super::views::{Extents, extent};
use crate::axes::Mapping;
use crate::program::{Dma, Engine, IndexedAxis, Place, Side};

const TDMA: &str = "&mut device.tdma";

impl Module<'_> {
    pub(super) fn dma(&mut self, dma: &Dma) -> ExportResult<()> {
        if dma.engine == Engine::Pdma {
            return Err("moves between chips are not printed".to_owned());
        }
        if let Some(indexed) = &dma.indexed {
            return self.gather(dma, indexed);
        }
        let (from, to) = (self.extents(&dma.from)?, self.extents(&dma.to)?);
        let both: Extents = from
            .iter()
            .map(|(axis, n)| (axis.clone(), (*n).min(extent(&to, axis))))
            .collect();
        let is_hbm =
            |tensor: usize| matches!(self.program.tensors[tensor].place, Place::Hbm { .. });
        let (from_hbm, to_hbm) = (is_hbm(dma.from.tensor), is_hbm(dma.to.tensor));
        let source = self.view(&dma.from, &both, None, false)?;
        if from_hbm && !to_hbm && !self.in_parts(&dma.to) {
            let (name, ty) = (self.name(dma.to.tensor), self.dm_type(dma.to.tensor));
            let mappings = self.dm_mappings(dma.to.tensor);
            self.out.push_str(&format!(
                "    let {name}: {ty} = {}\n        .to_dm::<{mappings}>({TDMA});\n",
                source.text
            ));
            return Ok(());
        }
        if !to_hbm {
            self.declare(dma.to.tensor);
        }
        let target = self.view(&dma.to, &both, None, true)?;
        let call = match (from_hbm, to_hbm) {
            (_, false) => "to_dm_view",
            (false, true) => "to_hbm_view",
            (true, true) => return Err("a move within the chip's memory".to_owned()),
        };
        self.out.push_str(&format!(
            "    {}\n        .{call}({TDMA}, {});\n",
            source.text, target.text
        ));
        Ok(())
    }

    /// Rows that an index names. The vendor's index holds byte offsets.
    fn gather(&mut self, dma: &Dma, indexed: &IndexedAxis) -> ExportResult<()> {
        let table = &self.program.tensors[dma.from.tensor];
        let is_plain = dma.from.offsets.is_empty() && dma.from.renames.is_empty();
        if indexed.side != Side::From || !is_plain || self.in_parts(&dma.to) {
            return Err(format!(
                "`{}` is neither a gather of whole rows nor a move",
                dma.name
            ));
        }
        let payload = self.without(table.layout(), &indexed.axis)?;
        let (name, ty) = (self.name(dma.to.tensor), self.dm_type(dma.to.tensor));
        self.out.push_str(&format!(
            "    // The index holds byte offsets into the table.\n    let {name}: {ty} = {}\n        \
             .gather::<{}, {payload}>()\n        .by_byte_offsets({})\n        .to_dm::<{}>({TDMA});\n",
            self.name(dma.from.tensor),
            Mapping::axis(&indexed.axis),
            self.name(indexed.index),
            self.dm_mappings(dma.to.tensor)
        ));
        Ok(())
    }

    /// A table's layout without an axis, and without factors of size 1.
    fn without(&self, layout: &Mapping, axis: &str) -> ExportResult<Mapping> {
        Ok(match layout {
            Mapping::Symbol(name) if name == axis => Mapping::one(),
            Mapping::Pair(outer, inner) => {
                self.without(outer, axis)?.then(self.without(inner, axis)?)
            }
            other if size(other, &self.program.axes)? == 1 => Mapping::one(),
            other => other.clone(),
        })
    }
}
