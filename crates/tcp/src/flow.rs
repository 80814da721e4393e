//! The stream through a kernel: its layouts and element after each stage. The verifier, the values and the times all
//! use this one walk, so they cannot disagree about a kernel.

mod contract;
mod ends;
mod stream;

pub(crate) use stream::FlowStream;
pub(crate) use stream::renamed_shape as stream_renamed_shape;

use crate::Element;
use crate::axes::{Axes, AxesError, DigitLayout, Mapping, Shape};
use crate::program::{Place, Program, SliceKernel, Stage, Tensor, VectorOp, View};
use crate::verify::Rule;

/// Violation of a rule by a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowViolation {
    /// The rule.
    pub rule: Rule,
    /// The stage.
    pub stage: usize,
    /// Description.
    pub message: String,
}

/// A kernel's streams: `streams[i]` leaves stage `i`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flow {
    /// The stream after each stage.
    pub streams: Vec<FlowStream>,
}

type FlowResult<T> = Result<T, (Rule, String)>;

fn axes_broken(error: AxesError) -> (Rule, String) {
    let rule = match error {
        AxesError::Overlap(_) | AxesError::Hole { .. } => Rule::Factors,
        _ => Rule::Mapping,
    };
    (rule, error.to_string())
}

/// The order of stages: a rank, and a second one within the vector engine.
pub(crate) fn rank(stage: &Stage) -> (u8, u8) {
    match stage {
        Stage::Fetch { .. } => (0, 0),
        Stage::Switch { .. } => (1, 0),
        Stage::Collect { .. } => (2, 0),
        Stage::Outer { .. } => (3, 0),
        Stage::Packet { .. } => (4, 0),
        Stage::Time { .. } => (5, 0),
        Stage::Lane { .. } => (6, 0),
        Stage::Stash => (7, 0),
        Stage::Vector { op, .. } => match op {
            VectorOp::FixedToFloat => (7, 1),
            VectorOp::Div | VectorOp::DivBy => (7, 4),
            VectorOp::FloatToFixed => (7, 5),
            VectorOp::Max | VectorOp::Min => (7, 6),
            _ => (7, 2),
        },
        Stage::Reduce { .. } => (7, 3),
        Stage::Ring { .. } => (7, 7),
        Stage::Cast { .. } => (8, 0),
        Stage::Transpose { .. } => (9, 0),
        Stage::Commit { .. } | Stage::ToRegisters { .. } => (10, 0),
    }
}

/// Walks a kernel, stage by stage.
///
/// # Errors
/// The first stage that makes no sense.
pub(crate) fn walk(program: &Program, kernel: &SliceKernel) -> Result<Flow, FlowViolation> {
    let mut walker = Walker {
        program,
        axes: &program.axes,
        stream: FlowStream::default(),
    };
    let mut streams = Vec::with_capacity(kernel.stages.len());
    for (number, stage) in kernel.stages.iter().enumerate() {
        let before = &kernel.stages[..number];
        let step = order(before, stage).and_then(|()| walker.partial(stage));
        let step = step.and_then(|()| walker.step(stage));
        step.map_err(|(rule, message)| FlowViolation {
            rule,
            stage: number,
            message,
        })?;
        streams.push(walker.stream.clone());
    }
    let ends = matches!(
        kernel.stages.last(),
        Some(Stage::Commit { .. } | Stage::ToRegisters { .. })
    );
    match ends {
        true => Ok(Flow { streams }),
        false => Err(FlowViolation {
            rule: Rule::StageOrder,
            stage: kernel.stages.len(),
            message: "the kernel ends without `commit` or `registers`".into(),
        }),
    }
}

/// Whether a stage may follow another.
fn order(earlier: &[Stage], stage: &Stage) -> FlowResult<()> {
    let wrong = |message: &str| Err((Rule::StageOrder, message.to_owned()));
    let Some(before) = earlier.last() else {
        return match stage {
            Stage::Fetch { .. } => Ok(()),
            _ => wrong("a kernel begins with `fetch`"),
        };
    };
    let (from, to) = (rank(before), rank(stage));
    // The ring is either the first of the vector stages or the last.
    let n_vector = earlier.iter().filter(|stage| rank(stage).0 == 7).count();
    let ring_first = matches!(before, Stage::Ring { .. }) && to.0 == 7 && to.1 < 7 && n_vector == 1;
    let in_vector = from.0 == 7 && to.0 == 7;
    let needs = match stage {
        Stage::Outer { .. } => from.0 == 2,
        Stage::Packet { .. } => from.0 == 3,
        Stage::Time { .. } => from.0 == 4,
        Stage::Lane { .. } => from.0 == 5,
        Stage::Stash | Stage::Vector { .. } | Stage::Reduce { .. } | Stage::Ring { .. } => {
            matches!(from.0, 2 | 6 | 7)
        }
        _ => !matches!(from.0, 3..=5),
    };
    let stash = matches!(before, Stage::Stash) || matches!(stage, Stage::Stash);
    let float = in_vector && from == (7, 2) && to == (7, 2);
    let forward = to > from || ring_first || float || (in_vector && stash);
    match needs && forward {
        true => Ok(()),
        false => wrong("this stage cannot follow the one before it"),
    }
}

