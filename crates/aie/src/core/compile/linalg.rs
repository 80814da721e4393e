//! `linalg` ops on memrefs or tensors, as loops over their elements.
//!
//! Loops go over all dimensions in their order, the first the outermost. Sums of a point round after each term, as a
//! scalar loop does.

use super::CoreCompiler;
use crate::core::code::{Instruction as I, Term};
use crate::core::value::{CoreValue, Number};
use crate::syntax::{AffineExpression, Attribute, MemRefType, Op, SyntaxError, Type, loop_name};

/// Step of an op for an element of each operand.
enum ElementStep<'o> {
    /// Ops of its body.
    Body(&'o Op),
    /// The input unchanged.
    Copy,
    /// An op on two inputs, by its names for integers and for floats.
    Two(&'static str, &'static str),
    /// The product of two inputs, added to the present value.
    MultiplyAdd,
}

/// Map from a point of the loops to an operand's element: an expression a dimension.
type ElementMap = Vec<AffineExpression>;

fn plain(loops: &[usize]) -> ElementMap {
    let of = |&number: &usize| AffineExpression::Value(loop_name(number));
    loops.iter().map(of).collect()
}

impl CoreCompiler<'_> {
    pub(super) fn linalg(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let n_inputs: usize = op.number("n_inputs")?;
        let rank = |i: usize| {
            let of = op.types.get(i).and_then(Type::shaped);
            of.map(|of| of.shape.len())
        };
        let (step, maps) = match op.name.as_str() {
            "linalg.generic" => (ElementStep::Body(op), maps(op)?),
            "linalg.matmul" => {
                let maps = [[0, 2], [2, 1], [0, 1]].map(|loops| plain(&loops));
                (ElementStep::MultiplyAdd, maps.to_vec())
            }
            name => {
                let step = match name {
                    "linalg.fill" | "linalg.copy" => ElementStep::Copy,
                    "linalg.add" => ElementStep::Two("arith.addi", "arith.addf"),
                    "linalg.sub" => ElementStep::Two("arith.subi", "arith.subf"),
                    "linalg.mul" => ElementStep::Two("arith.muli", "arith.mulf"),
                    _ => ElementStep::Two("arith.maxsi", "arith.maximumf"),
                };
                let loops: Vec<usize> = (0..rank(n_inputs).unwrap_or(0)).collect();
                let map = |i| match rank(i) {
                    Some(_) => plain(&loops),
                    None => ElementMap::new(),
                };
                (step, (0..op.operands.len()).map(map).collect())
            }
        };
        let wanted = match step {
            ElementStep::Body(_) => op.operands.len(),
            ElementStep::Copy => 2,
            ElementStep::Two(..) | ElementStep::MultiplyAdd => 3,
        };
        if op.operands.len() != wanted || maps.len() != wanted || n_inputs >= wanted {
            let n = op.operands.len();
            return Err(op.error(format!("{n} operands, {wanted} are known of it")));
        }
        let sizes = sizes(op, &maps)?;
        let views = self.linalg_views(op)?;
        let mut open = Vec::new();
        for (number, &size) in sizes.iter().enumerate() {
            open.push(self.open_loop(number, size)?);
        }
        self.element(op, (&step, n_inputs), &maps, &views)?;
        for of in open.into_iter().rev() {
            self.close_loop(of)?;
        }
        self.linalg_results(op, &views[n_inputs..])
    }

    /// Begins a loop; returns its index and the position of its test.
    fn open_loop(&mut self, number: usize, size: u64) -> Result<(usize, usize), SyntaxError> {
        let (index, end) = (self.bind(&loop_name(number)), self.slot());
        self.push(I::Constant(index, CoreValue::Integer(0)))?;
        self.push(I::Constant(end, CoreValue::Integer(size as i64)))?;
        let test = self.here();
        self.push(I::UnlessLess(index, end, 0))?;
        Ok((index, test))
    }

    fn close_loop(&mut self, (index, test): (usize, usize)) -> Result<(), SyntaxError> {
        let one = self.slot();
        self.push(I::Constant(one, CoreValue::Integer(1)))?;
        let number = Number::Integer(64);
        self.compute_into(index, "index.step", number, vec![index, one])?;
        self.push(I::Jump(test))?;
        let behind = self.here();
        self.aim(test, behind);
        Ok(())
    }

    /// Compiles the step at a point of the loops.
    fn element(
        &mut self,
        op: &Op,
        (step, n_inputs): (&ElementStep<'_>, usize),
        maps: &[ElementMap],
        views: &[usize],
    ) -> Result<(), SyntaxError> {
        let (mut values, mut places) = (Vec::new(), Vec::new());
        for (i, (map, &view)) in maps.iter().zip(views).enumerate() {
            if op.types[i].shaped().is_none() {
                values.push(view);
                places.push(Vec::new());
                continue;
            }
            let mut terms = Vec::new();
            for of in map {
                terms.push(Term::Slot(self.affine(op, of)?));
            }
            let value = self.slot();
            self.push(I::Load(value, view, terms.clone()))?;
            values.push(value);
            places.push(terms);
        }
        let results = self.results(op, step, &values)?;
        if results.len() != views.len() - n_inputs {
            return Err(op.error("its body does not give a value for each output"));
        }
        for (i, result) in (n_inputs..).zip(results) {
            self.push(I::Store(result, views[i], places[i].clone()))?;
        }
        Ok(())
    }

    /// The outputs' elements, of all operands' elements.
    fn results(
        &mut self,
        op: &Op,
        step: &ElementStep<'_>,
        values: &[usize],
    ) -> Result<Vec<usize>, SyntaxError> {
        let out = op.types.last().and_then(Type::shaped);
        let number = out.and_then(|of| Number::in_memory(&of.element));
        let number = number.ok_or_else(|| op.error("elements of an unknown type"))?;
        let is_whole = matches!(number, Number::Integer(_));
        let by = |whole: &'static str, point: &'static str| if is_whole { whole } else { point };
        match *step {
            ElementStep::Copy => Ok(vec![values[0]]),
            ElementStep::Two(whole, point) => {
                let from = vec![values[0], values[1]];
                Ok(vec![self.computed(by(whole, point), number, from)?])
            }
            ElementStep::MultiplyAdd => {
                let from = vec![values[0], values[1]];
                let product = self.computed(by("arith.muli", "arith.mulf"), number, from)?;
                let from = vec![values[2], product];
                Ok(vec![self.computed(
                    by("arith.addi", "arith.addf"),
                    number,
                    from,
                )?])
            }
            ElementStep::Body(op) => self.body(op, values),
        }
    }

    /// Compiles a body's ops; returns the values that its last op yields.
    fn body(&mut self, op: &Op, values: &[usize]) -> Result<Vec<usize>, SyntaxError> {
        let [block] = &op.region(0)?.blocks[..] else {
            return Err(op.error("its body is one block"));
        };
        if block.arguments.len() != values.len() {
            return Err(op.error("its body has not a value for each operand"));
        }
        for ((name, _), &value) in block.arguments.iter().zip(values) {
            self.names().insert(name.clone(), value);
        }
        let Some((last, ops)) = block.ops.split_last() else {
            return Err(op.error("its body is empty"));
        };
        if last.name != "linalg.yield" {
            return Err(last.error("a body ends with `linalg.yield`"));
        }
        for inner in ops {
            if inner.name == "linalg.index" {
                let number: usize = inner.number("dim")?;
                let name = inner.result()?.to_owned();
                let index = self.use_name(inner, &loop_name(number))?;
                self.names().insert(name, index);
                continue;
            }
            self.op(inner, &[])?;
        }
        self.operands(last)
    }
}

