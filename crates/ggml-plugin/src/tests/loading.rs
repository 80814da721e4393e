//! Hosts that the plugin works with, and hosts that it refuses.

use super::client::Client;
use super::host::{BEFORE_2D, TestHost, WITH_2D};
use crate::cpu::CpuDevice;
use crate::device::PluginDevice;
use crate::load::load;
use crate::settings::PluginSettings;
use crate::sys::abi::{API_VERSION, TYPE_ACCEL};
use millrace_kernels::Level;
use std::ffi::CStr;

fn refusal(host: TestHost) -> String {
    match load(&host, &PluginSettings::default(), None) {
        Ok(_) => panic!("the plugin took the host"),
        Err(refused) => refused.to_string(),
    }
}

fn settings(pairs: &[(&str, &str)]) -> Result<PluginSettings, String> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(variable, _)| *variable == name);
        pair.map(|(_, value)| (*value).to_owned())
    };
    PluginSettings::read(&get).map_err(|error| error.to_string())
}

#[test]
fn both_layouts_are_loaded() {
    for host in [BEFORE_2D, WITH_2D] {
        let plugin = load(&host, &PluginSettings::default(), None).expect("a plugin");
        let client = Client::new(plugin.registry(), host);
        // SAFETY: the plugin's registry and device, called as hosts do.
        unsafe {
            let registry = client.registry;
            assert_eq!((*registry).api_version, API_VERSION);
            assert_eq!(
                CStr::from_ptr(((*registry).get_name)(registry)),
                c"Millrace"
            );
            assert_eq!(((*registry).get_device_count)(registry), 1);
            assert!(((*registry).get_device)(registry, 1).is_null());
            assert!(((*registry).get_proc_address)(registry, c"no such".as_ptr()).is_null());
            let device = client.device;
            assert_eq!(CStr::from_ptr(((*device).get_name)(device)), c"Millrace");
            assert_eq!(((*device).get_type)(device), TYPE_ACCEL);
            let buffers = ((*device).get_buffer_type)(device);
            assert!(((*buffers).is_host.expect("a function"))(buffers));
            assert_eq!(((*buffers).get_alignment)(buffers), 64);
            assert_eq!((*buffers).device, device);
            assert!(((*device).supports_buft)(device, buffers));
        }
        let stream = client.open();
        client.set_threads(&stream, 2);
        client.set_threads(&stream, -1);
    }
}

#[test]
fn an_unknown_layout_is_refused() {
    let hosts = [
        // A longer table, and tables that do not go with the functions.
        TestHost {
            table: 13,
            ..WITH_2D
        },
        TestHost {
            table: 9,
            ..WITH_2D
        },
        TestHost {
            table: 11,
            ..BEFORE_2D
        },
    ];
    for host in hosts {
        assert!(
            refusal(host).contains("lays out buffers"),
            "{}",
            refusal(host)
        );
    }
    let tensors = [
        TestHost {
            small_tensors: true,
            ..WITH_2D
        },
        TestHost {
            moved_names: true,
            ..WITH_2D
        },
    ];
    for host in tensors {
        assert!(
            refusal(host).contains("lays out tensors"),
            "{}",
            refusal(host)
        );
    }
}

#[test]
fn another_version_of_the_api_is_refused() {
    for version in [1, 3] {
        let message = refusal(TestHost { version, ..WITH_2D });
        assert!(
            message.contains(&format!("version {version}, the plugin is for version 2")),
            "{message}"
        );
    }
}

#[test]
fn a_host_without_a_function_is_told_which() {
    let message = refusal(TestHost {
        lacks: c"ggml_graph_node",
        ..WITH_2D
    });
    assert!(
        message.contains("does not export ggml_graph_node:"),
        "{message}"
    );
    assert!(message.contains("-DBUILD_SHARED_LIBS=ON"), "{message}");
    // Without a log and without the list of registries it works.
    for lacks in [c"ggml_log_internal", c"ggml_backend_reg_get"] {
        let host = TestHost { lacks, ..WITH_2D };
        assert!(load(&host, &PluginSettings::default(), None).is_ok());
    }
}

#[test]
fn an_unknown_device_is_refused_by_name() {
    let asked = settings(&[("MILLRACE_GGML_DEVICES", "millrace, XDNA9")]).expect("settings");
    let refused = load(&WITH_2D, &asked, None)
        .err()
        .expect("a refusal")
        .to_string();
    assert!(
        refused
            .contains("MILLRACE_GGML_DEVICES=XDNA9: expected names out of Millrace, MillraceNode, XDNA2, RK3588"),
        "{refused}"
    );
    let twice = settings(&[("MILLRACE_GGML_DEVICES", "millrace,MILLRACE,")]).expect("settings");
    let plugin = load(&WITH_2D, &twice, None).expect("a plugin");
    // SAFETY: the plugin's registry.
    let n = unsafe { ((*plugin.registry()).get_device_count)(plugin.registry()) };
    assert_eq!(n, 1);
}

#[test]
fn the_cpu_computes_with_the_instructions_that_were_asked_for() {
    for level in Level::supported() {
        let asked = settings(&[("MILLRACE_GGML_LEVEL", level.name())]).expect("settings");
        let says = CpuDevice::new(asked, None).description();
        assert!(says.contains(&format!("({level})")), "{says}");
    }
}

#[test]
fn variables_that_make_no_sense_are_refused() {
    let refused = settings(&[("MILLRACE_GGML_LEAST_ROWS", "many")]).expect_err("no number");
    assert_eq!(
        refused,
        "MILLRACE_GGML_LEAST_ROWS=many: expected a number of tokens"
    );
    assert!(settings(&[("MILLRACE_GGML_REPORT", "yes")]).is_err());
    let refused = settings(&[("MILLRACE_GGML_MAP", "all")]).expect_err("no flag");
    assert_eq!(refused, "MILLRACE_GGML_MAP=all: expected 0 or 1");
    let refused = settings(&[("MILLRACE_GGML_LEVEL", "sse2")]).expect_err("no level");
    assert!(
        refused
            .starts_with("MILLRACE_GGML_LEVEL=sse2: expected one that this processor has: scalar"),
        "{refused}"
    );
    for level in Level::ALL {
        let read = settings(&[("MILLRACE_GGML_LEVEL", level.name())]);
        assert_eq!(read.is_ok(), level.is_supported(), "{level}");
    }
    assert!(
        settings(&[("MILLRACE_GGML_REPORT", "1")])
            .expect("settings")
            .report
    );
}
