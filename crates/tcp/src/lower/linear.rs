//! Products with weights: held tokens past which weights stream, or held weights past which tokens stream.

mod cut;
mod scales;
mod tokens;

use super::builder::{Builder, Lane, ax, copies, digit, fetch, inner, list, outer, padded, spread};
use super::rows::{ActivationRows, Width};
use super::{LowerError, Weights};
use crate::Element;
use crate::axes::Mapping;
use crate::program::{LaneMode, Stage, TensorSharding, Topology, View};

pub(super) use tokens::Factor;

/// A weight matrix in HBM.
#[derive(Clone, Debug)]
pub(super) struct HbmLinear {
    /// Its tensor.
    pub tensor: usize,
    /// A scale a row, where its elements have one.
    pub scale: Option<usize>,
    /// In data memory, a scale a token, where activations have one.
    pub of_tokens: Option<usize>,
    /// Rows.
    pub n: Width,
    /// Columns.
    pub k: Width,
    /// How it is stored and multiplied.
    pub weights: Weights,
    /// Element of the committed results.
    pub result: Element,
    /// Slices over which a row has to be spread; otherwise the fewest that do.
    pub ring: Option<u64>,
    /// For rows in parts: their axis, and the part that is multiplied.
    pub part: Option<(String, u64)>,
}

impl HbmLinear {
    /// Rows from that index of their outermost axis on.
    fn rows_from(&self, axis: &str, start: u64) -> View {
        let view = View::of(self.tensor).from(axis, start);
        match &self.part {
            Some((axis, part)) => view.from(axis, *part),
            None => view,
        }
    }
}

/// How a product is cut.
#[derive(Clone, Debug)]
pub(super) struct LinearSplit {
    /// Slices over which a row of weights is spread.
    pub r: u64,
    /// Columns of one of them.
    k_s: u64,
    /// Elements of a packet.
    packet: u64,
    /// Indices of the rows' outermost axis in a tile of data memory.
    count: u64,
    /// Tiles of data memory.
    pub n_tiles: u64,
    /// Rows of a lane that are held, where tokens stream.
    n2: u64,
    /// Rows of one kernel.
    rows: u64,
}

/// Tokens held in registers for the products that follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResidentTokens {
    trf: usize,
    k_s: u64,
}

/// A tile of results.
#[derive(Clone, Debug)]
pub(super) struct ResultTile {
    pub tensor: usize,
    pub spread: TensorSharding,
    pub layout: Mapping,
    /// Order of its flits.
    pub time: Mapping,
    pub packet: Mapping,
    /// Where it begins along the rows' axes.
    pub start: Vec<(String, u64)>,
}

impl ResultTile {
    pub(super) fn view_of(&self, tensor: usize) -> View {
        let start = self.start.iter();
        start.fold(View::of(tensor), |view, (axis, at)| view.from(axis, *at))
    }
}

