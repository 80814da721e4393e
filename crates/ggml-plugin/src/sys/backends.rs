//! Backends: streams of work on a device, and the graphs that they compute.

use super::abi::{
    AbiDevice, AbiLayout, Backend, BackendTable, COPIES_BEFORE_2D, COPIES_WITH_2D, STATUS_FAILED,
    STATUS_SUCCESS,
};
use super::border::{guard, words};
use super::cpu_backend::CpuBackend;
use super::graph::{self, HostNode};
use super::log;
use super::objects::{DeviceObject, object};
use crate::device::{ComputeError, DeviceStream, OpError, WeightsIn, is_view};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// This plugin's mark, which no other backend has: random bytes.
static GUID: [u8; 16] = [
    0x6d, 0x69, 0x6c, 0x6c, 0x72, 0x61, 0x63, 0x65, 0x9a, 0x41, 0x4e, 0x0f, 0xb2, 0x77, 0x1c, 0xd3,
];

/// State of a backend.
struct BackendContext {
    object: &'static DeviceObject,
    stream: Mutex<BackendStream>,
}

/// A device's stream, and the host's for the ops that the device takes without computing them.
struct BackendStream {
    device: Box<dyn DeviceStream>,
    cpu: Option<CpuBackend>,
}

/// Who computes ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computes {
    Device,
    HostCpu,
}

/// Nodes that follow each other and are computed by one.
struct GraphPart {
    computes: Computes,
    nodes: Range<usize>,
}

impl BackendStream {
    /// Opens a stream on the device.
    fn open(object: &DeviceObject) -> Result<BackendStream, String> {
        let device = object.behind.open()?;
        let cpu = match object.behind.takes_all() {
            true => Some(CpuBackend::open(&object.host)?),
            false => None,
        };
        Ok(BackendStream { device, cpu })
    }

    fn set_threads(&mut self, n: usize) {
        self.device.set_threads(n);
        if let Some(cpu) = &mut self.cpu {
            cpu.set_threads(n);
        }
    }

    /// Who computes which nodes, in their order.
    fn parts(&self, object: &DeviceObject, nodes: &[HostNode<'_>]) -> Vec<GraphPart> {
        let mut parts: Vec<GraphPart> = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let taken = || object.behind.supports(node.tensor(), WeightsIn::Others);
            let computes = match self.cpu.is_none() || taken().is_ok() {
                true => Computes::Device,
                false => Computes::HostCpu,
            };
            match parts.last_mut() {
                Some(part) if part.computes == computes => part.nodes.end = i + 1,
                _ => parts.push(GraphPart {
                    computes,
                    nodes: i..i + 1,
                }),
            }
        }
        parts
    }

