//! Plans for a machine of this kind.

#[cfg(test)]
mod tests;

use super::modes::{FAST, FASTFLOWLM, INT4, MLIR_AIR};
use super::packed;
use super::simulator::ArraySimulator;
use crate::lower::{
    self, Feature, Features, LowerOptions, Mode, attention_times, cache_rows, key_bucket,
    layout_unit, program_of, prompt_bucket, resident_keys, token_bucket,
};
use crate::mapping::{self, q4nx};
use crate::predict::{HostKind, Prices, facts};
use millrace_graph::{Attention, Graph, Op};
use millrace_kernels::Cpu;
use millrace_npu::{Container, Device, DeviceError};
use millrace_plan::predict::MachineFacts;
use millrace_plan::units::bytes;
use millrace_plan::{
    Annex, Arithmetic, Arrangement, AttentionOn, AttentionSteps, Chunk, CoreOccupancy, Explain,
    HeadRows, KernelFacts, Lengths, LowerError, Lowering, OwnSlot, PackedWeight, PassKind, Phase,
    Plan, PlannedLaunch, PlannedProgram, Planner, Pricer, Reason, Scales, VisionPlan, VisionShape,
    WeightArrangement, WeightLayout, WeightSource,
};
use millrace_quant::DType;
use millrace_xdna2_machine::device::{VirtualDevice, virtual_device};
use millrace_xdna2_machine::program::Launch;
use millrace_xdna2_machine::program::codec::TARGET;
use millrace_xdna2_machine::{Machine, Numerics, Profile, Program, verify};
use millrace_xdna2_silicon::device::words_device;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Identity of this compiler: the crate's version and a hash of its sources.
const COMPILER: &str = env!("MILLRACE_XDNA2_COMPILER");

/// Makes plans for a machine with a set of features.
pub struct Xdna2 {
    machine: Machine,
    profile: Profile,
    features: Features,
    host: HostKind,
    simulator: ArraySimulator,
    /// Whether the array is the faster one for a kind of attention in a kind of pass.
    wins: Mutex<HashMap<String, bool>>,
}

impl fmt::Debug for Xdna2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xdna2({}, {:?})", self.machine.name, self.features)
    }
}

impl Xdna2 {
    /// A planner for that machine. Virtual devices and predictions take their times from the profile; no plan depends
    /// on it.
    pub fn new(machine: Machine, profile: Profile, features: Features) -> Xdna2 {
        Xdna2 {
            machine,
            profile,
            host: HostKind::of(features),
            simulator: ArraySimulator::default(),
            features,
            wins: Mutex::default(),
        }
    }

    /// The same with another host in predictions.
    #[must_use]
    pub fn with_host(self, host: HostKind) -> Xdna2 {
        Xdna2 { host, ..self }
    }

    /// The same with another simulator for its virtual devices.
    #[must_use]
    pub fn with_simulator(self, simulator: ArraySimulator) -> Xdna2 {
        Xdna2 { simulator, ..self }
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// A virtual device of the machine.
    pub fn device(&self, cpu: Cpu) -> VirtualDevice {
        virtual_device(self.machine.clone(), self.profile.clone(), cpu)
    }

    /// Number of keys of the plan for the token after `first` others, if the array attends.
    fn keys_of_a_token(&self, first: u64) -> u64 {
        let n_keys = first.saturating_add(1);
        if self.features.has(Feature::ResidentAttention) {
            token_bucket(n_keys)
        } else if self.features.has(Feature::FlowKv) {
            prompt_bucket(n_keys)
        } else {
            key_bucket(n_keys)
        }
    }

    /// Attention over the cache by the array, where any layer is faster for it.
    fn over_cache(&self, graph: &Graph, chunk: Chunk, max_tokens: u64) -> Option<AttentionOn> {
        if !self.features.has(Feature::CachedAttention) {
            return None;
        }
        let n_keys = match chunk.n_padded {
            1 => self.keys_of_a_token(chunk.first),
            _ => prompt_bucket(chunk.first + chunk.n_tokens),
        };
        let n_keys = n_keys.max(chunk.n_padded).min(max_tokens);
        if chunk.n_padded == 1 {
            let lengths = (n_keys, max_tokens);
            let resident = resident_keys(graph, &self.machine, self.features, lengths);
            if resident.is_some() {
                return Some(AttentionOn::Cached { n_keys, max_tokens });
            }
        }
        // Lowering ranks by this profile too: a plan does not depend on the times it is given.
        let profile = Profile::builtin(Profile::DEFAULT)?;
        let wins = graph.nodes.iter().any(|node| match &node.op {
            Op::Attention(a) => {
                self.features.always_attends(chunk.n_padded)
                    || self.array_wins(a, chunk.n_padded, (n_keys, max_tokens), &profile)
            }
            _ => false,
        });
        wins.then_some(AttentionOn::Cached { n_keys, max_tokens })
    }

    fn array_wins(
        &self,
        a: &Attention,
        n_tokens: u64,
        lengths: (u64, u64),
        profile: &Profile,
    ) -> bool {
        let heads = (a.n_heads, a.n_kv_heads, a.head_dim, a.window);
        let key = format!("{heads:?} {n_tokens} {lengths:?}");
        let lock = || self.wins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = lock().get(&key) {
            return known;
        }
        let wins = attention_times(
            a,
            n_tokens,
            lengths,
            (&self.machine, self.features),
            profile,
        )
        .is_ok_and(|times| times.array_wins());
        lock().insert(key, wins);
        wins
    }
}

impl Lowering for Xdna2 {
    fn target(&self) -> &'static str {
        TARGET
    }

