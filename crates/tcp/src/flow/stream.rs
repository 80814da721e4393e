//! A stream between two stages.

use crate::Element;
use crate::axes::{Axes, AxesError, Digit, DigitLayout, Shape, Source, cover};

/// A stream: its values by place and time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlowStream {
    /// Type of an element.
    pub element: Element,
    /// Layout over clusters.
    pub cluster: DigitLayout,
    /// Layout over slices of a cluster.
    pub slice: DigitLayout,
    /// Layout over lanes.
    pub lane: DigitLayout,
    /// Layout over cycles, the outermost loop first.
    pub time: DigitLayout,
    /// Layout within a packet.
    pub packet: DigitLayout,
    /// Axes being reduced: their remainder over slices numbers partial results.
    pub partial: Vec<usize>,
}

impl Default for FlowStream {
    fn default() -> FlowStream {
        FlowStream {
            element: Element::F32,
            cluster: DigitLayout::default(),
            slice: DigitLayout::default(),
            lane: DigitLayout::default(),
            time: DigitLayout::default(),
            packet: DigitLayout::default(),
            partial: Vec::new(),
        }
    }
}

impl FlowStream {
    /// Axes and extents of its values, those being reduced left out.
    ///
    /// # Errors
    /// Where a factor is used twice or missing.
    pub(crate) fn shape(&self, axes: &Axes) -> Result<Shape, AxesError> {
        let all = [
            &self.cluster,
            &self.slice,
            &self.lane,
            &self.time,
            &self.packet,
        ];
        let is_value = |digit: &Digit| !digit.axis().is_some_and(|a| self.partial.contains(&a));
        let values = all.map(|layout| {
            let digits = layout.digits.iter().copied().filter(is_value);
            DigitLayout {
                digits: digits.collect(),
            }
        });
        cover(&values.each_ref(), axes)
    }

    /// Marks axes of which `left` lacks something that `before` has.
    pub(crate) fn reduced(&mut self, before: &DigitLayout, left: &DigitLayout) {
        let extent = |layout: &DigitLayout, axis: usize| -> u64 {
            let own = layout.digits.iter().filter(|d| d.axis() == Some(axis));
            own.map(|digit| digit.size).product()
        };
        for axis in before.digits.iter().filter_map(Digit::axis) {
            let is_less = extent(before, axis) != extent(left, axis);
            if is_less && !self.partial.contains(&axis) {
                self.partial.push(axis);
            }
        }
    }

    /// An axis being reduced that some of these layouts still have.
    pub(crate) fn unreduced(&self, layouts: &[&DigitLayout]) -> Option<usize> {
        let mut partial = self.partial.iter().copied();
        partial.find(|&axis| layouts.iter().any(|layout| layout.has(axis)))
    }

    /// Bytes of a packet.
    pub(crate) fn packet_bytes(&self) -> u64 {
        self.element.bytes(self.packet.size())
    }
}

/// A layout under other names.
pub(crate) fn renamed(
    mut layout: DigitLayout,
    renames: &[(String, String)],
    axes: &Axes,
) -> Result<DigitLayout, AxesError> {
    for digit in &mut layout.digits {
        if let Some(axis) = digit.axis() {
            digit.source = Source::Axis(renamed_axis(axis, renames, axes)?);
        }
    }
    Ok(layout)
}

/// A shape under other names.
pub(crate) fn renamed_shape(
    mut shape: Shape,
    renames: &[(String, String)],
    axes: &Axes,
) -> Result<Shape, AxesError> {
    for (axis, _) in &mut shape {
        *axis = renamed_axis(*axis, renames, axes)?;
    }
    shape.sort_unstable();
    Ok(shape)
}

fn renamed_axis(
    axis: usize,
    renames: &[(String, String)],
    axes: &Axes,
) -> Result<usize, AxesError> {
    let (name, _) = axes.get(axis);
    let to = renames.iter().find(|(from, _)| from == name);
    to.map_or(Ok(axis), |(_, to)| axes.id(to))
}

/// `[T = 64, K = 4096]`.
pub(crate) fn shape_text(shape: &Shape, axes: &Axes) -> String {
    let parts = shape
        .iter()
        .map(|&(axis, n)| format!("{} = {n}", axes.get(axis).0));
    format!("[{}]", parts.collect::<Vec<_>>().join(", "))
}
