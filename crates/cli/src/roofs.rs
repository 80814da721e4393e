//! Limits of a machine, to which `sweep` and `ceiling` compare results: measured here, or facts and constants of a device.

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::Ui;
use crate::plan_args::PlanSubject;
use crate::progress::ProgressDisplay;
use crate::target_args::{DeviceArgs, ModelPlacement};
use millrace_graph::Graph;
use millrace_kernels::roof::{self, Effort};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_plan::Target;
use millrace_plan::bound::{Demand, Roofs};
use millrace_plan::predict::{self, PassCost, PredictError, PromptWorkload};
use millrace_quant::DType;
use millrace_runtime::KvType;
use std::collections::HashMap;
use std::time::Duration;

/// Limits of a machine, and a model's demand on it.
pub(crate) struct Setting {
    /// Name of the machine or device.
    pub(crate) name: String,
    /// The machine's limits.
    pub(crate) roofs: Roofs,
    /// Demand of a token.
    pub(crate) demand: Demand,
    /// Source of the limits.
    pub(crate) source: String,
    /// Modelled cost of a token on a device, and the source of the model.
    pub(crate) token: Option<(PassCost, String)>,
}

/// Bytes of a cached element, with its share of a scale.
pub(crate) fn element_bytes(kv_type: KvType) -> f64 {
    kv_type.bits_with_scales() / 8.0
}

/// Bounds on the bytes read to measure the machine's rate. Fewer than the lower bound would never leave the
/// caches; more than the upper bound would add nothing.
const READ_BYTES: (f64, f64) = (4e6, 256e6);

impl Setting {
    /// Limits and demand for a model at a context depth.
    pub(crate) fn of(
        planned: &PlanSubject,
        device: &DeviceArgs,
        cpu: &CpuArgs,
        (depth, kv_type): (u64, KvType),
        bytes_per_s: Option<f64>,
        ui: Ui,
    ) -> CommandResult<Setting> {
        match device.device {
            ModelPlacement::Cpu => {
                device.refuse_settings_on_cpu()?;
                match bytes_per_s {
                    Some(bytes_per_s) => Ok(of_bandwidth(planned, (depth, kv_type), bytes_per_s)),
                    None => on_cpu(planned, cpu, (depth, kv_type), ui),
                }
            }
            ModelPlacement::Target(target) => {
                on_target(planned, device, target, depth, bytes_per_s, ui)
            }
        }
    }
}

/// A machine of which only the memory bandwidth is known. Nothing of this computer counts.
fn of_bandwidth(
    planned: &PlanSubject,
    (depth, kv_type): (u64, KvType),
    bytes_per_s: f64,
) -> Setting {
    Setting {
        name: "a machine of this memory bandwidth".to_owned(),
        roofs: Roofs {
            bytes_per_s,
            flops_per_s: f64::INFINITY,
            launch_ns: 0.0,
        },
        demand: Demand::of(planned.graph(), depth, element_bytes(kv_type)),
        source: "reading given with --bandwidth, arithmetic not limited".to_owned(),
        token: None,
    }
}

fn on_cpu(
    planned: &PlanSubject,
    cpu: &CpuArgs,
    (depth, kv_type): (u64, KvType),
    ui: Ui,
) -> CommandResult<Setting> {
    let demand = Demand::of(planned.graph(), depth, element_bytes(kv_type));
    let cpu = Cpu::new(CpuOptions {
        n_threads: cpu.threads,
        level: cpu.cpu_level,
    })
    .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let progress = ProgressDisplay::spinner(ui, "limits of the machine");
    let read_bytes = (demand.weight_bytes + demand.cache_bytes).clamp(READ_BYTES.0, READ_BYTES.1);
    let effort = Effort {
        read_bytes: read_bytes as usize,
        time: Duration::from_millis(60),
    };
    let roofs = roof::measure_levels(&cpu, &effort);
    drop(progress);
    let Some((_, roof)) = roofs.last() else {
        return Err(CommandFailure::new(Exit::Failed, "no level was measured"));
    };
    let main = main_format(planned.graph());
    let (kind, flops_per_s) = match main {
        Some(DType::BF16) => (
            "bf16",
            roof.bf16_flops_per_s.unwrap_or(roof.f32_flops_per_s),
        ),
        Some(dtype) if !dtype.is_float() => {
            ("int8", roof.int8_ops_per_s.unwrap_or(roof.f32_flops_per_s))
        }
        _ => ("f32", roof.f32_flops_per_s),
    };
    Ok(Setting {
        name: format!("cpu ({}), {} threads", cpu.level(), cpu.pool().n_threads()),
        roofs: Roofs {
            bytes_per_s: roof.read_bytes_per_s,
            flops_per_s,
            launch_ns: 0.0,
        },
        demand,
        source: format!(
            "reading measured over {:.0} MB, arithmetic in {kind} measured in registers",
            read_bytes / 1e6
        ),
        token: None,
    })
}

/// The format of most of the matrices' bytes.
fn main_format(graph: &Graph) -> Option<DType> {
    let mut bytes: HashMap<DType, u64> = HashMap::new();
    for node in &graph.nodes {
        if let Some(product) = node.op.product()
            && let Some(spec) = graph.weights.get(product.weight().0)
        {
            *bytes.entry(spec.dtype).or_default() += spec.size_bytes();
        }
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.map(|(dtype, _)| dtype)
}

fn on_target(
    planned: &PlanSubject,
    device: &DeviceArgs,
    target: &'static dyn Target,
    depth: u64,
    bytes_per_s: Option<f64>,
    ui: Ui,
) -> CommandResult<Setting> {
    let planner = device.plans.planner(target, planned.graph())?;
    let Some(mut pricer) = planner.pricer() else {
        return Err(CommandFailure::usage(format!(
            "nothing was ever measured of {}: it has no times",
            target.title()
        )));
    };
    let progress = ProgressDisplay::spinner(ui, "predicting");
    let work = PromptWorkload {
        prompt_tokens: 1,
        context: depth,
    };
    let predicted = predict::model(planned.graph(), &*planner, &mut *pricer, &work);
    let prediction = predicted.map_err(failed)?;
    drop(progress);
    let machine = planner.machine();
    // Devices keep keys and values in bf16; weights as their plans lay them out.
    let mut demand = Demand::of(planned.graph(), depth, element_bytes(KvType::BF16));
    let totals = &prediction.token.totals;
    demand.weight_bytes = totals.static_bytes as f64;
    let reading = match bytes_per_s {
        Some(_) => "given with --bandwidth".to_owned(),
        None => format!(
            "what the profile's software attains of {:.0} GB/s",
            machine.ddr_bytes_per_s / 1e9
        ),
    };
    Ok(Setting {
        name: format!(
            "{} {}, mode {}",
            target.name(),
            machine.name,
            planner.mode()
        ),
        roofs: Roofs {
            bytes_per_s: bytes_per_s.unwrap_or(machine.attained_bytes_per_s),
            flops_per_s: machine.peak_flops_per_s,
            launch_ns: totals.overhead_ns,
        },
        demand,
        source: format!("reading {reading}, arithmetic the machine's peak, launches modelled"),
        token: Some((prediction.token, prediction.provenance.to_string())),
    })
}

fn failed(error: PredictError) -> CommandFailure {
    match error {
        PredictError::Setting(error) => error.into(),
        PredictError::Lower(error) => error.into(),
        other => CommandFailure::new(Exit::Failed, other.to_string()),
    }
}
