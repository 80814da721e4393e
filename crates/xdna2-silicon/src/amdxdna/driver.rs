//! From a stream and arguments to a command, and back.

use super::packet::{self, CommandState};
use super::{
    AmdxdnaNode, ArrayShape, BoKind, DriverFault, Errno, FirmwareVersion, HEAP_BYTES, HwContext,
    NPU2, SyncTo, relocate,
};
use millrace_xdna2_words::TxnStream;

/// How long a command may take, in nanoseconds. The kernel's watchdog ends a command after two seconds without
/// progress. A command that has not ended by then will not end.
const TIMEOUT_NS: i64 = 10_000_000_000;
/// Bytes of a command's object: a page, which the kernel maps.
const COMMAND_BYTES: u64 = 4096;

/// Versions that a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceVersions {
    /// The firmware's release.
    pub firmware: FirmwareVersion,
    /// The array's version: major and minor number.
    pub array: (u32, u32),
    /// The array.
    pub shape: ArrayShape,
}

/// A buffer object that both sides see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeviceBo {
    handle: u32,
    xdna_addr: u64,
}

/// An open device with a context on all of its columns.
pub struct AmdxdnaDriver<N: AmdxdnaNode> {
    node: N,
    versions: DeviceVersions,
    heap: Option<u32>,
    context: Option<HwContext>,
    command: CommandCost,
}

/// Cost of the last command that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommandCost {
    /// From its submission to its end, in nanoseconds, without its buffers and their copies. If the node models time,
    /// this is the modelled time.
    pub ns: f64,
    /// Bytes of its stream, with the addresses of its arguments in place of patches.
    pub stream_bytes: usize,
}

impl<N: AmdxdnaNode> AmdxdnaDriver<N> {
    /// Queries the device, makes a heap and a context.
    ///
    /// # Errors
    /// An array that is not an NPU2's; a call that the kernel refuses. Nothing is left open then.
    pub fn open(mut node: N) -> Result<AmdxdnaDriver<N>, DriverFault> {
        let asked = DriverFault::of("GET_INFO");
        let versions = DeviceVersions {
            firmware: node.firmware().map_err(&asked)?,
            array: node.array_version().map_err(&asked)?,
            shape: node.array_shape().map_err(&asked)?,
        };
        if versions.shape != NPU2 {
            return Err(DriverFault::Array(versions.shape));
        }
        let mut driver = AmdxdnaDriver {
            node,
            versions,
            heap: None,
            context: None,
            command: CommandCost::default(),
        };
        match driver.prepare() {
            Ok(()) => Ok(driver),
            Err(fault) => {
                // The first fault is the one to tell.
                let _ = driver.release();
                Err(fault)
            }
        }
    }

    fn prepare(&mut self) -> Result<(), DriverFault> {
        let heap = self.node.create_bo(BoKind::DevHeap, HEAP_BYTES);
        let heap = heap.map_err(DriverFault::of("CREATE_BO of a heap"))?;
        self.heap = Some(heap);
        self.place(heap)?;
        self.context().map(|_| ())
    }

    /// The context; another one where the last was lost.
    fn context(&mut self) -> Result<HwContext, DriverFault> {
        if let Some(context) = self.context {
            return Ok(context);
        }
        let n_cores = u32::from(NPU2.cols) * u32::from(NPU2.core_rows);
        let made = self.node.create_context(n_cores);
        let context = made.map_err(DriverFault::of("CREATE_HWCTX"))?;
        self.context = Some(context);
        Ok(context)
    }

    /// Versions that the device reported.
    pub fn versions(&self) -> DeviceVersions {
        self.versions
    }

    /// Cost of the last command.
    pub fn command(&self) -> CommandCost {
        self.command
    }

    /// The node, to look at.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// Releases everything.
    ///
    /// # Errors
    /// The first call that failed; the others were made all the same.
    pub fn close(mut self) -> Result<(), DriverFault> {
        self.release()
    }

    fn release(&mut self) -> Result<(), DriverFault> {
        let ended = self.drop_context();
        let closed = match self.heap.take() {
            Some(heap) => self
                .node
                .close_bo(heap)
                .map_err(DriverFault::of("GEM_CLOSE")),
            None => Ok(()),
        };
        ended.and(closed)
    }

    /// Ends the context, and any command that runs on it. Its timeline has a separate handle.
    fn drop_context(&mut self) -> Result<(), DriverFault> {
        let Some(context) = self.context.take() else {
            return Ok(());
        };
        let destroyed = self.node.destroy_context(context.handle);
        let forgotten = self.node.destroy_syncobj(context.syncobj);
        destroyed
            .map_err(DriverFault::of("DESTROY_HWCTX"))
            .and(forgotten.map_err(DriverFault::of("SYNCOBJ_DESTROY")))
    }

    /// Executes a stream on arguments, which it reads and writes.
    ///
    /// # Errors
    /// A call that the kernel refuses; a command that did not end as expected. All buffer objects are freed either way.
    /// The next run has a context that works, or says why there is none.
    pub fn run(
        &mut self,
        stream: &TxnStream,
        arguments: &mut [Vec<u8>],
    ) -> Result<(), DriverFault> {
        let mut objects = Vec::new();
        let ended = self.execute(stream, arguments, &mut objects);
        let mut closed = Ok(());
        for object in objects {
            closed = closed.and(self.node.close_bo(object));
        }
        ended.and(closed.map_err(DriverFault::of("GEM_CLOSE")))
    }

