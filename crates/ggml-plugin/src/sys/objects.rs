//! Objects that the host sees: a registry, its devices, their buffer types and backends, and the functions behind them.

use super::abi::{
    API_VERSION, AbiDevice, AbiLayout, AbiTensor, BufferType, COPIES_BEFORE_2D, COPIES_WITH_2D,
    Caps, Props, Registry, TYPE_ACCEL, TYPE_GPU,
};
use super::backends::{backend_threads, device_open};
use super::border::guard;
use super::cpu_backend;
use super::host::Functions;
use super::memory;
use super::probe::HostProbe;
use super::tensor::HostTensor;
use crate::device::{self, WeightsIn, is_view};
use crate::report::DeviceReport;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

/// The registry's name.
const NAME: &CStr = c"Millrace";

/// A loaded plugin. It lives as long as the process: hosts keep pointers into it.
pub(crate) struct Plugin {
    registry: Registry,
    layout: AbiLayout,
    devices: Vec<DeviceObject>,
}

// SAFETY: pointers in it are to itself and to the host's functions, and nothing in it changes once it is made; devices are `Sync`.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

/// A device as the host sees it, with its implementation.
pub(crate) struct DeviceObject {
    device: AbiDevice,
    buffers: BufferType,
    /// If the device has its own memory: its buffer type, and a list of it for the host.
    weights: BufferType,
    weights_list: [*mut BufferType; 2],
    pub(super) name: CString,
    weights_name: CString,
    description: CString,
    pub(crate) host: Functions,
    pub(crate) found: HostProbe,
    pub(crate) behind: Box<dyn device::PluginDevice>,
    pub(super) report: Option<Arc<DeviceReport>>,
    pub(super) fail: Option<String>,
}

impl DeviceObject {
    /// Without the pointers to itself and to the registry.
    fn new(
        host: Functions,
        found: HostProbe,
        behind: Box<dyn device::PluginDevice>,
    ) -> DeviceObject {
        DeviceObject {
            device: device_table(),
            buffers: buffer_table(),
            weights: BufferType {
                get_name: weights_name,
                alloc_buffer: weights_alloc,
                get_alignment: weights_alignment,
                ..buffer_table()
            },
            weights_list: [std::ptr::null_mut(); 2],
            name: c_string(behind.name()),
            weights_name: c_string(&format!("{}_Weights", behind.name())),
            description: c_string(&behind.description()),
            host,
            found,
            behind,
            report: None,
            fail: None,
        }
    }
}

impl Plugin {
    /// Builds the objects that the host sees of these devices.
    pub(crate) fn new(
        host: Functions,
        found: HostProbe,
        devices: Vec<Box<dyn device::PluginDevice>>,
        report: Option<&Arc<DeviceReport>>,
        fail: Option<&str>,
    ) -> &'static Plugin {
        let mut plugin = Box::new(Plugin {
            registry: Registry {
                api_version: API_VERSION,
                get_name: registry_name,
                get_device_count: registry_count,
                get_device: registry_device,
                get_proc_address: registry_function,
                context: std::ptr::null_mut(),
            },
            layout: found.layout,
            devices: Vec::new(),
        });
        for behind in devices {
            plugin.devices.push(DeviceObject {
                report: report.cloned(),
                fail: fail.map(str::to_owned),
                ..DeviceObject::new(host, found, behind)
            });
        }
        let at = Box::into_raw(plugin);
        // SAFETY: leaked just now, so that it stays where it is; there is no other reference yet, and only raw pointers are made of it.
        unsafe {
            let registry = &raw mut (*at).registry;
            (*registry).context = at.cast();
            let objects = &mut (*at).devices;
            let (n, objects) = (objects.len(), objects.as_mut_ptr());
            for index in 0..n {
                let object = objects.add(index);
                let device = &raw mut (*object).device;
                (*device).reg = registry;
                (*device).context = object.cast();
                for buffers in [&raw mut (*object).buffers, &raw mut (*object).weights] {
                    (*buffers).device = device;
                    (*buffers).context = object.cast();
                }
                (*object).weights_list[0] = &raw mut (*object).weights;
            }
            &*at
        }
    }

    /// The registry that `ggml_backend_init` returns.
    pub(crate) fn registry(&'static self) -> *mut Registry {
        (&raw const self.registry).cast_mut()
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

fn device_table() -> AbiDevice {
    AbiDevice {
        get_name: device_name,
        get_description: device_description,
        get_memory: device_memory,
        get_type: device_type,
        get_props: device_props,
        init_backend: device_open,
        get_buffer_type: device_buffers,
        get_host_buffer_type: None,
        buffer_from_host_ptr: device_wrap,
        supports_op: device_supports,
        supports_buft: device_reaches,
        offload_op: None,
        events: [None; 3],
        reg: std::ptr::null_mut(),
        context: std::ptr::null_mut(),
    }
}

fn buffer_table() -> BufferType {
    BufferType {
        get_name: buffers_name,
        alloc_buffer: buffers_alloc,
        get_alignment: buffers_alignment,
        get_max_size: None,
        get_alloc_size: None,
        is_host: Some(buffers_are_host),
        device: std::ptr::null_mut(),
        context: std::ptr::null_mut(),
    }
}

// Registry.

/// The plugin of a registry.
fn plugin(registry: *mut Registry) -> &'static Plugin {
    // SAFETY: hosts call functions of a registry with that registry; its context is the plugin, which lives on.
    unsafe { &*(*registry).context.cast::<Plugin>() }
}

