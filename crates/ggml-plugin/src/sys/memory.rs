//! Memory of a device: buffers of the plugin that hold weights as the file has them. The device is notified of every change.

use super::abi::{AbiLayout, AbiTensor, BufferTable, BufferType};
use super::border::guard;
use super::log;
use super::objects::DeviceObject;
use super::probe::table_len;
use super::tensor::HostTensor;
use std::ffi::c_void;
use std::ops::Range;

/// Size of a page: devices that share memory want buffers to begin on one.
const ALIGNMENT: usize = 4096;

/// Size of a huge page of x86-64, and of aarch64 with pages of 4 KiB.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// Asks for huge pages for the whole ones within `size` bytes from `base`: prefetchers of hardware stop at the end of a page. Best
/// effort: without them everything works.
///
/// # Safety
/// The bytes are one allocation's.
pub(crate) unsafe fn advise_huge_pages(base: *mut c_void, size: usize) {
    #[cfg(target_os = "linux")]
    {
        let skipped = (base as usize).next_multiple_of(HUGE_PAGE) - base as usize;
        let len = size.saturating_sub(skipped) / HUGE_PAGE * HUGE_PAGE;
        if len > 0 {
            let advice = rustix::mm::Advice::LinuxHugepage;
            // SAFETY: within the allocation by the caller's promise; the advice changes no contents.
            let _ = unsafe { rustix::mm::madvise(base.byte_add(skipped), len, advice) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (base, size);
}

/// Memory that was given out.
struct Region {
    object: &'static DeviceObject,
    layout: std::alloc::Layout,
    base: *mut u8,
}

impl Region {
    fn range(&self) -> Range<usize> {
        self.base as usize..self.base as usize + self.layout.size()
    }

    fn changed(&self, bytes: Range<usize>) {
        if let Some(memory) = self.object.behind.own_memory() {
            memory.changed(bytes);
        }
    }
}

/// Allocates a buffer; null without memory.
pub(crate) fn alloc(
    object: &'static DeviceObject,
    buffers: *mut BufferType,
    size: usize,
) -> *mut c_void {
    let Ok(layout) = std::alloc::Layout::from_size_align(size.max(1), ALIGNMENT) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the size is not zero.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    if base.is_null() {
        return std::ptr::null_mut();
    }
    let region = Box::new(Region {
        object,
        layout,
        base,
    });
    if let Some(memory) = object.behind.own_memory() {
        memory.add(region.range());
    }
    let context = Box::into_raw(region).cast();
    // SAFETY: the host's own function, with the table of its layout.
    unsafe {
        match object.found.layout {
            AbiLayout::Before2d => {
                (object.host.buffer_init_before_2d)(buffers, table(), context, size)
            }
            AbiLayout::With2d => (object.host.buffer_init_with_2d)(buffers, table(), context, size),
        }
    }
}

fn table<const N_2D: usize>() -> BufferTable<N_2D> {
    BufferTable {
        free_buffer: free::<N_2D>,
        get_base: base::<N_2D>,
        init_tensor: None,
        memset_tensor: memset::<N_2D>,
        set_tensor: set::<N_2D>,
        get_tensor: get::<N_2D>,
        tensors_2d: [None; N_2D],
        cpy_tensor: None,
        clear: clear::<N_2D>,
        reset: None,
    }
}

/// The region of a buffer.
fn region<'a, const N_2D: usize>(buffer: *mut c_void) -> &'a Region {
    let layout = match N_2D {
        0 => AbiLayout::Before2d,
        _ => AbiLayout::With2d,
    };
    // SAFETY: hosts call functions of a buffer with that buffer until they free it; after its table are its type and its context, as the
    // probe saw.
    unsafe { &**buffer.cast::<*const Region>().add(table_len(layout) + 1) }
}

extern "C" fn free<const N_2D: usize>(buffer: *mut c_void) {
    guard("free_buffer", (), || {
        let at: *const Region = region::<N_2D>(buffer);
        // SAFETY: boxed in `alloc`; a host frees a buffer once, as the last thing it does with it. Nobody reads the
        // memory afterwards: everything derived from it is forgotten first.
        unsafe {
            let region = Box::from_raw(at.cast_mut());
            if let Some(memory) = region.object.behind.own_memory() {
                memory.remove(region.range());
            }
            std::alloc::dealloc(region.base, region.layout);
        }
    });
}

extern "C" fn base<const N_2D: usize>(buffer: *mut c_void) -> *mut c_void {
    region::<N_2D>(buffer).base.cast()
}

/// The bytes `offset .. offset + size` of a tensor; `None` where they are not all in the region.
fn bytes(
    region: &Region,
    tensor: *const AbiTensor,
    offset: usize,
    size: usize,
) -> Option<Range<usize>> {
    // SAFETY: the host passes one of its tensors.
    let start = (unsafe { (*tensor).data } as usize).checked_add(offset)?;
    let end = start.checked_add(size)?;
    let of_region = region.range();
    (of_region.start <= start && end <= of_region.end).then_some(start..end)
}

extern "C" fn set<const N_2D: usize>(
    buffer: *mut c_void,
    tensor: *mut AbiTensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    guard("set_tensor", (), || {
        let region = region::<N_2D>(buffer);
        let object = region.object;
        let Some(range) = bytes(region, tensor, offset, size) else {
            return log::error(&object.host, "millrace: a tensor that is not in its buffer");
        };
        region.changed(range.clone());
        // SAFETY: inside the region, as was just seen; the host passes as many bytes, which are elsewhere.
        unsafe { std::ptr::copy(data.cast::<u8>(), range.start as *mut u8, size) };
        // SAFETY: the host's tensor, which it leaves alone during the call.
        let Some(tensor) = (unsafe { HostTensor::new(tensor, &object.host) }) else {
            return;
        };
        let is_whole = offset == 0 && tensor.bytes().is_ok_and(|all| all.len() == size);
        if is_whole && let Err(error) = object.behind.place(&tensor) {
            let (name, device) = (tensor.name(), object.behind.name());
            let message =
                format!("millrace: weight `{name}` cannot be placed on device {device}: {error}");
            log::error(&object.host, &message);
        }
    });
}

extern "C" fn get<const N_2D: usize>(
    buffer: *mut c_void,
    tensor: *const AbiTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    guard("get_tensor", (), || {
        let region = region::<N_2D>(buffer);
        match bytes(region, tensor, offset, size) {
            // SAFETY: inside the region; the host passes room for as many bytes elsewhere.
            Some(range) => unsafe {
                std::ptr::copy(range.start as *const u8, data.cast::<u8>(), size);
            },
            None => log::error(
                &region.object.host,
                "millrace: a tensor that is not in its buffer",
            ),
        }
    });
}

extern "C" fn memset<const N_2D: usize>(
    buffer: *mut c_void,
    tensor: *mut AbiTensor,
    value: u8,
    offset: usize,
    size: usize,
) {
    guard("memset_tensor", (), || {
        let region = region::<N_2D>(buffer);
        if let Some(range) = bytes(region, tensor, offset, size) {
            region.changed(range.clone());
            // SAFETY: inside the region.
            unsafe { std::ptr::write_bytes(range.start as *mut u8, value, size) };
        }
    });
}

extern "C" fn clear<const N_2D: usize>(buffer: *mut c_void, value: u8) {
    guard("clear", (), || {
        let region = region::<N_2D>(buffer);
        region.changed(region.range());
        // SAFETY: the whole region.
        unsafe { std::ptr::write_bytes(region.base, value, region.layout.size()) };
    });
}
