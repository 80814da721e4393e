//! From a stream and arguments to a command, and back.

use super::packet::{self, CommandState};
use super::{AmdxdnaNode, BoKind, DeviceBo, Errno, FirmwareVersion, SyncTo};
use millrace_xdna2_words::descriptor::SHIM;
use millrace_xdna2_words::{Record, TxnOperation, TxnStream, WordField};

/// The least firmware that takes a stream without a PDI.
pub const FIRMWARE: FirmwareVersion = FirmwareVersion {
    major: 6,
    minor: 15,
};
/// The unit of heaps.
const HEAP_BYTES: u64 = 64 << 20;
/// What the array's DMA adds to an address of the host: its aperture of DDR (XRT's `elf_patcher`).
pub const DDR_APERTURE: u64 = 0x8000_0000;
/// The watchdog ends a command after two seconds without progress.
const TIMEOUT_MS: u32 = 4000;

/// Why a stream did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverFault {
    /// The kernel refused.
    #[error("{what}: {errno}")]
    Kernel {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
    /// The firmware is too old.
    #[error(
        "firmware {found_major}.{found_minor}: streams without a PDI need 6.15; update linux-firmware (amdnpu) and the kernel"
    )]
    Firmware {
        /// Major number.
        found_major: u32,
        /// Minor number.
        found_minor: u32,
    },
    /// The command ended otherwise than it should.
    #[error("the command ended as {state:?}{}", hint(.state))]
    Command {
        /// How.
        state: CommandState,
    },
    /// The stream cannot be given addresses.
    #[error("{0}")]
    Stream(String),
}

/// What a state means.
fn hint(state: &CommandState) -> &'static str {
    match state {
        CommandState::Timeout => ": the watchdog saw no progress",
        _ => "",
    }
}

fn asked(what: &'static str) -> impl Fn(Errno) -> DriverFault {
    move |errno| DriverFault::Kernel { what, errno }
}

/// Writes the addresses of arguments into the descriptors of shims, in place of patches: firmware does not
/// patch on the path of opcode 22.
///
/// # Errors
/// A patch of no argument, or of what was not written just before as a descriptor.
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

/// An open device with a context on all of its columns.
pub struct AmdxdnaDriver<N: AmdxdnaNode> {
    node: N,
    context: u32,
    heap: DeviceBo,
}

impl<N: AmdxdnaNode> AmdxdnaDriver<N> {
    /// Asks for the firmware, makes a heap and a context.
    ///
    /// # Errors
    /// Firmware that is too old; what the kernel refuses.
    pub fn open(mut node: N) -> Result<AmdxdnaDriver<N>, DriverFault> {
        let found = node.firmware().map_err(asked("the firmware's version"))?;
        if found < FIRMWARE {
            return Err(DriverFault::Firmware {
                found_major: found.major,
                found_minor: found.minor,
            });
        }
        let heap = node
            .create_bo(BoKind::DevHeap, HEAP_BYTES)
            .map_err(asked("a heap"))?;
        let context = match node.create_context(8) {
            Ok(context) => context,
            Err(errno) => {
                let _ = node.close_bo(heap.handle);
                return Err(asked("a context")(errno));
            }
        };
        Ok(AmdxdnaDriver {
            node,
            context,
            heap,
        })
    }

    /// The node, to look at.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn close(mut self) -> Result<N, DriverFault> {
        self.node
            .destroy_context(self.context)
            .map_err(asked("the context's end"))?;
        self.node
            .close_bo(self.heap.handle)
            .map_err(asked("the heap's end"))?;
        Ok(self.node)
    }

    /// Executes a stream on arguments, which it reads and writes.
    ///
    /// # Errors
    /// What the kernel refuses; a command that ended otherwise than it should. All buffer objects are given
    /// back either way.
    pub fn run(
        &mut self,
        stream: &TxnStream,
        arguments: &mut [Vec<u8>],
    ) -> Result<(), DriverFault> {
        let mut objects = Vec::new();
        let ended = self.execute(stream, arguments, &mut objects);
        for object in objects {
            let _ = self.node.close_bo(object);
        }
        ended
    }

    /// An object with content that the device sees.
    fn object(
        &mut self,
        kind: BoKind,
        content: &[u8],
        all: &mut Vec<u32>,
    ) -> Result<DeviceBo, DriverFault> {
        let size = (content.len() as u64).max(4);
        let made = self
            .node
            .create_bo(kind, size)
            .map_err(asked("a buffer object"))?;
        all.push(made.handle);
        let mapping = self.node.mapping(made.handle).map_err(asked("a mapping"))?;
        mapping[..content.len()].copy_from_slice(content);
        self.node
            .sync_bo(made.handle, SyncTo::Device)
            .map_err(asked("a sync"))?;
        Ok(made)
    }

    fn execute(
        &mut self,
        stream: &TxnStream,
        arguments: &mut [Vec<u8>],
        all: &mut Vec<u32>,
    ) -> Result<(), DriverFault> {
        let mut data = Vec::new();
        for argument in arguments.iter() {
            data.push(self.object(BoKind::Share, argument, all)?);
        }
        let addresses: Vec<u64> = data.iter().map(|object| object.xdna_addr).collect();
        let bytes = |words: &[u32]| {
            words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let words = bytes(&relocate(stream, &addresses)?.encode());
        let code = self.object(BoKind::Dev, &words, all)?;
        let packet = bytes(&packet::command(code.xdna_addr, words.len() as u32));
        let command = self.object(BoKind::Share, &packet, all)?;
        let mut touched: Vec<u32> = data.iter().map(|object| object.handle).collect();
        touched.push(code.handle);
        let number = self.node.execute(self.context, command.handle, &touched);
        let number = number.map_err(asked("a submission"))?;
        self.node
            .wait(self.context, number, TIMEOUT_MS)
            .map_err(asked("the wait"))?;
        self.node
            .sync_bo(command.handle, SyncTo::Host)
            .map_err(asked("a sync"))?;
        let mapping = self
            .node
            .mapping(command.handle)
            .map_err(asked("a mapping"))?;
        let header = mapping.first().map_or(0, |&byte| u32::from(byte));
        match CommandState::of(header) {
            Some(CommandState::Completed) => {}
            state => {
                let state = state.unwrap_or(CommandState::Error);
                return Err(DriverFault::Command { state });
            }
        }
        for (argument, object) in arguments.iter_mut().zip(data) {
            self.node
                .sync_bo(object.handle, SyncTo::Host)
                .map_err(asked("a sync"))?;
            let mapping = self
                .node
                .mapping(object.handle)
                .map_err(asked("a mapping"))?;
            let n = argument.len();
            argument.copy_from_slice(&mapping[..n]);
        }
        Ok(())
    }
}
