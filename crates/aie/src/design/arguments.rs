//! Inputs of a sequence: memory of the host, and numbers.

use super::{Argument, Design, ReadOptions};
use crate::lower::MOST_BUFFERS;
use crate::syntax::{MemRefType, Op, SyntaxError, Type};

/// Bytes of all arguments of a sequence, at most.
const MOST_ARGUMENT_BYTES: u64 = 256 << 20;

/// Reads the arguments of a sequence, and its ops.
pub(super) fn read(design: &mut Design, op: &Op, options: &ReadOptions) -> Result<(), SyntaxError> {
    let region = op.region(0)?;
    let [block] = &region.blocks[..] else {
        return Err(op.error("a sequence of several blocks"));
    };
    for (name, of) in &block.arguments {
        if matches!(of, Type::Integer { .. } | Type::Index) {
            let given = options.numbers.get(name).copied();
            let problem = || format!("%{name} is a number: give it by --number {name}=VALUE");
            let value = given.ok_or_else(|| op.error(problem()))?.whole();
            let value = value.ok_or_else(|| op.error(format!("%{name} is a whole number")))?;
            design.numbers.insert(name.clone(), value);
            continue;
        }
        let of = of.memref().filter(|of| of.bytes().is_some());
        let of = of.ok_or_else(|| op.error(format!("%{name} is no memref of a fixed size")))?;
        design.arguments.push(Argument {
            name: name.clone(),
            of: of.clone(),
            bytes: of.bytes().unwrap_or(0),
            given: None,
        });
    }
    let n = design.arguments.len();
    if n > MOST_BUFFERS {
        let note = format!("{n} arguments: mlir-aie makes no xclbin of more than {MOST_BUFFERS}");
        design.notes.push(note);
    }
    let sizes = design.arguments.iter().map(|argument| argument.of.bytes());
    let total = sizes.fold(0u64, |sum, bytes| sum.saturating_add(bytes.unwrap_or(0)));
    if total > MOST_ARGUMENT_BYTES {
        let problem = format!("its arguments have {total} bytes, more than 256 MiB");
        return Err(op.error(problem));
    }
    design.sequence.clone_from(&block.ops);
    Ok(())
}

/// Makes arguments as long as transfers reach: a host may give more than the type says. A patch may name a buffer
/// beyond the arguments, as those of traces do. Such a buffer is an extra one of the host.
pub(super) fn reach(design: &mut Design) {
    let ends = crate::lower::argument_ends(design);
    let n_buffers = ends
        .iter()
        .rposition(|&end| end > 0)
        .map_or(0, |last| last + 1);
    for (i, &end) in ends
        .iter()
        .enumerate()
        .take(n_buffers)
        .skip(design.arguments.len())
    {
        let bytes = end.clamp(4, MOST_ARGUMENT_BYTES).next_multiple_of(4);
        if end > 0 {
            let note = format!(
                "buffer {i} of the host is no argument: taken for {bytes} bytes, as far as transfers reach"
            );
            design.notes.push(note);
        }
        design.arguments.push(Argument {
            name: format!("host{i}"),
            of: MemRefType::words(bytes / 4),
            bytes,
            given: None,
        });
    }
    for (i, (argument, end)) in design.arguments.iter_mut().zip(ends).enumerate() {
        if (argument.bytes + 1..=MOST_ARGUMENT_BYTES).contains(&end) {
            let (name, of) = (&argument.name, &argument.of);
            let note = format!(
                "argument {i} (%{name}: {of}) is taken for {end} bytes, as far as transfers reach"
            );
            design.notes.push(note);
            argument.bytes = end;
        }
    }
}
