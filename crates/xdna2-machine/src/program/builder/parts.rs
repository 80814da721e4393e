//! Builders of channels, stages and transfers.

use super::Resolver;
use crate::program::{Affine, Channel, ChannelLink, Pattern, Place, Stage, StageEnd, Transfer};
use millrace_npu::Element;

/// Declares a channel. Without [`depth`](ChannelBuilder::depth) it is double-buffered at its core
/// ends, without [`link`](ChannelBuilder::link) a stream.
#[derive(Debug)]
pub struct ChannelBuilder {
    name: String,
    dims: Vec<i64>,
    block: Option<(Element, Vec<i64>)>,
    ends: [Option<Place>; 2],
    depth: i64,
    link: ChannelLink,
    patterns: [Option<Pattern>; 2],
}

impl ChannelBuilder {
    pub(super) fn new(name: &str) -> ChannelBuilder {
        ChannelBuilder {
            name: name.to_owned(),
            dims: Vec::new(),
            block: None,
            ends: [None, None],
            depth: 2,
            link: ChannelLink::Stream,
            patterns: [None, None],
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Size of the bundle per dimension; a single channel unless set.
    pub fn dims(&mut self, dims: impl IntoIterator<Item = i64>) -> &mut Self {
        self.dims = dims.into_iter().collect();
        self
    }

    /// Element type and shape of a block.
    pub fn block(&mut self, element: Element, shape: impl IntoIterator<Item = i64>) -> &mut Self {
        self.block = Some((element, shape.into_iter().collect()));
        self
    }

    /// Sets the source of blocks.
    pub fn from(&mut self, place: Place) -> &mut Self {
        self.ends[0] = Some(place);
        self
    }

    /// Sets the sink of blocks.
    pub fn to(&mut self, place: Place) -> &mut Self {
        self.ends[1] = Some(place);
        self
    }

    /// Blocks held at each core end.
    pub fn depth(&mut self, depth: i64) -> &mut Self {
        self.depth = depth;
        self
    }

    /// How the ends are joined.
    pub fn link(&mut self, link: ChannelLink) -> &mut Self {
        self.link = link;
        self
    }

    /// How the sending core walks its block.
    pub fn from_pattern(&mut self, pattern: Pattern) -> &mut Self {
        self.patterns[0] = Some(pattern);
        self
    }

    /// How a receiving core walks its block.
    pub fn to_pattern(&mut self, pattern: Pattern) -> &mut Self {
        self.patterns[1] = Some(pattern);
        self
    }

    pub(super) fn finish(self, resolver: &mut Resolver<'_>) -> Channel {
        let place = format!("channel `{}`", self.name);
        let [from, to] = self.ends;
        let mut end = |end: Option<Place>, word: &str| {
            end.unwrap_or_else(|| {
                resolver.problem(&place, &format!("`{word}` is missing"));
                Place::Shim(Affine::new(0))
            })
        };
        let (from, to) = (end(from, "from"), end(to, "to"));
        let (element, block) = block(self.block, &place, resolver);
        let [from_pattern, to_pattern] = self.patterns;
        Channel {
            dims: resolver.sizes(&place, &self.dims),
            name: self.name,
            element,
            block,
            from,
            to,
            depth: resolver.size(&place, self.depth),
            link: self.link,
            from_pattern,
            to_pattern,
        }
    }
}

fn block(
    block: Option<(Element, Vec<i64>)>,
    place: &str,
    resolver: &mut Resolver<'_>,
) -> (Element, Vec<u32>) {
    let (element, shape) = block.unwrap_or_else(|| {
        resolver.problem(place, "`block` is missing");
        (Element::U8, vec![1])
    });
    if shape.iter().any(|&d| d <= 0) {
        resolver.problem(place, &format!("{shape:?} is not the shape of a block"));
    }
    (
        element,
        shape
            .iter()
            .map(|&d| d.clamp(0, i64::from(u32::MAX)) as u32)
            .collect(),
    )
}

/// Declares a stage. Without [`copies`](StageBuilder::copies) it is double-buffered, without
/// [`col`](StageBuilder::col) in column 0.
#[derive(Debug)]
pub struct StageBuilder {
    name: String,
    dims: Vec<i64>,
    col: Affine,
    block: Option<(Element, Vec<i64>)>,
    copies: i64,
    ends: [Vec<ChannelEnd>; 2],
}

#[derive(Debug)]
struct ChannelEnd {
    each: i64,
    channel: String,
    index: Vec<Affine>,
    pattern: Pattern,
    repeat: i64,
}

impl StageBuilder {
    pub(super) fn new(name: &str) -> StageBuilder {
        StageBuilder {
            name: name.to_owned(),
            dims: Vec::new(),
            col: Affine::new(0),
            block: None,
            copies: 2,
            ends: [Vec::new(), Vec::new()],
        }
    }

    /// Size of the bundle per dimension; a single stage unless set.
    pub fn dims(&mut self, dims: impl IntoIterator<Item = i64>) -> &mut Self {
        self.dims = dims.into_iter().collect();
        self
    }

    /// Column of the memory tile.
    pub fn col(&mut self, col: impl Into<Affine>) -> &mut Self {
        self.col = col.into();
        self
    }

    /// Element type and shape of a block.
    pub fn block(&mut self, element: Element, shape: impl IntoIterator<Item = i64>) -> &mut Self {
        self.block = Some((element, shape.into_iter().collect()));
        self
    }

    /// Blocks in the memory tile.
    pub fn copies(&mut self, copies: i64) -> &mut Self {
        self.copies = copies;
        self
    }

    /// A channel that writes the block, by that walk.
    pub fn fill(
        &mut self,
        channel: &str,
        index: impl IntoIterator<Item = Affine>,
        pattern: Pattern,
    ) -> &mut Self {
        self.fill_each(1, channel, index, pattern)
    }

    /// `each` channels that write the block; `e()` counts them.
    pub fn fill_each(
        &mut self,
        each: i64,
        channel: &str,
        index: impl IntoIterator<Item = Affine>,
        pattern: Pattern,
    ) -> &mut Self {
        self.end(0, each, channel, index.into_iter().collect(), pattern)
    }

    /// A channel that the block is sent into, by that walk.
    pub fn drain(
        &mut self,
        channel: &str,
        index: impl IntoIterator<Item = Affine>,
        pattern: Pattern,
    ) -> &mut Self {
        self.drain_each(1, channel, index, pattern)
    }

    /// `each` channels that the block is sent into; `e()` counts them.
    pub fn drain_each(
        &mut self,
        each: i64,
        channel: &str,
        index: impl IntoIterator<Item = Affine>,
        pattern: Pattern,
    ) -> &mut Self {
        self.end(1, each, channel, index.into_iter().collect(), pattern)
    }

    /// Sends the drain just declared `repeat` times for each block.
    pub fn repeat(&mut self, repeat: i64) -> &mut Self {
        if let Some(end) = self.ends[1].last_mut() {
            end.repeat = repeat;
        }
        self
    }

    fn end(
        &mut self,
        side: usize,
        each: i64,
        channel: &str,
        index: Vec<Affine>,
        pattern: Pattern,
    ) -> &mut Self {
        self.ends[side].push(ChannelEnd {
            each,
            channel: channel.to_owned(),
            index,
            pattern,
            repeat: 1,
        });
        self
    }

    pub(super) fn finish(self, resolver: &mut Resolver<'_>) -> Stage {
        let place = format!("stage `{}`", self.name);
        let (element, block) = block(self.block, &place, resolver);
        let [fills, drains] = self.ends.map(|ends| {
            let ends = ends.into_iter().map(|end| StageEnd {
                each: resolver.size(&place, end.each),
                channel: resolver.channel(&place, &end.channel),
                index: end.index,
                pattern: end.pattern,
                repeat: resolver.size(&place, end.repeat),
            });
            ends.collect::<Vec<_>>()
        });
        Stage {
            dims: resolver.sizes(&place, &self.dims),
            name: self.name,
            col: self.col,
            element,
            block,
            copies: resolver.size(&place, self.copies),
            fills,
            drains,
        }
    }
}

/// Declares shim tasks.
#[derive(Debug)]
pub struct TransferBuilder {
    slot: String,
    channel: String,
    reads: bool,
    dims: Vec<i64>,
    loops: Vec<Affine>,
    index: Vec<Affine>,
    pattern: Option<Pattern>,
}

impl TransferBuilder {
    pub(super) fn new(slot: &str, channel: &str, reads: bool) -> TransferBuilder {
        TransferBuilder {
            slot: slot.to_owned(),
            channel: channel.to_owned(),
            reads,
            dims: Vec::new(),
            loops: Vec::new(),
            index: Vec::new(),
            pattern: None,
        }
    }

    pub(super) fn slot(&self) -> &str {
        &self.slot
    }

    /// Size of the bundle per dimension: tasks on different channels, all at once.
    pub fn dims(&mut self, dims: impl IntoIterator<Item = i64>) -> &mut Self {
        self.dims = dims.into_iter().collect();
        self
    }

    /// Index of the channel in the bundle, in `i`.
    pub fn at(&mut self, index: impl IntoIterator<Item = Affine>) -> &mut Self {
        self.index = index.into_iter().collect();
        self
    }

    /// A loop around the task, inside those declared before: `l(0)`, `l(1)`, …
    pub fn repeat(&mut self, count: impl Into<Affine>) -> &mut Self {
        self.loops.push(count.into());
        self
    }

    /// The walk over the slot.
    pub fn pattern(&mut self, pattern: Pattern) -> &mut Self {
        self.pattern = Some(pattern);
        self
    }

    pub(super) fn finish(
        self,
        arg: usize,
        channels: &[Channel],
        resolver: &mut Resolver<'_>,
    ) -> Transfer {
        let (from, to) = match self.reads {
            true => (&self.slot, &self.channel),
            false => (&self.channel, &self.slot),
        };
        let place = format!("transfer {from} -> {to}");
        let channel = resolver.channel(&place, &self.channel);
        if let Some(decl) = channels.get(channel).filter(|c| c.name == self.channel) {
            let (end, what) = match self.reads {
                true => (
                    &decl.from,
                    "reads DDR, but the channel does not come from a shim",
                ),
                false => (
                    &decl.to,
                    "writes DDR, but the channel does not go to a shim",
                ),
            };
            if !matches!(end, Place::Shim(_)) {
                resolver.problem(&place, what);
            }
        }
        let pattern = self.pattern.unwrap_or_else(|| {
            resolver.problem(&place, "`pattern` is missing");
            Pattern::linear(0, 0)
        });
        Transfer {
            dims: resolver.sizes(&place, &self.dims),
            loops: self.loops,
            arg,
            channel,
            index: self.index,
            pattern,
        }
    }
}