/// The maps of a generic op.
fn maps(op: &Op) -> Result<Vec<ElementMap>, SyntaxError> {
    let Attribute::Array(all) = op.need("indexing_maps")? else {
        return Err(op.error("`indexing_maps` is no list"));
    };
    let one = |map: &Attribute| match map {
        Attribute::Array(results) => results
            .iter()
            .map(|result| match result {
                Attribute::Affine(of) => Some(of.clone()),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    let maps: Option<Vec<ElementMap>> = all.iter().map(one).collect();
    maps.ok_or_else(|| op.error("`indexing_maps` has what is no map"))
}

/// Size of each loop: that of the dimension that it alone indexes.
fn sizes(op: &Op, maps: &[ElementMap]) -> Result<Vec<u64>, SyntaxError> {
    let n = match op.get("iterator_types") {
        Some(Attribute::Array(all)) => all.len(),
        _ => maps
            .iter()
            .map(Vec::len)
            .max()
            .unwrap_or(0)
            .max(loops_of(op)),
    };
    let find = |number: usize| {
        let name = loop_name(number);
        let mut sizes = maps.iter().zip(&op.types).flat_map(|(map, of)| {
            let shape = of.shaped().map_or(&[][..], |of: &MemRefType| &of.shape);
            map.iter().zip(shape)
        });
        let is_it =
            |of: &AffineExpression| matches!(of, AffineExpression::Value(of) if *of == name);
        let size = sizes.find(|row| is_it(row.0)).and_then(|row| *row.1);
        size.ok_or_else(|| {
            op.error(format!(
                "how far its loop {number} goes is not fixed by an operand's size"
            ))
        })
    };
    let sizes: Vec<u64> = (0..n).map(find).collect::<Result<_, _>>()?;
    for (map, of) in maps.iter().zip(&op.types) {
        let shape = of.shaped().map_or(&[][..], |of| &of.shape);
        if shape.len() != map.len() {
            return Err(op.error("a map has not an index for each dimension"));
        }
        for (index, size) in map.iter().zip(shape) {
            let number = (0..n).find(|&i| *index == AffineExpression::Value(loop_name(i)));
            if number.is_some_and(|i| Some(sizes[i]) != *size) {
                return Err(op.error("its operands' sizes do not go together"));
            }
        }
    }
    Ok(sizes)
}

/// Number of loops of an op that has no maps.
fn loops_of(op: &Op) -> usize {
    if op.name == "linalg.matmul" { 3 } else { 0 }
}
