//! The host's own threads, and its memory.

use super::client::Client;
use super::compute::{ProductCase, client};
use super::host::{BEFORE_2D, Graph, TestHost, WITH_2D};
use crate::load::load;
use crate::settings::PluginSettings;
use crate::sys::abi::{Props, STATUS_SUCCESS};
use crate::sys::host::FunctionLookup;
use millrace_quant::DType;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::Mutex;

/// A host whose CPU backend has features.
struct FeatureHost {
    host: TestHost,
    /// Whether it reports that it computes with OpenMP, and whether the runtime is present.
    says_openmp: bool,
    has_openmp: bool,
}

/// Requested regions, by their number of threads.
static REGIONS: Mutex<Vec<c_uint>> = Mutex::new(Vec::new());

struct ThreadData(*mut c_void);
// SAFETY: the data of a region is for all of its threads.
unsafe impl Sync for ThreadData {}

/// A runtime of OpenMP with fresh threads.
extern "C" fn parallel(
    function: extern "C" fn(*mut c_void),
    data: *mut c_void,
    n: c_uint,
    flags: c_uint,
) {
    assert_eq!(flags, 0);
    REGIONS.lock().expect("regions").push(n);
    let data = ThreadData(data);
    let data = &data;
    std::thread::scope(|scope| {
        for _ in 1..n {
            scope.spawn(|| function(data.0));
        }
        function(data.0);
    });
}

extern "C" fn by_name(name: *const c_char) -> *mut c_void {
    // SAFETY: the plugin names registries with strings that have their ends.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CPU");
    (&raw const REGIONS).cast_mut().cast()
}

extern "C" fn function<const OPENMP: bool>(_: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!(name, c"ggml_backend_get_features");
    features::<OPENMP> as *mut c_void
}

/// Pairs of a name and a value, up to a name that is null.
extern "C" fn features<const OPENMP: bool>(_: *mut c_void) -> *const *const c_char {
    let name = if OPENMP { c"OPENMP" } else { c"REPACK" };
    let texts = [c"AVX2", c"1", name, c"1"].map(CStr::as_ptr);
    let end = [std::ptr::null(); 2];
    // Small and few: they are never freed.
    [&texts[..], &end].concat().leak().as_ptr()
}

impl FunctionLookup for FeatureHost {
    fn find(&self, name: &CStr) -> *mut c_void {
        match name.to_str().expect("a name") {
            "GOMP_parallel" if self.has_openmp => parallel as *mut c_void,
            "ggml_backend_reg_by_name" => by_name as *mut c_void,
            "ggml_backend_reg_get_proc_address" if self.says_openmp => {
                function::<true> as *mut c_void
            }
            "ggml_backend_reg_get_proc_address" => function::<false> as *mut c_void,
            "ggml_backend_buft_alloc_buffer" => alloc as *mut c_void,
            _ => self.host.find(name),
        }
    }
}

#[test]
fn products_are_computed_on_the_hosts_threads() {
    for (says_openmp, has_openmp) in [(true, true), (false, true), (true, false)] {
        REGIONS.lock().expect("regions").clear();
        let lookup = FeatureHost {
            host: WITH_2D,
            says_openmp,
            has_openmp,
        };
        let settings = PluginSettings {
            least_rows: Some(1),
            ..PluginSettings::default()
        };
        let plugin = load(&lookup, &settings, None).expect("a plugin");
        let client = Client::new(plugin.registry(), WITH_2D);
        // SAFETY: the plugin's device.
        let words = unsafe { CStr::from_ptr(((*client.device).get_description)(client.device)) };
        let words = words.to_str().expect("a description");
        let stream = client.open();
        for n_threads in [3, 1, 2] {
            client.set_threads(&stream, n_threads);
            for m in [1, 40] {
                let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [m, 400, 256], [1, 1]);
                let mut graph = Graph(vec![case.out.raw()]);
                assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
                case.check();
            }
        }
        let mut asked = REGIONS.lock().expect("regions").clone();
        asked.dedup();
        if says_openmp && has_openmp {
            assert!(words.ends_with("on OpenMP's threads"), "{words}");
            // One thread needs no region.
            assert_eq!(asked, [3, 2]);
        } else {
            assert!(words.ends_with("on threads of its own"), "{words}");
            assert!(asked.is_empty());
        }
    }
}

/// The address of a buffer's memory, after its table, type and context.
pub(super) extern "C" fn buffer_base(buffer: *mut c_void) -> *mut c_void {
    // SAFETY: a buffer of `alloc`.
    unsafe { *buffer.cast::<*mut c_void>() }
}

/// Allocates a buffer whose handle is the address of its memory.
extern "C" fn alloc(_: *mut c_void, size: usize) -> *mut c_void {
    let base = vec![0_u8; size].leak().as_mut_ptr();
    Box::into_raw(Box::new(base)).cast()
}

/// Whether huge pages were requested at an address: `hg` in the flags of its mapping.
#[cfg(target_os = "linux")]
fn has_advice(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("mappings");
    let mut is_inside = false;
    maps.lines().any(|line| {
        let first = line.split(' ').next().unwrap_or("");
        let range = first.split_once('-').and_then(|(from, to)| {
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(from)?..number(to)?)
        });
        if let Some(range) = range {
            is_inside = range.contains(&address);
        }
        is_inside && line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "hg")
    })
}

#[test]
#[cfg(target_os = "linux")]
fn weights_are_put_into_huge_pages() {
    let lookup = FeatureHost {
        host: BEFORE_2D,
        says_openmp: false,
        has_openmp: false,
    };
    let plugin = load(&lookup, &PluginSettings::default(), None).expect("a plugin");
    let client = Client::new(plugin.registry(), BEFORE_2D);
    let size = 16 << 20;
    // SAFETY: the plugin's device and its type of buffers, called as hosts do.
    let base = unsafe {
        let buffers = ((*client.device).get_buffer_type)(client.device);
        buffer_base(((*buffers).alloc_buffer)(buffers, size))
    };
    let has_kernel = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert_eq!(has_advice(base as usize + size / 2), has_kernel);
    assert!(!has_advice(&raw const lookup as usize));
}

#[test]
fn files_are_mapped_only_where_that_is_asked_for() {
    for map in [false, true] {
        let settings = PluginSettings {
            map,
            ..PluginSettings::default()
        };
        let plugin = load(&WITH_2D, &settings, None).expect("a plugin");
        let client = Client::new(plugin.registry(), WITH_2D);
        let mut props = MaybeUninit::<Props>::uninit();
        // SAFETY: the plugin's device, with a place for the structure, which it writes.
        let props = unsafe {
            ((*client.device).get_props)(client.device, props.as_mut_ptr());
            props.assume_init()
        };
        assert_eq!(props.caps.buffer_from_host_ptr, map);
    }
}

#[test]
fn threads_may_be_set_to_anything() {
    let client = client(WITH_2D);
    let stream = client.open();
    let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [2, 6, 64], [1, 1]);
    for n in [c_int::MIN, 0, 1] {
        client.set_threads(&stream, n);
        let mut graph = Graph(vec![case.out.raw()]);
        assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
        case.check();
    }
}
