//! What the sessions of a model share: plans, programs, weights on the device.

use super::NpuError;
use super::cached::Cached;
use super::prepared::Prepared;
use super::weights;
use crate::EngineOptions;
use crate::exec::decode_vectors;
use crate::gate::Products;
use crate::load::LoadedModel;
use millrace_kernels::{Cpu, CpuOptions, Level};
use millrace_npu::cache::CacheStats;
use millrace_npu::{Container, Device, DeviceError, ProgramCache, Provenance, Traffic};
use millrace_xdna2::Numerics;
use millrace_xdna2::compile::compile;
use millrace_xdna2::device::VirtualDevice;
use millrace_xdna2::lower::{
    AttentionOn, Binding, Call, Chunk, Feature, Features, Lengths, Mode, Options, Phase, Sequences,
    WeightLayout, rope_table,
};
use millrace_xdna2::{Machine, Profile};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How an [`NpuModel`] is set up.
#[derive(Clone, Debug)]
pub struct NpuOptions {
    /// What is better than the published stack's behaviour.
    pub features: Features,
    /// Tokens a sequence may hold; `None` takes the trained context, at most
    /// [`EngineOptions::DEFAULT_MAX_CTX`].
    pub n_ctx: Option<usize>,
    /// Threads of the host's steps, and of the simulation; `None` takes the physical cores.
    pub n_threads: Option<usize>,
    /// Forces an instruction-set level; `None` takes the best.
    pub level: Option<Level>,
    /// Folder where compiled programs are kept from one run to the next, shared with others;
    /// where it cannot be made, and with `None`, they are kept in memory.
    pub programs: Option<PathBuf>,
    /// Tokens that every prefill is padded to; `None` takes the lengths that the features have
    /// ([`Lengths::of`]). Longer prompts go in chunks.
    pub prefill_tokens: Option<u64>,
    /// A mistake on purpose, for testing what finds it: the layout that weights are written in instead
    /// of the one that programs ask for. It must have as many elements.
    pub relayout: Option<fn(WeightLayout) -> WeightLayout>,
}

impl Default for NpuOptions {
    fn default() -> NpuOptions {
        NpuOptions {
            features: Features::of(Mode::Best),
            n_ctx: None,
            n_threads: None,
            level: None,
            programs: None,
            prefill_tokens: None,
            relayout: None,
        }
    }
}

impl NpuOptions {
    /// Options of a plan of so many tokens.
    fn plan(&self, n_tokens: u64) -> Options {
        Options {
            features: self.features,
            n_tokens,
            attention: AttentionOn::Device,
        }
    }

    fn cpu(&self) -> Result<Cpu, NpuError> {
        Ok(Cpu::new(CpuOptions {
            n_threads: self.n_threads,
            level: self.level,
        })?)
    }
}

/// Where programs are kept.
fn programs(device: Arc<dyn Device>, options: &NpuOptions) -> ProgramCache {
    let folder = options.programs.as_ref();
    let kept = folder.and_then(|dir| ProgramCache::with_directory(device.clone(), dir).ok());
    kept.unwrap_or_else(|| ProgramCache::new(device))
}

/// Bytes of a model's buffers on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NpuMemory {
    /// Weights and tables.
    pub weight_bytes: u64,
    /// Values and scratch of all plans in use.
    pub activation_bytes: u64,
    /// Copies of keys and values, where programs read them.
    pub kv_bytes: u64,
}

/// A model on a device.
pub struct NpuModel {
    pub(super) model: Arc<LoadedModel>,
    pub(super) machine: Machine,
    options: NpuOptions,
    pub(super) cpu: Cpu,
    pub(super) cache: ProgramCache,
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) decode: Arc<Prepared>,
    prefill: Mutex<HashMap<(u64, AttentionOn), Arc<Prepared>>>,
    pub(super) cached: Cached,
    /// Position of the first token that static RoPE tables hold for, by the names of their buffers.
    tables: Mutex<HashMap<String, usize>>,
    /// Bytes of the device's copies of caches, by the names of their buffers.
    kv_buffers: Mutex<HashMap<String, u64>>,
    /// One pass at a time: plans share registers, and RoPE tables hold for one position.
    turn: Mutex<()>,
    loaded: Mutex<Traffic>,
    n_ctx: usize,
    pad: u32,
}