struct Walker<'p> {
    program: &'p Program,
    axes: &'p Axes,
    stream: FlowStream,
}

impl Walker<'_> {
    fn layout(&self, mapping: &Mapping) -> FlowResult<DigitLayout> {
        DigitLayout::of(mapping, self.axes).map_err(axes_broken)
    }

    /// Partial results over slices meet in the ring before anything else is done with them.
    fn partial(&self, stage: &Stage) -> FlowResult<()> {
        let goes_on = matches!(
            stage,
            Stage::Ring { .. } | Stage::Time { .. } | Stage::Lane { .. }
        );
        match self
            .stream
            .unreduced(&[&self.stream.cluster, &self.stream.slice])
        {
            Some(axis) if !goes_on => {
                let axis = self.axes.get(axis).0;
                let message = format!("partial sums over `{axis}` have to meet in a ring first");
                Err((Rule::Values, message))
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self, stage: &Stage) -> FlowResult<()> {
        match stage {
            Stage::Fetch {
                view,
                with,
                cast,
                time,
                packet,
            } => self.fetch(view, with.as_ref(), *cast, time, packet),
            Stage::Switch { slice, time, .. } => self.switch(slice, time),
            Stage::Collect { time, packet } | Stage::Transpose { time, packet } => {
                let (time, packet) = (self.layout(time)?, self.layout(packet)?);
                self.relayout(time, packet)
            }
            Stage::Outer { trf, time, packet } => self.outer(*trf, time, packet),
            Stage::Packet { packet } => {
                let packet = self.layout(packet)?;
                contract::within(&self.stream.packet, &packet, "packet")?;
                let before = std::mem::replace(&mut self.stream.packet, packet.clone());
                self.stream.reduced(&before, &packet);
                Ok(())
            }
            Stage::Time { time } => {
                let time = self.layout(time)?;
                self.left_of_time(time)?;
                self.complete()
            }
            Stage::Lane { time, packet, .. } => self.lane(time, packet),
            Stage::Stash => self.needs(&[Element::F32, Element::I32], "stash"),
            Stage::Vector { op, operand } => self.vector(*op, operand),
            Stage::Reduce { time, packet, .. } => {
                self.needs(&[Element::F32, Element::I32], "reduce")?;
                let (time, packet) = (self.layout(time)?, self.layout(packet)?);
                contract::within(&self.stream.packet, &packet, "packet")?;
                let before = std::mem::replace(&mut self.stream.packet, packet.clone());
                self.stream.reduced(&before, &packet);
                self.left_of_time(time)?;
                self.complete()
            }
            Stage::Ring { slice, .. } => {
                self.needs(&[Element::F32, Element::I32], "ring")?;
                let slice = self.layout(slice)?;
                contract::ring(&self.stream.slice, &slice)?;
                let before = std::mem::replace(&mut self.stream.slice, slice.clone());
                self.stream.reduced(&before, &slice);
                self.complete()
            }
            Stage::Cast { to } => self.cast(*to),
            Stage::Commit { to } => self.commit(to),
            Stage::ToRegisters { tensor } => self.registers(*tensor),
        }
    }

    fn needs(&self, elements: &[Element], what: &str) -> FlowResult<()> {
        match elements.contains(&self.stream.element) {
            true => Ok(()),
            false => Err((
                Rule::Elements,
                format!(
                    "{what} works on f32 or i32, the stream is {}",
                    self.stream.element
                ),
            )),
        }
    }

    fn left_of_time(&mut self, time: DigitLayout) -> FlowResult<()> {
        contract::within(&self.stream.time, &time, "time")?;
        let before = std::mem::replace(&mut self.stream.time, time.clone());
        self.stream.reduced(&before, &time);
        Ok(())
    }

    /// Whether the stream covers whole axes, and axes being reduced remain over slices alone.
    fn complete(&self) -> FlowResult<()> {
        self.reduced_in(&[&self.stream.lane, &self.stream.time, &self.stream.packet])?;
        self.stream.shape(self.axes).map(drop).map_err(axes_broken)
    }

    fn reduced_in(&self, layouts: &[&DigitLayout]) -> FlowResult<()> {
        match self.stream.unreduced(layouts) {
            None => Ok(()),
            Some(axis) => {
                let axis = self.axes.get(axis).0;
                Err((
                    Rule::Values,
                    format!("axis `{axis}` is reduced in part only"),
                ))
            }
        }
    }

    fn tensor(
        &self,
        number: usize,
        is_right: impl Fn(&Place) -> bool,
        what: &str,
    ) -> FlowResult<&Tensor> {
        let tensor = self.program.tensors.get(number);
        let tensor =
            tensor.ok_or_else(|| (Rule::Place, format!("tensor {number} is not there")))?;
        match is_right(&tensor.place) {
            true => Ok(tensor),
            false => Err((Rule::Place, format!("`{}` is not in {what}", tensor.name))),
        }
    }

    fn fetch(
        &mut self,
        view: &View,
        with: Option<&View>,
        cast: Option<Element>,
        time: &Mapping,
        packet: &Mapping,
    ) -> FlowResult<()> {
        let in_dm = |place: &Place| matches!(place, Place::Dm { .. });
        let tensor = self.tensor(view.tensor, in_dm, "data memory")?;
        let element = tensor.element;
        let spread = tensor.spread().ok_or((Rule::Place, String::new()))?;
        let (cluster, slice) = (self.layout(&spread.cluster)?, self.layout(&spread.slice)?);
        if let Some(with) = with {
            let other = self.tensor(with.tensor, in_dm, "data memory")?;
            let same = |t: &Tensor| (t.element, t.spread().cloned(), t.layout().clone());
            if same(other) != same(tensor) || view.renames != with.renames {
                let names = (&tensor.name, &other.name);
                let message = format!(
                    "`{}` and `{}` differ in element or mapping",
                    names.0, names.1
                );
                return Err((Rule::Place, message));
            }
        }
        let rename = |layout: DigitLayout| stream::renamed(layout, &view.renames, self.axes);
        let layout = rename(self.layout(tensor.layout())?).map_err(axes_broken)?;
        let (cluster, slice) = (
            rename(cluster).map_err(axes_broken)?,
            rename(slice).map_err(axes_broken)?,
        );
        if !view.offsets.is_empty() || with.is_some_and(|with| !with.offsets.is_empty()) {
            return self.fetch_part(element, (cluster, slice), cast, time, packet);
        }
        self.stream = FlowStream {
            element,
            cluster,
            slice,
            packet: layout,
            ..FlowStream::default()
        };
        self.cast_fetched(cast)?;
        let (time, packet) = (self.layout(time)?, self.layout(packet)?);
        self.relayout_part(time, packet)
    }

    /// A fetch that begins elsewhere: its own mappings give its extent.
    fn fetch_part(
        &mut self,
        element: Element,
        (cluster, slice): (DigitLayout, DigitLayout),
        cast: Option<Element>,
        time: &Mapping,
        packet: &Mapping,
    ) -> FlowResult<()> {
        self.stream = FlowStream {
            element,
            cluster,
            slice,
            time: self.layout(time)?,
            packet: self.layout(packet)?,
            ..FlowStream::default()
        };
        self.cast_fetched(cast)?;
        self.complete()
    }

    /// Conversions of the fetch adapter. Source: the book, computing-tensors/fetch-adapter; that a table
    /// widens `i4` to `f8e4m3` as it does `f4e2m1` is assumed.
    fn cast_fetched(&mut self, cast: Option<Element>) -> FlowResult<()> {
        use Element::{Bf16, E4m3, F32, I4, I8, I32};
        let Some(to) = cast else { return Ok(()) };
        let from = self.stream.element;
        let known = [
            (I4, I32),
            (I8, I32),
            (E4m3, F32),
            (Bf16, F32),
            (F32, Bf16),
            (E4m3, Bf16),
            (I4, E4m3),
        ];
        if !known.contains(&(from, to)) {
            return Err((
                Rule::Elements,
                format!("fetch does not turn {from} into {to}"),
            ));
        }
        self.stream.element = to;
        Ok(())
    }

    /// The same values in another order.
    fn relayout(&mut self, time: DigitLayout, packet: DigitLayout) -> FlowResult<()> {
        let before = self.stream.shape(self.axes).map_err(axes_broken)?;
        self.stream.time = time;
        self.stream.packet = packet;
        self.same_shape(&before)
    }

    /// The same for a fetch, which may take a leading part of the tensor's content.
    fn relayout_part(&mut self, time: DigitLayout, packet: DigitLayout) -> FlowResult<()> {
        let before = self.stream.shape(self.axes).map_err(axes_broken)?;
        self.stream.time = time;
        self.stream.packet = packet;
        let after = self.stream.shape(self.axes).map_err(axes_broken)?;
        let fits = |&(axis, extent): &(usize, u64)| {
            let held = before.iter().find(|(a, _)| *a == axis);
            held.is_some_and(|&(_, held)| extent <= held)
        };
        match after.iter().all(fits) {
            true => Ok(()),
            false => Err(self.lost(&before, &after)),
        }
    }

    fn same_shape(&self, before: &Shape) -> FlowResult<()> {
        self.reduced_in(&[&self.stream.lane, &self.stream.time, &self.stream.packet])?;
        let after = self.stream.shape(self.axes).map_err(axes_broken)?;
        match after == *before {
            true => Ok(()),
            false => Err(self.lost(before, &after)),
        }
    }

    fn lost(&self, before: &Shape, after: &Shape) -> (Rule, String) {
        let text = |shape: &Shape| stream::shape_text(shape, self.axes);
        let message = format!("{} comes in, {} goes out", text(before), text(after));
        (Rule::Values, message)
    }

    fn switch(&mut self, slice: &Mapping, time: &Mapping) -> FlowResult<()> {
        let before = self.stream.shape(self.axes).map_err(axes_broken)?;
        self.stream.slice = self.layout(slice)?;
        self.stream.time = self.layout(time)?;
        self.same_shape(&before)
    }
}
