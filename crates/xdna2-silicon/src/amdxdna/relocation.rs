//! Addresses of arguments, written into a stream.

use super::DriverFault;
use millrace_xdna2_words::descriptor::SHIM;
use millrace_xdna2_words::{Record, TxnOperation, TxnStream, WordField};

/// Offset that the array's DMA adds to an address of the host: its aperture of DDR (XRT's `elf_patcher`).
pub const DDR_APERTURE: u64 = 0x8000_0000;

/// Writes the addresses of arguments into the descriptors of shims, in place of patches: firmware does not
/// patch on the path of opcode 22.
///
/// # Errors
/// A patch without an argument, or one that does not follow the descriptor that it patches.
pub fn relocate(stream: &TxnStream, addresses: &[u64]) -> Result<TxnStream, DriverFault> {
    let fail = |problem: String| DriverFault::Stream(problem);
    let mut out = TxnStream::new(stream.header);
    for operation in &stream.operations {
        let TxnOperation::Patch {
            register,
            argument,
            plus_bytes,
        } = operation.operation
        else {
            out.operations.push(operation.clone());
            continue;
        };
        let address = addresses.get(argument as usize);
        let address =
            address.ok_or_else(|| fail(format!("argument {argument} of {}", addresses.len())))?;
        let whole = address
            .checked_add(plus_bytes)
            .and_then(|sum| sum.checked_add(DDR_APERTURE));
        let whole = whole.filter(|sum| sum.is_multiple_of(4));
        let whole = whole.ok_or_else(|| fail(format!("a distance of {plus_bytes} bytes")))?;
        let is_it = |at: u32| u64::from(at) + 4 == register;
        let written = out
            .operations
            .iter_mut()
            .rev()
            .find_map(|op| match &mut op.operation {
                TxnOperation::BlockWrite { address, data } if is_it(*address) => Some(data),
                _ => None,
            });
        let written = written
            .ok_or_else(|| fail(format!("a patch of {register:#x}, which is no descriptor")))?;
        let record = Record::read(&SHIM, written).and_then(|record| {
            let base = record.get(WordField::Base) + whole / 4;
            record.with(&[(WordField::Base, base)])
        });
        *written = record.map_err(|error| fail(error.to_string()))?.words();
    }
    Ok(out)
}