/// Locks; what a panic left behind a lock is still whole here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NpuModel {
    /// Puts a model on a virtual NPU: lowers decode, loads its programs and fills their weights
    /// into buffers. Prefill plans are made when a prompt first needs them.
    ///
    /// # Errors
    /// A graph that cannot be lowered, a program that the device refuses, memory, a level that this
    /// CPU lacks.
    pub fn load(
        model: Arc<LoadedModel>,
        machine: Machine,
        profile: Profile,
        options: NpuOptions,
    ) -> Result<NpuModel, NpuError> {
        let device = VirtualDevice::new(machine.clone(), profile, options.cpu()?);
        NpuModel::on(model, machine, Arc::new(device), options)
    }

    /// Puts a model on a device of that machine.
    ///
    /// # Errors
    /// As [`load`](NpuModel::load).
    pub fn on(
        model: Arc<LoadedModel>,
        machine: Machine,
        device: Arc<dyn Device>,
        options: NpuOptions,
    ) -> Result<NpuModel, NpuError> {
        let graph = &model.model().graph;
        let cache = programs(device, &options);
        let decode = compile(&cache, graph, &machine, Phase::Decode, &options.plan(1))?;
        let config = &model.model().config;
        let default_ctx = config.context_length.min(EngineOptions::DEFAULT_MAX_CTX);
        let n_ctx = options.n_ctx.unwrap_or(default_ctx);
        if !(1..=MAX_CTX).contains(&n_ctx) {
            return Err(NpuError::Runtime(crate::Error::BadOption {
                option: "ctx",
                found: n_ctx.to_string(),
                expected: "between 1 and 2^22",
            }));
        }
        let alias = options.features.has(Feature::Alias);
        let decode = Prepared::new(decode, graph, alias, |call, _| call.set.clone())?;
        let end_token = model.tokenizer().ok().and_then(|tokenizer| tokenizer.eos());
        let npu = NpuModel {
            cpu: options.cpu()?,
            cache,
            vectors: decode_vectors(&model, &model.model().graph)?,
            decode: Arc::new(decode),
            prefill: Mutex::default(),
            cached: Cached::default(),
            tables: Mutex::default(),
            kv_buffers: Mutex::default(),
            turn: Mutex::new(()),
            loaded: Mutex::default(),
            n_ctx,
            // No bit depends on it.
            pad: end_token.unwrap_or(0),
            model,
            machine,
            options,
        };
        npu.fill(&npu.decode, 0)?;
        Ok(npu)
    }

    /// The model.
    pub fn model(&self) -> &Arc<LoadedModel> {
        &self.model
    }

    /// The machine that plans are made for.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What is better than the published stack's behaviour.
    pub fn features(&self) -> Features {
        self.options.features
    }

    /// Tokens a sequence may hold.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Where the device's times come from.
    pub fn provenance(&self) -> &Provenance {
        &self.cache.device().info().provenance
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        &self.cache.device().info().name
    }

    /// Bytes of buffers on the device.
    pub fn memory(&self) -> NpuMemory {
        let buffers = self.cache.memory();
        let kv_bytes: u64 = lock(&self.kv_buffers).values().sum();
        NpuMemory {
            weight_bytes: buffers.static_bytes.saturating_sub(kv_bytes),
            activation_bytes: buffers.other_bytes,
            kv_bytes,
        }
    }

    /// Programs, buffers and traffic so far.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Bytes that filled static slots so far: weights and tables, each once.
    pub fn loaded_traffic(&self) -> Traffic {
        *lock(&self.loaded)
    }

    /// The plan of a token, its weights on the device.
    pub(super) fn decode(&self) -> Result<&Arc<Prepared>, NpuError> {
        if !*lock(&self.decode.filled) {
            self.fill(&self.decode, 0)?;
        }
        Ok(&self.decode)
    }

    /// Passes a result on. Where it says that the device was lost, programs and buffers are let go,
    /// so that the next call makes them anew.
    pub(super) fn settle<T>(&self, result: Result<T, NpuError>) -> Result<T, NpuError> {
        let error = result.as_ref().err().and_then(NpuError::device);
        if error.is_some_and(DeviceError::is_loss) {
            self.cache.reset();
            lock(&self.tables).clear();
            self.cached.reset();
            for prepared in lock(&self.prefill).values().chain([&self.decode]) {
                *lock(&prepared.filled) = false;
            }
        }
        result
    }

    /// The token that pads prompts.
    pub(super) fn pad(&self) -> u32 {
        self.pad
    }

    /// How the first chunk of a prompt of so many tokens multiplies: sums that are truncated, which no
    /// node has with [`Feature::FloatSums`], and operands in blocks.
    pub(crate) fn prompt_products(&self, n_prompt: usize) -> Result<Products, NpuError> {
        let graph = &self.model.model().graph;
        let mut products = Products {
            truncated_every: vec![None; graph.nodes.len()],
            in_blocks: vec![false; graph.nodes.len()],
            n_tokens: n_prompt,
        };
        let emulates = self.features().numerics() == Numerics::Bfp16;
        if self.features().has(Feature::FloatSums) && !emulates {
            return Ok(products);
        }
        let prepared = self.prefill(self.lengths().next(0, n_prompt as u64))?;
        let plan = &prepared.plan;
        for (step, _) in plan.steps.iter().enumerate() {
            let Some(call) = plan.call_at(step) else {
                continue;
            };
            for (launch, nodes) in plan.launches_at(step) {
                let launch = &plan.programs[call.program].launches[launch];
                let every = (launch.mapping.starts_with("gemm-direct"))
                    .then(|| launch.tiling.get("tile_k_l2") as usize);
                for node in nodes {
                    products.truncated_every[node] = every;
                    products.in_blocks[node] = emulates && on_matrix_units(launch.mapping);
                }
            }
        }
        Ok(products)
    }

    /// Keeps other passes out.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// How prompts are cut.
    pub fn lengths(&self) -> Lengths {
        match self.options.prefill_tokens {
            Some(n_tokens) => Lengths::fixed(n_tokens),
            None => Lengths::of(self.features()),
        }
    }

    /// Which plans its passes take.
    pub fn sequences(&self) -> Sequences<'_> {
        Sequences {
            graph: &self.model.model().graph,
            machine: &self.machine,
            features: self.features(),
            n_ctx: self.n_ctx as u64,
        }
    }

    /// The plan of a prompt's chunk.
    pub(super) fn prefill(&self, chunk: Chunk) -> Result<Arc<Prepared>, NpuError> {
        let options = self.sequences().prefill(chunk);
        let (n_tokens, attention) = (options.n_tokens, options.attention);
        let mut plans = lock(&self.prefill);
        let prepared = match plans.get(&(n_tokens, attention)) {
            Some(prepared) => prepared.clone(),
            None => {
                let graph = &self.model.model().graph;
                let machine = &self.machine;
                let compiled = compile(&self.cache, graph, machine, Phase::Prefill, &options)?;
                let alias = self.features().has(Feature::Alias);
                let suffix = match attention {
                    AttentionOn::Device => String::new(),
                    AttentionOn::Host => "+".to_owned(),
                    AttentionOn::Cached { n_keys, .. } => format!("+{n_keys}"),
                };
                let key = |call: &Call, container: &Container| {
                    // The head is decode's, buffers included, where those hold nothing else.
                    match !alias && self.decode.holds(&call.set, container) {
                        true => call.set.clone(),
                        false => format!("{}@{n_tokens}{suffix}", call.set),
                    }
                };
                let prepared = Arc::new(Prepared::new(compiled, graph, alias, key)?);
                plans.insert((n_tokens, attention), prepared.clone());
                prepared
            }
        };
        drop(plans);
        self.fill(&prepared, chunk.first as usize)?;
        Ok(prepared)
    }

    /// Makes a plan's buffers and fills static slots: once, and tables again for other positions.
    pub(super) fn fill(&self, prepared: &Prepared, first: usize) -> Result<(), NpuError> {
        let mut filled = lock(&prepared.filled);
        let mut tables = lock(&self.tables);
        for (index, call) in prepared.plan.calls().enumerate() {
            let (container, key) = (prepared.container(call), prepared.key(index));
            let name = |slot: usize| prepared.buffer_name(index, slot).map(str::to_owned);
            let mut fill = |slot: usize, bytes: &mut [u8]| -> Result<(), NpuError> {
                self.fill_slot(call, slot, first, bytes)?;
                match (&call.bindings[slot], name(slot)) {
                    (Binding::RopeTable { .. }, Some(name)) => _ = tables.insert(name, first),
                    (Binding::Cache { .. }, Some(name)) => {
                        lock(&self.kv_buffers).insert(name, bytes.len() as u64);
                    }
                    _ => {}
                }
                Ok(())
            };
            if !*filled {
                let traffic = self.cache.preload_with(container, key, &name, &mut fill)?;
                *lock(&self.loaded) += traffic;
            }
            let other = |(slot, name): (usize, &str)| {
                (tables.get(name) != Some(&first)).then(|| (slot, name.to_owned()))
            };
            let moved: Vec<(usize, String)> = prepared.tables(index).filter_map(other).collect();
            if moved.is_empty() {
                continue;
            }
            let slots: Vec<usize> = moved.iter().map(|(slot, _)| *slot).collect();
            moved.iter().for_each(|(_, name)| _ = tables.remove(name));
            let mut fill = |slot: usize, bytes: &mut [u8]| self.fill_slot(call, slot, first, bytes);
            *lock(&self.loaded) += self.cache.refill(container, key, &slots, &mut fill)?;
            tables.extend(moved.into_iter().map(|(_, name)| (name, first)));
        }
        *filled = true;
        Ok(())
    }

    /// What a static slot holds, from the checkpoint.
    fn fill_slot(
        &self,
        call: &Call,
        slot: usize,
        first: usize,
        bytes: &mut [u8],
    ) -> Result<(), NpuError> {
        weights::as_bf16(bytes, |out| match &call.bindings[slot] {
            Binding::Weight { weight, layout } => {
                let layout = match self.options.relayout {
                    Some(relayout) => relayout(*layout),
                    None => *layout,
                };
                weights::fill(&self.cpu, &self.model, *weight, &layout, out)
            }
            Binding::RopeTable { rope, rows } => {
                let table = rope_table(&self.model.model().graph.ropes[rope.0], *rows, first);
                if table.len() != out.len() {
                    return Err(NpuError::plan(
                        &call.set,
                        format!("slot {slot}: a table of another size"),
                    ));
                }
                out.copy_from_slice(&table);
                Ok(())
            }
            // Rows come as they are made.
            Binding::Cache { .. } => {
                out.fill(half::bf16::ZERO);
                Ok(())
            }
            _ => Err(NpuError::plan(
                &call.set,
                format!("slot {slot} is static but no weight"),
            )),
        })
    }
}

/// Whether a kernel multiplies on matrix units, which may emulate bf16.
pub(super) fn on_matrix_units(kernel: &str) -> bool {
    kernel.starts_with("gemm") || kernel == "flash-attention"
}

/// Longest context: its cache stays addressable for the widest models.
const MAX_CTX: usize = 1 << 22;
