//! Failures are reported to the host, and the next graph works.

use super::client::Client;
use super::compute::{ProductCase, TestTensor, client, to_bytes};
use super::host::{BEFORE_2D, Graph, LOG, TestHost, WITH_2D, op};
use crate::device::{DeviceStream, OpError, OpRefusal, PluginDevice, WeightsIn};
use crate::load::load;
use crate::settings::PluginSettings;
use crate::sys::abi::{FLAG_COMPUTE, STATUS_FAILED, STATUS_SUCCESS};
use crate::sys::graph::HostNode;
use crate::sys::host::Functions;
use crate::sys::objects::Plugin;
use crate::sys::probe::probe;
use crate::sys::tensor::HostTensor;
use millrace_quant::DType;

pub(super) fn log_has(parts: &[&str]) -> bool {
    let log = LOG.lock().expect("a log");
    log.lines()
        .any(|line| parts.iter().all(|part| line.contains(part)))
}

#[test]
fn a_failure_names_op_tensor_device_and_cause() {
    let settings = PluginSettings {
        least_rows: Some(1),
        fail: Some("ffn_out-7".to_owned()),
        ..PluginSettings::default()
    };
    let plugin = load(&WITH_2D, &settings, None).expect("a plugin");
    let client = Client::new(plugin.registry(), WITH_2D);
    let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [4, 6, 64], [1, 1]);
    let stream = client.open();
    case.out.tensor.name[8] = b'7' as std::ffi::c_char;
    assert_eq!(
        stream.compute(&mut Graph(vec![case.out.raw()])),
        STATUS_FAILED
    );
    assert!(log_has(&[
        "MUL_MAT of tensor `ffn_out-7` on device Millrace",
        "MILLRACE_GGML_FAIL"
    ]));
    case.out.tensor.name[8] = b'0' as std::ffi::c_char;
    assert_eq!(
        stream.compute(&mut Graph(vec![case.out.raw()])),
        STATUS_SUCCESS
    );
}

#[test]
fn an_expert_that_is_not_there_is_an_error() {
    let mut weight = TestTensor::new(c"experts", c"f32", [4, 3, 2, 1]);
    let mut x = TestTensor::new(c"x", c"f32", [4, 1, 2, 1]);
    x.fill(&to_bytes(&[1.0; 8]));
    let mut ids = TestTensor::new(c"ids", c"i32", [1, 2, 1, 1]);
    let mut out = TestTensor::new(c"moe_out-3", c"f32", [3, 1, 2, 1]);
    out.tensor.op = op(c"MUL_MAT_ID");
    out.tensor.flags = FLAG_COMPUTE;
    out.tensor.src[..3].copy_from_slice(&[weight.raw(), x.raw(), ids.raw()]);
    let stream = client(WITH_2D).open();
    for expert in [2, -1, i32::MAX] {
        ids.fill(&[1_i32.to_ne_bytes(), i32::to_ne_bytes(expert)].concat());
        assert_eq!(stream.compute(&mut Graph(vec![out.raw()])), STATUS_FAILED);
        let cause = format!("row 1 asks for expert {expert} of 2");
        assert!(log_has(&["MUL_MAT_ID of tensor `moe_out-3`", &cause]));
    }
    ids.fill(&[1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat());
    assert_eq!(stream.compute(&mut Graph(vec![out.raw()])), STATUS_SUCCESS);
}

#[test]
fn an_op_that_was_never_taken_is_an_error() {
    let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [4, 6, 64], [1, 1]);
    case.out.tensor.op = op(c"ADD");
    let stream = client(BEFORE_2D).open();
    assert_eq!(
        stream.compute(&mut Graph(vec![case.out.raw()])),
        STATUS_FAILED
    );
    assert!(log_has(&[
        "ADD of tensor `ffn_out-0`",
        "none that the device said it takes"
    ]));
}

/// A device that panics in a chosen place.
struct Panics {
    at: &'static str,
}

impl Panics {
    fn reached(&self, place: &str) {
        assert_ne!(place, self.at, "told to panic in {place}");
    }
}

impl PluginDevice for Panics {
    fn name(&self) -> &'static str {
        "Panics"
    }

    fn description(&self) -> String {
        "panics".to_owned()
    }

    fn memory(&self) -> (usize, usize) {
        self.reached("memory");
        (1, 2)
    }

    fn supports(&self, _: &HostTensor<'_>, _: WeightsIn) -> Result<(), OpRefusal> {
        self.reached("supports");
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn DeviceStream>, String> {
        self.reached("open");
        Ok(Box::new(PanicsOnce(self.at)))
    }
}

/// Panics in the chosen place, in `compute` only the first time.
struct PanicsOnce(&'static str);

impl DeviceStream for PanicsOnce {
    fn set_threads(&mut self, _: usize) {
        assert_ne!(self.0, "set_threads", "told to panic");
    }

    fn compute(&mut self, _: &mut [HostNode<'_>]) -> Result<(), (usize, OpError)> {
        let told = std::mem::take(&mut self.0);
        assert_ne!(told, "compute", "told to panic in compute");
        Ok(())
    }
}

fn panics(at: &'static str, host: TestHost) -> Client {
    let functions = Functions::find(&host).expect("functions");
    let found = probe(&functions).expect("a known host");
    let plugin = Plugin::new(functions, found, vec![Box::new(Panics { at })], None, None);
    Client::new(plugin.registry(), host)
}

#[test]
fn no_panic_crosses_the_border() {
    for host in [BEFORE_2D, WITH_2D] {
        let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [4, 6, 64], [1, 1]);
        assert!(panics("nowhere", host).supports(&case.out.tensor));
        assert!(!panics("supports", host).supports(&case.out.tensor));
        assert!(panics("open", host).try_open().is_none());
        let client = panics("memory", host);
        let (mut free, mut total) = (7, 7);
        // SAFETY: the plugin's device, with places for both numbers.
        unsafe { ((*client.device).get_memory)(client.device, &raw mut free, &raw mut total) };
        assert_eq!((free, total), (0, 0));
        let client = panics("set_threads", host);
        client.set_threads(&client.open(), 2);
        let stream = panics("compute", host).open();
        let mut graph = Graph(vec![case.out.raw()]);
        assert_eq!(stream.compute(&mut graph), STATUS_FAILED);
        assert!(log_has(&[
            "MUL_MAT of tensor `ffn_out-0` on device Panics",
            "told to panic in compute"
        ]));
        assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    }
}