extern "C" fn registry_name(_: *mut Registry) -> *const c_char {
    NAME.as_ptr()
}

extern "C" fn registry_count(registry: *mut Registry) -> usize {
    plugin(registry).devices.len()
}

extern "C" fn registry_device(registry: *mut Registry, index: usize) -> *mut AbiDevice {
    let object = plugin(registry).devices.get(index);
    object.map_or(std::ptr::null_mut(), |object| {
        (&raw const object.device).cast_mut()
    })
}

extern "C" fn registry_function(registry: *mut Registry, name: *const c_char) -> *mut c_void {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: hosts name functions with strings that have their ends.
    let name = unsafe { CStr::from_ptr(name) };
    if name == c"ggml_backend_dev_get_extra_bufts" {
        return device_extra_buffers as *mut c_void;
    }
    if name != c"ggml_backend_set_n_threads" {
        return std::ptr::null_mut();
    }
    let function: extern "C" fn(*mut c_void, c_int) = match plugin(registry).layout {
        AbiLayout::Before2d => backend_threads::<COPIES_BEFORE_2D>,
        AbiLayout::With2d => backend_threads::<COPIES_WITH_2D>,
    };
    function as *mut c_void
}

// Devices.

/// The object behind a device.
pub(super) fn object(device: *mut AbiDevice) -> &'static DeviceObject {
    // SAFETY: hosts call functions of a device with that device; its context is the object, which lives on.
    unsafe { &*(*device).context.cast::<DeviceObject>() }
}

extern "C" fn device_name(device: *mut AbiDevice) -> *const c_char {
    object(device).name.as_ptr()
}

extern "C" fn device_description(device: *mut AbiDevice) -> *const c_char {
    object(device).description.as_ptr()
}

extern "C" fn device_memory(device: *mut AbiDevice, free: *mut usize, total: *mut usize) {
    let (n_free, n_total) = guard("get_memory", (0, 0), || object(device).behind.memory());
    // SAFETY: the host passes places for both numbers.
    unsafe {
        *free = n_free;
        *total = n_total;
    }
}

/// A device with its own memory, or one that takes every op, is a GPU in ggml's terms. Any other is an accelerator.
extern "C" fn device_type(device: *mut AbiDevice) -> c_int {
    guard("get_type", TYPE_ACCEL, || {
        let behind = &object(device).behind;
        match behind.own_memory().is_some() || behind.takes_all() {
            true => TYPE_GPU,
            false => TYPE_ACCEL,
        }
    })
}

extern "C" fn device_props(device: *mut AbiDevice, props: *mut Props) {
    let (memory_free, memory_total) = guard("get_props", (0, 0), || object(device).behind.memory());
    let object = object(device);
    let maps_files = guard("get_props", true, || object.behind.maps_files());
    // SAFETY: the host passes a place for the structure.
    unsafe {
        props.write(Props {
            name: object.name.as_ptr(),
            description: object.description.as_ptr(),
            memory_free,
            memory_total,
            kind: device_type(device),
            device_id: std::ptr::null(),
            caps: Caps {
                is_async: false,
                host_buffer: false,
                buffer_from_host_ptr: maps_files,
                events: false,
                mmap_support: true,
            },
        });
    }
}