    /// Maps an object, and returns where it is: the address of host memory is known once it is mapped.
    fn place(&mut self, handle: u32) -> Result<DeviceBo, DriverFault> {
        let asked = DriverFault::of("GET_BO_INFO");
        let info = self.node.bo_info(handle).map_err(&asked)?;
        self.node
            .map(handle, info)
            .map_err(DriverFault::of("mmap"))?;
        let xdna_addr = self.node.bo_info(handle).map_err(&asked)?.xdna_addr;
        Ok(DeviceBo { handle, xdna_addr })
    }

    /// An object with content that the device sees.
    fn object(
        &mut self,
        (kind, size_bytes): (BoKind, u64),
        content: &[u8],
        all: &mut Vec<u32>,
    ) -> Result<DeviceBo, DriverFault> {
        let made = self.node.create_bo(kind, size_bytes.max(4));
        let handle = made.map_err(DriverFault::of("CREATE_BO"))?;
        all.push(handle);
        let object = self.place(handle)?;
        let mapping = self.node.mapping(handle).map_err(DriverFault::of("mmap"))?;
        let (own, rest) = mapping
            .split_at_mut_checked(content.len())
            .ok_or(DriverFault::of("mmap")(Errno::INVAL))?;
        own.copy_from_slice(content);
        rest.fill(0);
        let synced = self.node.sync_bo(handle, SyncTo::Device);
        synced.map_err(DriverFault::of("SYNC_BO"))?;
        Ok(object)
    }

    fn execute(
        &mut self,
        stream: &TxnStream,
        arguments: &mut [Vec<u8>],
        all: &mut Vec<u32>,
    ) -> Result<(), DriverFault> {
        let mut data = Vec::new();
        for argument in arguments.iter() {
            let size_bytes = argument.len() as u64;
            data.push(self.object((BoKind::Share, size_bytes), argument, all)?);
        }
        let addresses: Vec<u64> = data.iter().map(|object| object.xdna_addr).collect();
        let words = bytes(&relocate(stream, &addresses)?.encode());
        self.command.stream_bytes = words.len();
        let code = self.object((BoKind::Dev, words.len() as u64), &words, all)?;
        let packet = bytes(&packet::command(code.xdna_addr, words.len() as u32));
        let command = self.object((BoKind::Command, COMMAND_BYTES), &packet, all)?;
        let mut touched: Vec<u32> = data.iter().map(|object| object.handle).collect();
        touched.push(code.handle);
        let ended = self.submit(command.handle, &touched);
        if let Err(fault) = ended {
            // Nothing may touch the objects when they are closed.
            return Err(self.renewed(fault));
        }
        for (argument, object) in arguments.iter_mut().zip(data) {
            let content = self.fetch(object.handle)?;
            let n = argument.len();
            argument.copy_from_slice(&content[..n]);
        }
        Ok(())
    }

    /// The content of an object, as the device left it.
    fn fetch(&mut self, handle: u32) -> Result<&[u8], DriverFault> {
        let synced = self.node.sync_bo(handle, SyncTo::Host);
        synced.map_err(DriverFault::of("SYNC_BO"))?;
        let mapping = self.node.mapping(handle);
        Ok(mapping.map_err(DriverFault::of("mmap"))?)
    }

    /// Executes a command and waits for its end.
    fn submit(&mut self, command: u32, touched: &[u32]) -> Result<(), DriverFault> {
        let context = self.context()?;
        let start_ns = self.node.now_ns();
        let number = match self.node.execute(context.handle, command, touched) {
            Err(Errno::OPNOTSUPP) => return Err(DriverFault::Unsupported(self.versions.firmware)),
            answer => answer.map_err(DriverFault::of("EXEC_CMD"))?,
        };
        let deadline_ns = self.node.now_ns() + TIMEOUT_NS;
        let waited = self.node.wait(context.syncobj, number, deadline_ns);
        waited.map_err(DriverFault::of("SYNCOBJ_TIMELINE_WAIT"))?;
        let elapsed_ns = (self.node.now_ns() - start_ns) as f64;
        self.command.ns = self.node.modelled_ns().unwrap_or(elapsed_ns);
        let header = self.fetch(command)?.first().copied().unwrap_or_default();
        match CommandState::of(header.into()) {
            Some(CommandState::Completed) => Ok(()),
            Some(CommandState::New) => Err(DriverFault::Unsupported(self.versions.firmware)),
            Some(state) => Err(DriverFault::Command { state }),
            None => Err(DriverFault::Command {
                state: CommandState::Error,
            }),
        }
    }

    /// Ends the context after a fault and makes another one.
    fn renewed(&mut self, fault: DriverFault) -> DriverFault {
        let renewed = self.drop_context().and_then(|()| self.context());
        match renewed {
            Err(DriverFault::Kernel { call, errno }) => DriverFault::ContextLost {
                fault: Box::new(fault),
                call,
                errno,
            },
            _ => fault,
        }
    }
}

/// Words as bytes in memory order.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