    /// Computes nodes; an error has the number of the node.
    fn compute(
        &mut self,
        computes: Computes,
        nodes: &mut [HostNode<'_>],
    ) -> Result<(), (usize, OpError)> {
        match (&mut self.cpu, computes) {
            (Some(cpu), Computes::HostCpu) => cpu.compute(nodes).map_err(|error| (0, error)),
            _ => self.device.compute(nodes),
        }
    }
}

pub(super) extern "C" fn device_open(
    device: *mut AbiDevice,
    _params: *const c_char,
) -> *mut c_void {
    guard("init_backend", std::ptr::null_mut(), || {
        let object = object(device);
        let stream = match BackendStream::open(object) {
            Ok(stream) => stream,
            Err(cause) => {
                let name = object.behind.name();
                log::error(
                    &object.host,
                    &format!("millrace: device {name} cannot be used: {cause}"),
                );
                return std::ptr::null_mut();
            }
        };
        let stream = Mutex::new(stream);
        let running = Box::into_raw(Box::new(BackendContext { object, stream })).cast();
        match object.found.layout {
            AbiLayout::Before2d => backend::<COPIES_BEFORE_2D>(device, running),
            AbiLayout::With2d => backend::<COPIES_WITH_2D>(device, running),
        }
    })
}

/// A backend of either layout.
fn backend<const N: usize>(device: *mut AbiDevice, context: *mut c_void) -> *mut c_void {
    let table = BackendTable::<N> {
        get_name: backend_name::<N>,
        free: backend_free::<N>,
        copies: [None; N],
        synchronize: None,
        plans: [None; 4],
        graph_compute: backend_compute::<N>,
        events: [None; 2],
        graph_optimize: None,
    };
    let guid = &raw const GUID;
    Box::into_raw(Box::new(Backend {
        guid,
        table,
        device,
        context,
    }))
    .cast()
}

/// State of a backend of layout `N`.
fn running<'a, const N: usize>(backend: *mut c_void) -> &'a BackendContext {
    // SAFETY: `backend` made the backend with this layout's functions, and hosts call them with it until they free it.
    unsafe {
        &*(*backend.cast::<Backend<N>>())
            .context
            .cast::<BackendContext>()
    }
}

extern "C" fn backend_name<const N: usize>(backend: *mut c_void) -> *const c_char {
    running::<N>(backend).object.name.as_ptr()
}

extern "C" fn backend_free<const N: usize>(backend: *mut c_void) {
    guard("free", (), || {
        // SAFETY: both were boxed in `device_open`, and a host frees a backend once, as the last thing it does with it.
        unsafe {
            let backend = Box::from_raw(backend.cast::<Backend<N>>());
            drop(Box::from_raw(backend.context.cast::<BackendContext>()));
        }
    });
}

pub(super) extern "C" fn backend_threads<const N: usize>(backend: *mut c_void, n: c_int) {
    guard("set_n_threads", (), || {
        let mut stream = running::<N>(backend)
            .stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stream.set_threads(usize::try_from(n).unwrap_or(1).max(1));
    });
}

extern "C" fn backend_compute<const N: usize>(backend: *mut c_void, graph: *mut c_void) -> c_int {
    guard("graph_compute", STATUS_FAILED, || {
        let running = running::<N>(backend);
        match compute(running, graph) {
            Ok(()) => STATUS_SUCCESS,
            Err(failed) => {
                log::error(&running.object.host, &format!("millrace: {failed}"));
                STATUS_FAILED
            }
        }
    })
}

/// Computes a graph; a panic is a failure of the node at which it happened.
fn compute(running: &BackendContext, graph: *mut c_void) -> Result<(), ComputeError> {
    let object = running.object;
    // SAFETY: the host passes one of its graphs, and leaves it and its memory alone during the call.
    let mut nodes = unsafe { graph::nodes(graph, &object.host, object.found) };
    nodes.retain(|node| !is_view(node.tensor()));
    let failed = |at: usize, cause: String| ComputeError {
        op: nodes
            .get(at)
            .map_or("", |node| node.tensor().op())
            .to_owned(),
        tensor: nodes
            .get(at)
            .map_or(String::new(), |node| node.tensor().name()),
        device: object.behind.name().to_owned(),
        cause,
    };
    if let Some(part) = &object.fail {
        let at = nodes
            .iter()
            .position(|node| node.tensor().name().contains(part));
        if let Some(at) = at {
            return Err(failed(at, OpError::Injected.to_string()));
        }
    }
    let mut work = nodes.clone();
    let mut stream = running
        .stream
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for part in stream.parts(object, &nodes) {
        let start = part.nodes.start;
        let of_part = &mut work[part.nodes.clone()];
        let computed = catch_unwind(AssertUnwindSafe(|| stream.compute(part.computes, of_part)));
        match computed {
            Ok(Ok(())) => {}
            Ok(Err((at, error))) => return Err(failed(start + at, error.to_string())),
            Err(payload) => {
                let cause = format!("internal error: {}", words(&*payload));
                return Err(failed(start, cause));
            }
        }
        if let (Some(report), Computes::Device) = (&object.report, part.computes) {
            let tensors = nodes[part.nodes].iter().map(|node| *node.tensor());
            report.taken(object.behind.name(), tensors);
        }
    }
    Ok(())
}