    fn identity(&self) -> String {
        format!("{COMPILER} {:?} {:?}", self.machine, self.features)
    }

    fn machine(&self) -> MachineFacts {
        facts(&self.machine, &self.profile)
    }

    fn mode(&self) -> String {
        mode(self.features)
    }

    fn features(&self) -> Vec<&'static str> {
        self.features.iter().map(Feature::name).collect()
    }

    fn lengths(&self) -> Lengths {
        lower::lengths(self.features)
    }

    /// Enough for whole reads by the array.
    fn cache_rows(&self, graph: &Graph, n_ctx: u64) -> u64 {
        match self.features.has(Feature::CachedAttention) {
            true => cache_rows(graph, &self.machine, self.features, n_ctx),
            false => n_ctx,
        }
    }

    /// Flash attention sees the keys of its own chunk, so it serves the first chunk; later chunks have a plan for each
    /// [`prompt_bucket`]. In decode there is one plan as long as the host attends, then one for each [`key_bucket`].
    /// There is one for each [`token_bucket`] if attention is among the projections, and one for each [`prompt_bucket`]
    /// on pairs of cores.
    fn kind(&self, graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        let over_cache = || self.over_cache(graph, chunk, cache_rows);
        let attention = match (phase, chunk.first) {
            (Phase::Prefill, 0) => AttentionOn::Device,
            (Phase::Prefill, _) => over_cache().unwrap_or(AttentionOn::Host),
            (Phase::Decode, _) => over_cache().unwrap_or(AttentionOn::Device),
        };
        PassKind {
            phase,
            n_tokens: chunk.n_padded,
            attention,
            head: HeadRows::Last,
        }
    }

    fn decode_until(&self, first: u64) -> u64 {
        self.keys_of_a_token(first)
    }

    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError> {
        let lower = match kind.phase {
            Phase::Prefill => lower::prefill,
            Phase::Decode => lower::decode,
        };
        lower(graph, &self.machine, &LowerOptions::of(self.features, kind))
    }

    fn vision_encoder(&self, shape: &VisionShape) -> Result<VisionPlan, Reason> {
        lower::vision_encoder(shape, &self.machine, self.features).map_err(Reason)
    }

    fn annex(&self, container: &Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        let program = Program::from_container(container).ok()?;
        let n_launches = program.launches.len();
        let fits = |launch: &PlannedLaunch| {
            launch.physical.start <= launch.physical.end && launch.physical.end <= n_launches
        };
        let known = |launch: &PlannedLaunch| crate::mapping::find(&launch.kernel).is_some();
        (launches.iter().all(|l| fits(l) && known(l))).then(|| Annex::new(program))
    }
}

impl Arrangement for Xdna2 {
    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let slot = at.program.slots().get(at.slot);
        match (layout_unit(at.id), slot) {
            (Some(unit), Some(slot)) => packed::fill(cpu, unit, weight, slot, out)?,
            _ => return Err(format!("XDNA2 has no layout {} of weights", at.id)),
        }
        Ok(Scales::default())
    }

    fn becomes(&self, dtype: DType, layout: &WeightLayout) -> Option<&'static str> {
        Some(match layout {
            WeightLayout::Own { id, .. } if layout_unit(*id).is_some() => packed::becomes(dtype),
            _ if dtype == DType::BF16 => "as they are",
            _ if dtype.block_elems() > 1 => "expanded to bf16",
            _ => "rounded to bf16",
        })
    }

    fn read_weight(
        &self,
        launch: &PlannedLaunch,
        id: WeightArrangement,
        bytes: &[u8],
        k: usize,
    ) -> Option<PackedWeight> {
        packed::read(layout_unit(id)?, bytes, k, launch.kernel == q4nx::dqp::NAME)
    }
}

impl millrace_plan::Numerics for Xdna2 {
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        let kernel = launch.kernel.as_str();
        let emulates = self.features.numerics() == Numerics::Bfp16;
        let on_matrix_units = kernel.starts_with("gemm") || kernel == "flash-attention";
        let truncates = kernel.starts_with("gemm-direct");
        let every = launch.tiling.get("tile_k_l2").filter(|_| truncates);
        Arithmetic {
            truncated_every: every.map(|every| every as usize),
            in_blocks: emulates && on_matrix_units,
            attention: attention_steps(launch),
            ..Arithmetic::default()
        }
    }
}

