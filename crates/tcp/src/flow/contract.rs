//! The stages of the contraction engine.

use super::{FlowResult, Walker, axes_broken, stream};
use crate::Element;
use crate::axes::{Digit, DigitLayout, Mapping, Source};
use crate::program::Place;
use crate::verify::Rule;

/// Whether `left` is the rest of `before`, in its order, after whole digits were reduced.
pub(super) fn within(before: &DigitLayout, left: &DigitLayout, what: &str) -> FlowResult<()> {
    // Padding to a whole flit does not count.
    let padding = |digit: &Digit| digit.source == Source::Copies && digit.valid == 1;
    let mut left = left.plain().digits;
    left.retain(|digit| !padding(digit));
    let mut rest = before.canonical().digits;
    // Cut joined digits where a remaining digit ends.
    let mut wanted = left.clone();
    let mut kept: Vec<Digit> = Vec::new();
    while let Some(digit) = rest.pop() {
        let Some(want) = wanted.pop() else { continue };
        if digit == want {
            kept.push(want);
            continue;
        }
        let inner = want.source == digit.source
            && want.stride == digit.stride
            && digit.size.is_multiple_of(want.size)
            && digit.size > want.size;
        if inner {
            rest.push(Digit {
                stride: digit.stride * want.size,
                size: digit.size / want.size,
                valid: digit.valid.div_ceil(want.size),
                ..digit
            });
            kept.push(want);
            continue;
        }
        let outer = want.source == digit.source
            && want.stride > digit.stride
            && want.stride * want.size == digit.stride * digit.size;
        if outer {
            kept.push(want);
            continue;
        }
        wanted.push(want);
    }
    match wanted.is_empty() && kept.len() == left.len() {
        true => Ok(()),
        false => Err((
            Rule::Values,
            format!("the rest of {what} is not a part of it in its order"),
        )),
    }
}

/// Whether `left` is the slices of `before` with whole digits reduced. In their place the result is copied around the
/// ring, or is in the first slice only.
pub(super) fn ring(before: &DigitLayout, left: &DigitLayout) -> FlowResult<()> {
    let bad = |message: &str| Err((Rule::Values, message.to_owned()));
    if before.size() != left.size() {
        return bad("the ring's slices are not as many as before");
    }
    // Copies in `left` are where a digit was reduced: everywhere else the two agree.
    let mut blank = left.clone();
    for digit in &mut blank.digits {
        if digit.source == Source::Copies {
            digit.valid = digit.size;
        }
    }
    match before.merge(&blank).map(|merged| merged.canonical()) == Some(before.canonical()) {
        true => Ok(()),
        false => bad("the axes left over slices are not those before the reduction"),
    }
}

/// The element of sums of products of these two.
fn sum_element(a: Element, b: Element) -> Option<Element> {
    let pairs = [
        (Element::I4, Element::I32),
        (Element::I8, Element::I32),
        (Element::E4m3, Element::F32),
        (Element::Bf16, Element::F32),
    ];
    let sum = pairs.iter().find(|(of, _)| *of == a && a == b);
    sum.map(|&(_, sum)| sum)
}

impl Walker<'_> {
    pub(super) fn outer(&mut self, trf: usize, time: &Mapping, packet: &Mapping) -> FlowResult<()> {
        let in_trf = |place: &Place| matches!(place, Place::Trf { .. });
        let tensor = self.tensor(trf, in_trf, "the tensor register file")?;
        let (Place::Trf { lane, spread, .. }, name) = (&tensor.place, &tensor.name) else {
            return Err((Rule::Place, String::new()));
        };
        let (a, b) = (self.stream.element, tensor.element);
        let Some(sum) = sum_element(a, b) else {
            return Err((Rule::Elements, format!("{a} is not multiplied with {b}")));
        };
        let trf_shape = tensor.shape(self.axes).map_err(axes_broken)?;
        let stream_shape = self.stream.shape(self.axes).map_err(axes_broken)?;
        let mut union = stream_shape.clone();
        for &(axis, extent) in &trf_shape {
            match union.iter().find(|(a, _)| *a == axis) {
                Some(&(_, other)) if other != extent => {
                    let axis = self.axes.get(axis).0;
                    let message = format!("`{name}` has {extent} of `{axis}`, the stream {other}");
                    return Err((Rule::Values, message));
                }
                Some(_) => {}
                None => union.push((axis, extent)),
            }
        }
        union.sort_unstable();
        let merged = |own: &DigitLayout, other: &Mapping| {
            let other = self.layout(other)?;
            own.merge(&other).ok_or_else(|| {
                let message = format!("`{name}` lies in other slices than the stream");
                (Rule::Values, message)
            })
        };
        let cluster = merged(&self.stream.cluster, &spread.cluster)?;
        let slice = merged(&self.stream.slice, &spread.slice)?;
        let (time, packet) = (self.layout(time)?, self.layout(packet)?);
        let only_trf = |axis: usize| !stream_shape.iter().any(|(a, _)| *a == axis);
        self.streamed_in_order(&time, &packet, only_trf)?;
        self.stream.lane = self.layout(lane)?;
        (self.stream.cluster, self.stream.slice) = (cluster, slice);
        (self.stream.time, self.stream.packet) = (time, packet);
        self.stream.element = sum;
        let found = self.stream.shape(self.axes).map_err(axes_broken)?;
        match found == union {
            true => Ok(()),
            false => Err((
                Rule::Values,
                format!(
                    "the operands have {}, the products {}",
                    stream::shape_text(&union, self.axes),
                    stream::shape_text(&found, self.axes)
                ),
            )),
        }
    }

    /// The stream adapter repeats packets and does not reorder them. The parts of the stream in the products' time and
    /// packet come in the stream's order, repeats of a packet innermost in time. An outer repeat must be fetched as
    /// often.
    fn streamed_in_order(
        &self,
        time: &DigitLayout,
        packet: &DigitLayout,
        only_trf: impl Fn(usize) -> bool,
    ) -> FlowResult<()> {
        let as_copies = |digit: &Digit| match digit.axis() {
            Some(axis) if only_trf(axis) => Digit {
                source: Source::Copies,
                stride: 1,
                ..*digit
            },
            _ => *digit,
        };
        let mut products: Vec<Digit> = time.digits.iter().map(as_copies).collect();
        while products
            .last()
            .is_some_and(|digit| digit.source == Source::Copies)
        {
            products.pop();
        }
        products.extend(packet.digits.iter().map(as_copies));
        let found = DigitLayout { digits: products }.canonical();
        let stream = self.stream.time.followed_by(&self.stream.packet);
        let mut stream = stream.digits;
        // Strides of copies have no meaning.
        for digit in stream.iter_mut().filter(|d| d.source == Source::Copies) {
            digit.stride = 1;
        }
        match found == (DigitLayout { digits: stream }).canonical() {
            true => Ok(()),
            false => Err((
                Rule::Values,
                "the products come in another order than the stream, or repeat it elsewhere than innermost".into(),
            )),
        }
    }

    pub(super) fn lane(&mut self, time: &Mapping, packet: &Mapping) -> FlowResult<()> {
        let before = self.stream.shape(self.axes).map_err(axes_broken)?;
        self.stream.time = self.layout(time)?;
        self.stream.packet = self.layout(packet)?;
        self.stream.lane = DigitLayout::default();
        self.same_shape(&before)
    }
}
