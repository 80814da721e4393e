//! The keys of a profile file: which exist, their ranges, and the fields they set.

use super::Profile;
use millrace_facts::Family;

type Key = millrace_facts::Key<Profile>;

/// Every constant except those of kernels. A profile may leave out those of whole models; they are then 0, and it predicts no such rows.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    Key::f64("ddr.read_gb_per_s", 1e-3, 1e6, |p| &mut p.ddr.read_gb_per_s),
    Key::f64("ddr.write_gb_per_s", 1e-3, 1e6, |p| &mut p.ddr.write_gb_per_s),
    Key::f64("ddr.total_gb_per_s", 1e-3, 1e6, |p| &mut p.ddr.total_gb_per_s),
    Key::f64("ddr.burst_overhead_bytes", 0.0, 1e6, |p| &mut p.ddr.burst_overhead_bytes),
    Key::f64("shim.port_gb_per_s", 1e-3, 1e6, |p| &mut p.shim.port_gb_per_s),
    Key::f64("shim.column_read_gb_per_s", 1e-3, 1e6, |p| &mut p.shim.column_read_gb_per_s),
    Key::f64("shim.task_ns", 0.0, 1e9, |p| &mut p.shim.task_ns),
    Key::f64("dispatch.call_ns", 0.0, 1e12, |p| &mut p.dispatch.call_ns),
    Key::f64("dispatch.configure_byte_ns", 0.0, 1e9, |p| &mut p.dispatch.configure_byte_ns),
    Key::f64("dispatch.object_load_ns", 0.0, 1e12, |p| &mut p.dispatch.object_load_ns),
    Key::f64("dispatch.launch_ns", 0.0, 1e12, |p| &mut p.dispatch.launch_ns),
    Key::f64("dispatch.point_ns", 0.0, 1e9, |p| &mut p.dispatch.point_ns),
    Key::f64("dispatch.issue_ns", 0.0, 1e9, |p| &mut p.dispatch.issue_ns),
    Key::f64("dispatch.parameter_ns", 0.0, 1e9, |p| &mut p.dispatch.parameter_ns),
    Key::f64("core.block_cycles", 0.0, 1e6, |p| &mut p.core.block_cycles),
    Key::u32("ddr.channels", 1, 16, |p| &mut p.ddr.channels),
    Key::u32("ddr.interleave_bytes", 1, 1_000_000, |p| &mut p.ddr.interleave_bytes),
    Key::f64("decode.weight_gb_per_s", 1e-3, 1e6, |p| &mut p.decode.weight_gb_per_s).optional(),
    Key::f64("decode.weight_columns", 1.0, 64.0, |p| &mut p.decode.weight_columns).optional(),
    Key::f64("decode.layer_ns", 0.0, 1e12, |p| &mut p.decode.layer_ns).optional(),
    Key::f64("decode.windows", 0.0, 1.0, |p| &mut p.decode.windows).optional(),
    Key::f64("prefill.layer_ns", 0.0, 1e12, |p| &mut p.prefill.layer_ns).optional(),
    Key::f64("prefill.row_ns", 0.0, 1e12, |p| &mut p.prefill.row_ns).optional(),
    Key::f64("prefill.gemm_gflop_per_s", 1e-3, 1e6, |p| &mut p.prefill.gemm_gflop_per_s).optional(),
    Key::f64("prefill.attention_gflop_per_s", 1e-3, 1e6, |p| &mut p.prefill.attention_gflop_per_s).optional(),
    Key::f64("prefill.dequant_gb_per_s", 1e-3, 1e6, |p| &mut p.prefill.dequant_gb_per_s).optional(),
    Key::f64("prefill.group_heads", 1.0, 64.0, |p| &mut p.prefill.group_heads).optional(),
    Key::f64("host.call_ns", 0.0, 1e12, |p| &mut p.host.call_ns).optional(),
    Key::f64("host.write_gb_per_s", 1e-3, 1e6, |p| &mut p.host.write_gb_per_s).optional(),
    Key::f64("host.read_ns", 0.0, 1e12, |p| &mut p.host.read_ns).optional(),
    Key::f64("host.prompt_byte_ns", 0.0, 1e6, |p| &mut p.host.prompt_byte_ns).optional(),
    Key::f64("host.prompt_ns", 0.0, 1e12, |p| &mut p.host.prompt_ns).optional(),
    Key::f64("host.token_layer_ns", 0.0, 1e12, |p| &mut p.host.token_layer_ns).optional(),
    Key::f64("stack.prompt_layer_ns", 0.0, 1e12, |p| &mut p.stack.prompt_layer_ns).optional(),
    Key::f64("stack.prompt_row_ns", 0.0, 1e12, |p| &mut p.stack.prompt_row_ns).optional(),
    Key::f64("power.npu_w", 0.0, 1e4, |p| &mut p.power.npu_w).optional(),
    Key::f64("power.package_w", 0.0, 1e4, |p| &mut p.power.package_w).optional(),
];

/// Stated errors at the top of a file.
pub(super) const ERRORS: &[Key] = &[
    Key::f64("kernel_error_percent", 0.0, 1e3, |p| {
        &mut p.errors.kernel_percent
    }),
    Key::f64("prompt_error_percent", 0.0, 1e3, |p| {
        &mut p.errors.prompt_percent
    }),
    Key::f64("token_error_percent", 0.0, 1e3, |p| {
        &mut p.errors.token_percent
    }),
];

/// Cycles of kernel objects.
pub(super) static KERNELS: Family<Profile> = Family {
    prefix: "kernel",
    fields: &["call_cycles", "macs_per_cycle", "cycles_per_element"],
    min: 0.0,
    max: 1e9,
    field: kernel,
};

fn kernel<'p>(profile: &'p mut Profile, name: &str, field: &str) -> Option<&'p mut f64> {
    let cycles = profile.kernels.entry(name.to_owned()).or_default();
    match field {
        "call_cycles" => Some(&mut cycles.call_cycles),
        "macs_per_cycle" => Some(&mut cycles.macs_per_cycle),
        "cycles_per_element" => Some(&mut cycles.cycles_per_element),
        _ => None,
    }
}