impl Builder<'_> {
    /// Puts held tokens into registers.
    pub(super) fn hold(
        &mut self,
        x: &ActivationRows,
        cut: &LinearSplit,
    ) -> Result<ResidentTokens, LowerError> {
        let machine = self.target.machine;
        let (tokens, n, k) = (self.tokens(), self.n_tokens(), x.width.size());
        let lanes = n.min(machine.lanes);
        let groups = machine.slices / cut.r;
        let kx = &x.width.mapping;
        let slice = list([copies(groups), outer(kx, k, cut.k_s)]);
        let held = spread(copies(machine.clusters), slice.clone());
        let (lane, high) = (inner(&tokens, n, lanes), outer(&tokens, n, lanes));
        let own = inner(kx, k, cut.k_s);
        let trf = self.trf("x_t", x.element, &held, lane, list([high, own.clone()]))?;
        let flit = x
            .per
            .min(machine.flit_bytes * 8 / x.element.bits())
            .min(cut.k_s);
        // A flit ends where a slice's columns end.
        let flit = (1..=flit)
            .rev()
            .find(|f| x.per.is_multiple_of(*f) && cut.k_s.is_multiple_of(*f));
        let flit = flit.unwrap_or(1);
        let part = inner(kx, k, x.per);
        let packet = inner(kx, k, flit);
        let before = list([tokens.clone(), outer(&part, x.per, flit)]);
        let after = list([tokens, outer(&own, cut.k_s, flit)]);
        self.sub(
            "hold_x",
            vec![
                Stage::Fetch {
                    view: View::of(x.tensor),
                    with: None,
                    cast: None,
                    time: before,
                    packet: packet.clone(),
                },
                Stage::Switch {
                    topology: Topology::CustomBroadcast,
                    slice,
                    time: after.clone(),
                },
                Stage::Collect {
                    time: after,
                    packet,
                },
                Stage::ToRegisters { tensor: trf },
            ],
        );
        Ok(ResidentTokens { trf, k_s: cut.k_s })
    }

    /// The results of one tile of weights, as `element`, each tile of at most a kernel's rows.
    pub(super) fn tile(
        &mut self,
        x: &ActivationRows,
        held: Option<ResidentTokens>,
        linear: &HbmLinear,
        cut: &LinearSplit,
        number: u64,
    ) -> Result<Vec<ResultTile>, LowerError> {
        let (name, size) = linear.n.axes[0].clone();
        let outermost = match cut.count == size {
            true => ax(&name),
            false => ax(&name).resize(cut.count),
        };
        let rest = linear.n.axes[1..].iter().map(|(name, _)| ax(name));
        let rows = Mapping::product([outermost].into_iter().chain(rest));
        let start = number * cut.count;
        match held {
            Some(held) => {
                let tile = self.held_tile(held, linear, cut, rows, start)?;
                Ok(vec![tile])
            }
            None => self.streamed_tile(x, linear, cut, rows, start),
        }
    }

    fn held_tile(
        &mut self,
        held: ResidentTokens,
        linear: &HbmLinear,
        cut: &LinearSplit,
        rows: Mapping,
        start: u64,
    ) -> Result<ResultTile, LowerError> {
        let machine = self.target.machine;
        let name = linear.n.axes[0].0.clone();
        let (k, kx, k_s) = (linear.k.size(), &linear.k.mapping, held.k_s);
        let groups = machine.slices / cut.r;
        let low = cut.rows.div_ceil(machine.clusters * groups);
        let total = machine.clusters * groups * low;
        let rows = padded(rows, cut.rows, total);
        let cluster = digit(&rows, total, groups * low, machine.clusters);
        let group = digit(&rows, total, low, groups);
        let own = digit(&rows, total, 1, low);
        let part = inner(kx, k, k_s);
        let at = spread(cluster.clone(), list([group.clone(), outer(kx, k, k_s)]));
        let stored = linear.weights.stored();
        let w = self.weights(stored, &at, list([own.clone(), part.clone()]))?;
        let from = linear.rows_from(&name, start);
        self.copy("load_w", Lane::Weights, from, View::of(w));
        let out = spread(cluster, list([group, copies(cut.r)]));
        let (tokens, n) = (self.tokens(), self.n_tokens());
        let lanes = n.min(machine.lanes);
        let high = outer(&tokens, n, lanes);
        let lane = padded(inner(&tokens, n, lanes), lanes, 8);
        let time = list([own.clone(), high.clone()]);
        let layout = list([time.clone(), lane.clone()]);
        let y = self.dm("y", linear.result, &out, layout.clone())?;
        let scale = self.row_scale(linear, &out, &own, &name, start)?;
        let mut stages = self.weight_stream(w, linear, &own, &part, k_s);
        stages.extend([
            Stage::Outer {
                trf: held.trf,
                time: list([own.clone(), outer(&part, k_s, cut.packet), high]),
                packet: inner(kx, k, cut.packet),
            },
            Stage::Packet {
                packet: Mapping::one(),
            },
            Stage::Time { time: time.clone() },
            Stage::Lane {
                mode: LaneMode::Interleaved,
                time: time.clone(),
                packet: lane.clone(),
            },
        ]);
        self.finish(stages, linear, cut, (&out, scale), y)?;
        Ok(ResultTile {
            tensor: y,
            spread: out,
            layout,
            time,
            packet: lane,
            start: vec![(name, start)],
        })
    }

    /// Fetch and collect of a tile of weights.
    fn weight_stream(
        &self,
        w: usize,
        linear: &HbmLinear,
        own: &Mapping,
        part: &Mapping,
        k_s: u64,
    ) -> Vec<Stage> {
        let factor = linear.weights.factor();
        let flit = (self.target.machine.flit_bytes * 8 / factor.bits()).min(k_s);
        let cast = (linear.weights.stored() != factor).then_some(factor);
        let time = list([own.clone(), outer(part, k_s, flit)]);
        let packet = inner(part, k_s, flit);
        Vec::from(fetch(View::of(w), cast, time, packet))
    }

    fn streamed_tile(
        &mut self,
        x: &ActivationRows,
        linear: &HbmLinear,
        cut: &LinearSplit,
        rows: Mapping,
        start: u64,
    ) -> Result<Vec<ResultTile>, LowerError> {
        let machine = self.target.machine;
        let name = linear.n.axes[0].0.clone();
        let unit = linear.n.size() / linear.n.axes[0].1;
        let (k, kx, k_s) = (linear.k.size(), &linear.k.mapping, cut.k_s);
        let groups = machine.slices / cut.r;
        let (lanes, n2) = (machine.lanes, cut.n2);
        let n_kernels = (cut.count * unit).div_ceil(cut.rows);
        let total = n_kernels * cut.rows;
        let rows = padded(rows, cut.count * unit, total);
        let part = inner(kx, k, k_s);
        let at = |low, count| digit(&rows, total, low, count);
        let cluster = at(groups * lanes * n2, machine.clusters);
        let group = at(lanes * n2, groups);
        let (second, lane) = (at(lanes, n2), at(1, lanes));
        let slice = list([group.clone(), outer(kx, k, k_s)]);
        let spread_w = spread(cluster.clone(), slice);
        let own = list([second.clone(), lane.clone()]);
        let layout = list([at(cut.rows, n_kernels), own.clone(), part.clone()]);
        let w = self.weights(linear.weights.stored(), &spread_w, layout)?;
        let from = linear.rows_from(&name, start);
        self.copy("load_w", Lane::Weights, from, View::of(w));
        let out = spread(cluster, list([group, copies(cut.r)]));
        let mut tiles = Vec::new();
        for kernel in 0..n_kernels {
            let first = kernel * cut.rows / unit;
            let layout = list([second.clone(), part.clone()]);
            let factor = linear.weights.factor();
            let held = self.trf_alternating("w_t", factor, &spread_w, (lane.clone(), layout))?;
            let mut stages = self.weight_stream(w, linear, &own, &part, k_s);
            if let Some(Stage::Fetch { view, .. }) = stages.first_mut() {
                *view = View::of(w).from(&name, first);
            }
            stages.push(Stage::ToRegisters { tensor: held });
            self.sub("hold_w", stages);
            let time = list([self.tokens(), second.clone()]);
            let layout = list([time.clone(), lane.clone()]);
            let y = self.dm("y", linear.result, &out, layout.clone())?;
            let scale = self.row_scale(linear, &out, &own, &name, start + first)?;
            let stages = self.token_stream(x, held, cut, (&second, &lane), &time);
            self.finish(stages, linear, cut, (&out, scale), y)?;
            tiles.push(ResultTile {
                tensor: y,
                spread: out.clone(),
                layout,
                time,
                packet: lane.clone(),
                start: vec![(name.clone(), start + first)],
            });
        }
        Ok(tiles)
    }

    /// Tokens at rest past held weights.
    fn token_stream(
        &self,
        x: &ActivationRows,
        held: usize,
        cut: &LinearSplit,
        (second, lane): (&Mapping, &Mapping),
        time: &Mapping,
    ) -> Vec<Stage> {
        let machine = self.target.machine;
        let (k, kx, k_s) = (x.width.size(), &x.width.mapping, cut.k_s);
        let groups = machine.slices / cut.r;
        let part = inner(kx, k, k_s);
        let flit = (machine.flit_bytes * 8 / x.element.bits()).min(k_s);
        let packet = inner(kx, k, flit);
        let after = list([self.tokens(), outer(&part, k_s, flit)]);
        vec![
            Stage::Fetch {
                view: View::of(x.tensor),
                with: None,
                cast: None,
                time: list([self.own_tokens(), outer(kx, k, flit)]),
                packet: packet.clone(),
            },
            Stage::Switch {
                topology: Topology::CustomBroadcast,
                slice: list([copies(groups), outer(kx, k, k_s)]),
                time: after.clone(),
            },
            Stage::Collect {
                time: after,
                packet,
            },
            Stage::Outer {
                trf: held,
                time: list([self.tokens(), outer(&part, k_s, cut.packet), second.clone()]),
                packet: inner(kx, k, cut.packet),
            },
            Stage::Packet {
                packet: Mapping::one(),
            },
            Stage::Time { time: time.clone() },
            Stage::Lane {
                mode: LaneMode::Interleaved,
                time: time.clone(),
                packet: lane.clone(),
            },
        ]
    }

    /// A whole product, brought to rest.
    pub(super) fn product(
        &mut self,
        stem: &str,
        x: &ActivationRows,
        held: Option<ResidentTokens>,
        linear: &HbmLinear,
    ) -> Result<ActivationRows, LowerError> {
        let cut = self.cut(linear)?;
        let out = self.rows(stem, Element::Bf16, &linear.n)?;
        for number in 0..cut.n_tiles {
            for tile in self.tile(x, held, linear, &cut, number)? {
                let to = tile.view_of(out.tensor);
                self.copy("rest", Lane::Others, View::of(tile.tensor), to);
                self.retire(tile.tensor);
            }
        }
        Ok(out)
    }

    /// Tokens in registers where they are held, for a product with that cut.
    pub(super) fn hold_for(
        &mut self,
        x: &ActivationRows,
        linear: &HbmLinear,
    ) -> Result<Option<ResidentTokens>, LowerError> {
        match self.is_held() {
            true => {
                let cut = self.cut(linear)?;
                self.hold(x, &cut).map(Some)
            }
            false => Ok(None),
        }
    }

    /// Where a product's sums meet, in words.
    pub(super) fn levels(&self, linear: &HbmLinear) -> Result<String, LowerError> {
        let cut = self.cut(linear)?;
        let ring = match cut.r {
            1 => String::new(),
            r => format!(" → slice (ring of {r})"),
        };
        let held = match self.is_held() {
            true => "tokens held, weights streamed",
            false => "weights held, tokens streamed",
        };
        let tiles = match cut.n_tiles {
            1 => "1 tile".to_owned(),
            n => format!("{n} tiles"),
        };
        Ok(format!(
            "reduce: packet ({}) → time ({}){ring}; {held}; {tiles}",
            cut.packet,
            cut.k_s / cut.packet,
        ))
    }
}
