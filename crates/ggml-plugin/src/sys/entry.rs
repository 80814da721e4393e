//! The functions that the host's loader looks for.

use super::abi::Registry;
use super::border::guard;
use super::host::Process;
use super::objects::Plugin;
use crate::load::load;
use crate::report::DeviceReport;
use crate::settings::PluginSettings;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

/// The plugin of this process, or nothing where it cannot be; the reason was printed then.
static PLUGIN: OnceLock<Option<&'static Plugin>> = OnceLock::new();

static REPORT: OnceLock<Arc<DeviceReport>> = OnceLock::new();

/// Score of this variant if the plugin works: there is one variant only.
const SCORE: c_int = 1;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn print_report() {
    guard("the report", (), || {
        if let Some(report) = REPORT.get() {
            eprint!("{}", report.text());
        }
    });
}

fn plugin() -> Option<&'static Plugin> {
    *PLUGIN.get_or_init(|| {
        let made = PluginSettings::read(&|name| std::env::var(name).ok())
            .map_err(Into::into)
            .and_then(|settings| {
                let report = settings.report.then(|| REPORT.get_or_init(Arc::default));
                load(&Process::new(), &settings, report)
            });
        match made {
            Ok(plugin) => {
                if REPORT.get().is_some() {
                    // SAFETY: a function that lives as long as this library, with which the C library forgets it.
                    unsafe { atexit(print_report) };
                }
                Some(plugin)
            }
            Err(refused) => {
                eprintln!("millrace: plugin not loaded: {refused}");
                None
            }
        }
    })
}

/// The function that ggml calls first; 0 refuses.
#[unsafe(no_mangle)]
extern "C" fn ggml_backend_score() -> c_int {
    guard("ggml_backend_score", 0, || plugin().map_or(0, |_| SCORE))
}

/// ggml's entry: the registry of devices, or null.
#[unsafe(no_mangle)]
extern "C" fn ggml_backend_init() -> *mut Registry {
    guard("ggml_backend_init", std::ptr::null_mut(), || {
        plugin().map_or(std::ptr::null_mut(), Plugin::registry)
    })
}
