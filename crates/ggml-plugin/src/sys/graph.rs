//! The nodes of a graph that the host wants computed.

use super::host::Functions;
use super::probe::HostProbe;
use super::tensor::{DataError, HostTensor};
use std::ffi::c_void;

/// A node to be computed: a tensor whose result may be written.
#[derive(Clone, Copy)]
pub(crate) struct HostNode<'a>(HostTensor<'a>);

impl<'a> HostNode<'a> {
    /// The tensor.
    pub(crate) fn tensor(&self) -> &HostTensor<'a> {
        &self.0
    }

    /// Calls `f` with the memory of all results of `nodes`.
    ///
    /// # Errors
    /// No memory, or a result that shares memory with another or with a source of any of them.
    pub(crate) fn write<R>(
        nodes: &mut [HostNode<'a>],
        f: impl FnOnce(Vec<&mut [f32]>) -> R,
    ) -> Result<R, DataError> {
        for (i, node) in nodes.iter().enumerate() {
            for (j, other) in nodes.iter().enumerate() {
                let shares = i != j && node.0.overlaps(&other.0)?;
                if shares || other.0.has_source_in(&node.0)? {
                    return Err(DataError::Shared);
                }
            }
        }
        // SAFETY: no result shares memory with another or with an operand, as checked above; the host computes nothing else in them
        // while the graph is computed; `nodes` is borrowed mutably, and the slices end with the call.
        let results: Result<Vec<_>, _> =
            nodes.iter().map(|node| unsafe { node.0.write() }).collect();
        results.map(f)
    }

    /// Calls `f` with the memory of the result and the numbers of `sources`, tensors of f32 without gaps: `None` for one in whose place
    /// the result is written.
    ///
    /// # Errors
    /// No memory, or a result that shares some memory with a source and not all.
    pub(crate) fn update<R, const N: usize>(
        &mut self,
        sources: [&HostTensor<'_>; N],
        f: impl FnOnce(&mut [f32], [Option<&[f32]>; N]) -> R,
    ) -> Result<R, DataError> {
        let mut numbers = [None; N];
        for (numbers, source) in numbers.iter_mut().zip(sources) {
            if source.is_in_place_of(&self.0)? {
                continue;
            }
            if source.overlaps(&self.0)? {
                return Err(DataError::Shared);
            }
            *numbers = Some(source.floats()?);
        }
        // SAFETY: no slice in `numbers` shares memory with the result, as checked above; the host computes nothing else in it while the
        // graph is computed; `self` is borrowed mutably, and the slice ends with the call.
        Ok(f(unsafe { self.0.write()? }, numbers))
    }
}

/// The graph's nodes that are to be computed, in order.
///
/// # Safety
/// `graph` is a graph of the host, whose tensors stay as they are for `'a` and whose results have no other reference.
pub(crate) unsafe fn nodes<'a>(
    graph: *mut c_void,
    host: &'a Functions,
    found: HostProbe,
) -> Vec<HostNode<'a>> {
    // SAFETY: a graph of the host by the caller's promise, and numbers below the count.
    let n = unsafe { (host.graph_n_nodes)(graph) };
    let nodes = (0..n).filter_map(|i| {
        // SAFETY: as above.
        unsafe { HostTensor::new((host.graph_node)(graph, i), host) }
    });
    nodes
        .filter(|tensor| !found.marks_nodes || tensor.is_marked())
        .map(HostNode)
        .collect()
}