impl Explain for Xdna2 {
    fn occupied(&self, planned: &PlannedProgram, physical: Range<usize>) -> CoreOccupancy {
        let launches = program_of(planned).and_then(|p| p.launches.get(physical));
        let launches = launches.unwrap_or_default();
        let mut herds = Vec::new();
        for herd in launches.iter().flat_map(|launch| &launch.herds) {
            let size = (herd.cols, herd.rows);
            if !herds.contains(&size) {
                herds.push(size);
            }
        }
        let cores = |launch: &Launch| launch.herds.iter().map(|herd| herd.cols * herd.rows).sum();
        CoreOccupancy {
            n_launches: launches.len(),
            herds,
            n_cores: launches.iter().map(cores).max().unwrap_or(0),
        }
    }

    fn execution(&self, planned: &PlannedProgram) -> Option<String> {
        self.simulator.execution(planned, &self.machine)
    }

    /// Facts of the launch alone, as its mapping builds it, against the machine's memories.
    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let Some(mapping) = mapping::find(&launch.kernel) else {
            return KernelFacts::default();
        };
        let machine = &self.machine;
        let built = mapping.build(&launch.shape, &launch.tiling, machine).ok();
        let used = built.and_then(|program| verify(&program, machine).ok());
        let limits = used.map_or_else(
            || "not examined".to_owned(),
            |used| {
                format!(
                    "L1 {} of {}, L2 {} of {} a tile, {} locks",
                    bytes(used.l1_bytes),
                    bytes(machine.core.data_bytes),
                    bytes(used.l2_bytes),
                    bytes(machine.memory.data_bytes),
                    used.locks
                )
            },
        );
        KernelFacts {
            summary: mapping.summary().to_owned(),
            limits,
        }
    }
}

impl Planner for Xdna2 {
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(match self.simulator {
            ArraySimulator::Tiles => Arc::new(self.device(cpu)),
            ArraySimulator::Words => {
                let (machine, profile) = (self.machine.clone(), self.profile.clone());
                Arc::new(words_device(machine, profile, cpu))
            }
        })
    }

    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        let prices = Prices::new(&self.machine, &self.profile, self.host);
        Some(Box::new(prices))
    }
}

/// `fast`, `mlir-air`, `fast without alias`.
fn mode(features: Features) -> String {
    let packed = features.has(Feature::PackedWeights);
    let papers = [Feature::ExpandedWeights, Feature::FlowKv, Feature::FlowQkv];
    let is_papers = papers.into_iter().any(|feature| features.has(feature));
    let (base, all) = match is_papers {
        true if packed => (FASTFLOWLM, Features::of(Mode::FastFlowLm)),
        _ if packed => (INT4, Features::of(Mode::Int4)),
        _ => (FAST, Features::of(Mode::Fast)),
    };
    let beyond = |of: Features, other: Features| -> Vec<&str> {
        let of = of.iter().filter(|feature| !other.has(*feature));
        of.map(Feature::name).collect()
    };
    let differs = [
        ("without", beyond(all, features)),
        ("with", beyond(features, all)),
    ];
    let differs = differs.iter().filter(|(_, names)| !names.is_empty());
    let differs = differs.map(|(word, names)| format!(" {word} {}", names.join(", ")));
    let name = match features.with_numerics(Numerics::Bf16) {
        plain if plain == all => base.to_owned(),
        published if published == Features::PUBLISHED => MLIR_AIR.to_owned(),
        none if none == Features::NONE => format!("{MLIR_AIR} without single-row-head"),
        _ => format!("{base}{}", differs.collect::<String>()),
    };
    match features.numerics() {
        Numerics::Bf16 => name,
        other => format!("{name}, products in {other}"),
    }
}

/// Steps of attention's running state, from shape and tiling.
fn attention_steps(launch: &PlannedLaunch) -> Option<AttentionSteps> {
    let size = |name: &str| launch.tiling.get(name).unwrap_or(1).max(1);
    let head_dim = launch.shape.get("head_dim")?;
    let tiles = launch.shape.get("n_keys")?.div_ceil(size("tile_kv"));
    let (n_steps, cache_rows) = match launch.kernel.as_str() {
        "flash-attention" => (tiles.div_ceil(size("stages")) + size("stages"), None),
        "cached-attention" => {
            let parts = size("rows") * size("spread");
            let rows = launch.shape.get("max_tokens")?;
            (tiles.div_ceil(parts) + parts, Some(rows))
        }
        // Each core's keys at once, then core after core.
        "token-attention" => {
            let cores = 2 * size("cols") / launch.shape.get("n_kv_heads")?.max(1);
            let n_keys = launch.shape.get("n_keys")?;
            let chunks = n_keys.div_ceil((cores * size("keys")).max(1));
            (1 + cores * chunks, Some(launch.shape.get("max_tokens")?))
        }
        "prompt-attention" | "flow-qkv" if launch.shape.get("own") == Some(1) => (tiles, None),
        "prompt-attention" | "flow-qkv" | "flow-kv" => {
            (tiles, Some(launch.shape.get("max_tokens")?))
        }
        _ => return None,
    };
    let part = launch.tiling.get("tile_dk").filter(|&part| part > 0);
    Some(AttentionSteps {
        n_steps,
        n_parts: part.map_or(1, |part| head_dim.div_ceil(part)),
        cache_rows,
    })
}