extern "C" fn device_buffers(device: *mut AbiDevice) -> *mut BufferType {
    (&raw const object(device).buffers).cast_mut()
}

/// Wraps memory that the host has already, such as a mapped file, in a buffer of the CPU's own kind.
extern "C" fn device_wrap(
    device: *mut AbiDevice,
    memory: *mut c_void,
    size: usize,
    _largest: usize,
) -> *mut c_void {
    // SAFETY: the host's own function, with the arguments that the host passed.
    unsafe { (object(device).host.cpu_buffer_from_ptr)(memory, size) }
}

extern "C" fn device_supports(device: *mut AbiDevice, op: *const AbiTensor) -> bool {
    guard("supports_op", false, || {
        let object = object(device);
        // SAFETY: the host asks about one of its tensors, which stays during the call.
        let Some(op) = (unsafe { HostTensor::new(op, &object.host) }) else {
            return false;
        };
        if is_view(&op) {
            return true;
        }
        let weights = op
            .source(0)
            .map_or(std::ptr::null_mut(), |weight| weight.buffers());
        let weights = match weights.cast_const() {
            found if found.is_null() => WeightsIn::Nothing,
            found if std::ptr::eq(found, &raw const object.weights) => WeightsIn::Own,
            _ => WeightsIn::Others,
        };
        match object.behind.supports(&op, weights) {
            Ok(()) => true,
            Err(_) if object.behind.takes_all() => cpu_backend::takes(&op, &object.host),
            Err(refusal) => {
                if let Some(report) = &object.report {
                    report.refused(object.behind.name(), &op, refusal);
                }
                false
            }
        }
    })
}

/// The device's own memory, for weights; null where it has none.
extern "C" fn device_extra_buffers(device: *mut AbiDevice) -> *const *mut BufferType {
    guard("get_extra_bufts", std::ptr::null(), || {
        let object = object(device);
        match object.behind.own_memory() {
            Some(_) => object.weights_list.as_ptr(),
            None => std::ptr::null(),
        }
    })
}

extern "C" fn device_reaches(device: *mut AbiDevice, buffers: *mut BufferType) -> bool {
    // SAFETY: the host's own function, with a type of the host.
    unsafe { (object(device).host.buft_is_host)(buffers) }
}

// Buffers: the CPU's, under this device's name, so that weights are not put into an arrangement of the CPU's own.

/// The device that a type of buffers is of.
fn object_of(buffers: *mut BufferType) -> &'static DeviceObject {
    // SAFETY: hosts call functions of a type with that type; its context is the object, which lives on.
    unsafe { &*(*buffers).context.cast::<DeviceObject>() }
}

extern "C" fn buffers_name(buffers: *mut BufferType) -> *const c_char {
    object_of(buffers).name.as_ptr()
}

extern "C" fn buffers_alloc(buffers: *mut BufferType, size: usize) -> *mut c_void {
    let host = &object_of(buffers).host;
    // SAFETY: the host's own functions; nothing else uses the buffer yet.
    unsafe {
        let buffer = (host.buft_alloc_buffer)((host.cpu_buffer_type)(), size);
        if !buffer.is_null() {
            memory::advise_huge_pages((host.buffer_base)(buffer), size);
        }
        buffer
    }
}

extern "C" fn buffers_alignment(buffers: *mut BufferType) -> usize {
    let host = &object_of(buffers).host;
    // SAFETY: the host's own functions.
    unsafe { (host.buft_alignment)((host.cpu_buffer_type)()) }
}

extern "C" fn buffers_are_host(_: *mut BufferType) -> bool {
    true
}

extern "C" fn weights_name(buffers: *mut BufferType) -> *const c_char {
    object_of(buffers).weights_name.as_ptr()
}

extern "C" fn weights_alloc(buffers: *mut BufferType, size: usize) -> *mut c_void {
    guard("alloc_buffer", std::ptr::null_mut(), || {
        memory::alloc(object_of(buffers), buffers, size)
    })
}

extern "C" fn weights_alignment(_: *mut BufferType) -> usize {
    128
}
