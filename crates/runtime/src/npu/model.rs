//! Data shared by the sequences of a model: plans, programs, weights on the device.

mod options;
pub use options::{NpuMemory, NpuOptions};

use super::NpuError;
use super::device_cache::DeviceCache;
use super::experts::ExpertSets;
use super::prepared::{PreparedPlan, suffix};
use crate::EngineOptions;
use crate::cpu_engine::check_rope;
use crate::execute::decode_vectors;
use crate::load::LoadedModel;
use millrace_graph::RopeStyle;
use millrace_kernels::{Cpu, RopeTable};
use millrace_npu::cache::{CacheError, CacheStats};
use millrace_npu::{Container, Device, DeviceError, ProgramCache, Provenance, Role, Traffic};
use millrace_plan::{
    Arrangement, Binding, Call, Lengths, PassKind, Phase, Plan, Planner, Scales, Sequences,
    compile, graph,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where programs are kept.
fn programs(device: Arc<dyn Device>, options: &NpuOptions) -> ProgramCache {
    let folder = options.programs.as_ref();
    let kept = folder.and_then(|dir| ProgramCache::with_directory(device.clone(), dir).ok());
    kept.unwrap_or_else(|| ProgramCache::new(device))
}

/// A model on a device.
pub struct NpuModel {
    pub(super) model: Arc<LoadedModel>,
    pub(super) planner: Arc<dyn Planner>,
    /// The planner for observed passes.
    observed: Option<Arc<dyn Planner>>,
    pub(super) options: NpuOptions,
    pub(super) cpu: Cpu,
    pub(super) cache: ProgramCache,
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) ropes: Vec<RopeTable>,
    /// The same with the graph's own pairs, for rotations that stay interleaved.
    own_ropes: Vec<RopeTable>,
    /// By node.
    interleaved: HashSet<usize>,
    /// By kind of pass, and whether it is observed.
    pub(super) plans: Mutex<HashMap<(PassKind, bool), Arc<PreparedPlan>>>,
    /// Plans whose buffers may be freed for others, the most recently used last.
    pub(super) recent: Mutex<Vec<(PassKind, bool)>>,
    pub(super) device_cache: DeviceCache,
    /// Position of the first token that static RoPE tables hold for, by the names of their buffers.
    tables: Mutex<HashMap<String, usize>>,
    pub(super) experts: Mutex<ExpertSets>,
    /// The scales that the planner keeps for weights that it arranged, by the names of their buffers.
    pub(super) scales: Mutex<HashMap<String, Scales>>,
    /// The device's copies of caches, by the names of their buffers: bytes, and whether programs read them alone
    /// (`static`) or append to them (`intermediate`).
    pub(super) kv_buffers: Mutex<HashMap<String, (u64, Role)>>,
    /// One pass at a time: plans share registers, and RoPE tables hold for one position.
    turn: Mutex<()>,
    pub(super) loaded: Mutex<Traffic>,
    n_ctx: usize,
    pad: u32,
}

/// Locks a mutex; the data is still consistent after a panic while it was held.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NpuModel {
    /// Puts a model on a device that the planner opens: lowers decode, loads its programs and fills their
    /// weights into buffers. Prefill plans are made when a prompt first needs them.
    ///
    /// # Errors
    /// A graph that cannot be lowered, a device that cannot be opened, a program that it refuses, memory,
    /// a level that this CPU lacks.
    pub fn load(
        model: Arc<LoadedModel>,
        planner: Arc<dyn Planner>,
        options: NpuOptions,
    ) -> Result<NpuModel, NpuError> {
        if model.model().config.encoder.is_some() {
            let problem =
                "it is an encoder, whose tokens see each other both ways; run it without --device";
            return Err(NpuError::plan(model.name(), problem));
        }
        if model.is_assistant() {
            let problem = "it is an assistant, which drafts for a model on the CPU";
            return Err(NpuError::plan(model.name(), problem));
        }
        let device = planner.open(options.cpu()?).map_err(NpuError::Open)?;
        NpuModel::on(model, planner, device, options)
    }

    /// Puts a model on a device that runs the planner's programs.
    ///
    /// # Errors
    /// As [`load`](NpuModel::load).
    pub fn on(
        model: Arc<LoadedModel>,
        planner: Arc<dyn Planner>,
        device: Arc<dyn Device>,
        options: NpuOptions,
    ) -> Result<NpuModel, NpuError> {
        let usual = model.model().config.usual_context();
        let default_ctx = usual.min(EngineOptions::DEFAULT_MAX_CTX);
        let n_ctx = options.n_ctx.unwrap_or(default_ctx);
        if !(1..=MAX_CTX).contains(&n_ctx) {
            return Err(NpuError::Runtime(crate::Error::BadOption {
                option: "ctx",
                found: n_ctx.to_string(),
                expected: "between 1 and 2^22",
            }));
        }
        check_rope(&model.model().config, n_ctx).map_err(NpuError::Runtime)?;
        let model = LoadedModel::for_context(model, n_ctx);
        let end_token = model.tokenizer().ok().and_then(|tokenizer| tokenizer.eos());
        let graph = &model.model().graph;
        let mut npu = NpuModel {
            cpu: options.cpu()?,
            cache: programs(device, &options),
            vectors: decode_vectors(&model, graph)?,
            ropes: graph.ropes.iter().map(half_split_rope).collect(),
            own_ropes: graph.ropes.iter().map(own_rope).collect(),
            interleaved: graph::head_orders(graph).interleaved.into_keys().collect(),
            plans: Mutex::default(),
            recent: Mutex::default(),
            device_cache: DeviceCache::default(),
            tables: Mutex::default(),
            experts: Mutex::default(),
            scales: Mutex::default(),
            kv_buffers: Mutex::default(),
            turn: Mutex::new(()),
            loaded: Mutex::default(),
            n_ctx,
            // No bit depends on it.
            pad: end_token.unwrap_or(0),
            model,
            observed: planner.observed(),
            planner,
            options,
        };
        npu.decode_at(0, false)?;
        // Everything loaded later is shared with decode, or small.
        npu.options.progress = None;
        Ok(npu)
    }

    /// The model.
    pub fn model(&self) -> &Arc<LoadedModel> {
        &self.model
    }

    /// The planner of its plans.
    pub fn planner(&self) -> &Arc<dyn Planner> {
        &self.planner
    }

    /// The target's own arrangements for writing and reading slots.
    pub(super) fn arrangement(&self) -> &dyn Arrangement {
        &*self.planner
    }

    /// The CPU of the host's steps.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &**self.cache.device()
    }

    /// Programs and buffers on the device.
    pub(crate) fn programs(&self) -> &ProgramCache {
        &self.cache
    }

    /// Sequences alive at a time.
    pub fn max_sequences(&self) -> usize {
        self.options.max_sequences.max(1)
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
        let kv_buffers = lock(&self.kv_buffers);
        let of = |wanted: Role| -> u64 {
            let of_role = kv_buffers.values().filter(|(_, role)| *role == wanted);
            of_role.map(|(bytes, _)| bytes).sum()
        };
        let (read, appended) = (of(Role::Static), of(Role::Intermediate));
        NpuMemory {
            weight_bytes: buffers.static_bytes.saturating_sub(read),
            activation_bytes: buffers.other_bytes.saturating_sub(appended),
            kv_bytes: read + appended,
        }
    }

    /// Programs, buffers and traffic so far.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Programs that a substitute executes instead of the device that was opened, with the reasons; and the
    /// number of all programs on the device.
    pub fn substitutes(&self) -> (Vec<(String, String)>, usize) {
        (self.cache.substitutes(), self.cache.n_loaded())
    }

    /// Bytes that filled static slots so far: weights and tables, each once.
    pub fn loaded_traffic(&self) -> Traffic {
        *lock(&self.loaded)
    }

    /// Passes a result on. If it says that the device was lost, programs and buffers are dropped,
    /// so that the next call makes them again.
    pub(crate) fn settle<T>(&self, result: Result<T, NpuError>) -> Result<T, NpuError> {
        let error = result.as_ref().err().and_then(NpuError::device);
        if error.is_some_and(DeviceError::is_loss) {
            self.cache.reset();
            lock(&self.tables).clear();
            lock(&self.kv_buffers).clear();
            *lock(&self.experts) = ExpertSets::default();
            self.device_cache.reset();
            for prepared in lock(&self.plans).values() {
                *lock(&prepared.filled) = false;
            }
        }
        result
    }

    /// Rotations of a host step.
    pub(super) fn ropes_of(&self, node: usize) -> &[RopeTable] {
        match self.interleaved.contains(&node) {
            true => &self.own_ropes,
            false => &self.ropes,
        }
    }

    /// The token that pads prompts.
    pub(super) fn pad(&self) -> u32 {
        self.pad
    }

    /// The plan for a kind of pass, ready for a pass whose first token is at position `first`: its programs are
    /// loaded and its static slots are filled.
    ///
    /// # Errors
    /// No such plan exists; a device that refuses its programs or buffers.
    pub fn plan(&self, first: u64, kind: &PassKind) -> Result<Arc<Plan>, NpuError> {
        Ok(self.prepared(first, kind, false)?.plan.clone())
    }

    /// Keeps other passes out.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// How prompts are cut.
    pub fn lengths(&self) -> Lengths {
        match self.options.prefill_tokens {
            Some(n_tokens) => Lengths::fixed(n_tokens),
            None => self.planner.lengths(),
        }
    }

    /// The plans that its passes use.
    pub fn sequences(&self) -> Sequences<'_> {
        Sequences {
            graph: &self.model.model().graph,
            planner: &*self.planner,
            n_ctx: self.n_ctx as u64,
        }
    }

    /// The plan of a token at position `first`.
    pub(super) fn decode_at(
        &self,
        first: usize,
        is_observed: bool,
    ) -> Result<Arc<PreparedPlan>, NpuError> {
        let first = first as u64;
        self.prepared(first, &self.sequences().decode(first), is_observed)
    }

    /// The plan for a kind of pass, possibly observed, ready for a pass whose first token is at position `first`.
    pub(super) fn prepared(
        &self,
        first: u64,
        kind: &PassKind,
        is_observed: bool,
    ) -> Result<Arc<PreparedPlan>, NpuError> {
        // One plan is enough if the planner hides nothing.
        let is_observed = is_observed && self.observed.is_some();
        let known = lock(&self.plans).get(&(*kind, is_observed)).cloned();
        let prepared = match known {
            Some(known) => known,
            None => self.make(kind, is_observed)?,
        };
        self.fill(&prepared, first as usize)?;
        self.make_room((*kind, is_observed), &prepared);
        Ok(prepared)
    }

    /// Keys of buffer sets distinguish plans. Without aliasing, a prompt's head is decode's,
    /// buffers included, if those hold nothing else.
    fn make(&self, kind: &PassKind, is_observed: bool) -> Result<Arc<PreparedPlan>, NpuError> {
        let graph = &self.model.model().graph;
        let observed = self.observed.as_ref().filter(|_| is_observed);
        let planner = observed.unwrap_or(&self.planner);
        let compiled = compile(&self.cache, &**planner, graph, kind)?;
        let suffix = suffix(kind, is_observed);
        let mut plans = lock(&self.plans);
        let decode = plans.get(&(PassKind::decode(), false)).cloned();
        let alias = compiled.plan.alias;
        let key = |call: &Call, container: &Container| {
            let of_decode = || {
                decode
                    .as_ref()
                    .is_some_and(|d| d.holds(&call.set, container))
            };
            match kind.phase {
                Phase::Prefill if !alias && of_decode() => call.set.clone(),
                Phase::Prefill => format!("{}@{}{suffix}", call.set, kind.n_tokens),
                Phase::Decode => format!("{}{suffix}", call.set),
            }
        };
        let prepared = Arc::new(PreparedPlan::new(compiled, graph, key)?);
        Ok(plans
            .entry((*kind, is_observed))
            .or_insert(prepared)
            .clone())
    }

    /// Allocates a plan's buffers and fills static slots: once, and tables again for other positions.
    pub(super) fn fill(&self, prepared: &PreparedPlan, first: usize) -> Result<(), NpuError> {
        let mut filled = lock(&prepared.filled);
        if *filled && !prepared.has_tables() {
            return Ok(());
        }
        let mut tables = lock(&self.tables);
        let progress = self.options.progress.as_ref().filter(|_| !*filled);
        let (mut done_bytes, total_bytes) = (0, prepared.static_bytes());
        if let Some(progress) = progress {
            progress.tell(0, total_bytes);
        }
        for (index, call) in prepared.plan.calls().enumerate() {
            let (container, key) = (prepared.container(call), prepared.key(index));
            // Their matrices come when they are first chosen.
            if call.experts.is_some() {
                self.cache.load(container).map_err(CacheError::from)?;
                continue;
            }
            let name = |slot: usize| prepared.buffer_name(index, slot).map(str::to_owned);
            let mut fill = |slot: usize, bytes: &mut [u8]| -> Result<(), NpuError> {
                let scales = self.fill_slot(prepared, call, slot, first, bytes)?;
                done_bytes += bytes.len() as u64;
                if let Some(progress) = progress {
                    progress.tell(done_bytes, total_bytes);
                }
                match (&call.bindings[slot], name(slot)) {
                    (Binding::Weight { .. }, Some(name)) => {
                        lock(&self.scales).insert(name, scales);
                    }
                    (Binding::RopeTable { .. }, Some(name)) => _ = tables.insert(name, first),
                    (Binding::Cache { .. }, Some(name)) => {
                        let kept = (bytes.len() as u64, Role::Static);
                        lock(&self.kv_buffers).insert(name, kept);
                    }
                    _ => {}
                }
                Ok(())
            };
            if !*filled {
                let traffic = self.cache.preload_with(container, key, &name, &mut fill)?;
                *lock(&self.loaded) += traffic;
                self.empty_caches(prepared, index)?;
            }
            self.refill_tables((prepared, call, index), first, &mut tables)?;
        }
        *filled = true;
        Ok(())
    }

    /// Fills the tables of a call that begin at another position than `first`; `tables` has the position of each by name.
    fn refill_tables(
        &self,
        (prepared, call, index): (&PreparedPlan, &Call, usize),
        first: usize,
        tables: &mut HashMap<String, usize>,
    ) -> Result<(), NpuError> {
        let other = |(slot, name): (usize, &str)| {
            (tables.get(name) != Some(&first)).then(|| (slot, name.to_owned()))
        };
        let moved: Vec<(usize, String)> = prepared.tables(index).filter_map(other).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let slots: Vec<usize> = moved.iter().map(|(slot, _)| *slot).collect();
        // One that fails half way is filled again.
        moved.iter().for_each(|(_, name)| _ = tables.remove(name));
        let mut fill = |slot: usize, bytes: &mut [u8]| {
            let filled = self.fill_slot(prepared, call, slot, first, bytes);
            filled.map(|_| ())
        };
        let (container, key) = (prepared.container(call), prepared.key(index));
        *lock(&self.loaded) += self.cache.refill(container, key, &slots, &mut fill)?;
        tables.extend(moved.into_iter().map(|(_, name)| (name, first)));
        Ok(())
    }
}

/// A rotation with the graph's own pairs.
fn own_rope(rope: &millrace_graph::Rope) -> RopeTable {
    let is_interleaved = rope.style == RopeStyle::Interleaved;
    RopeTable::new(is_interleaved, rope.inv_freq.clone(), rope.attention_factor)
}

/// Plans have rows of Q and K in half-split order, whatever the checkpoint's order, wherever they can be reordered.
fn half_split_rope(rope: &millrace_graph::Rope) -> RopeTable {
    RopeTable::new(false, rope.inv_freq.clone(), rope.attention_factor)
}

/// Longest context: its cache stays addressable for the widest models.
const MAX_CTX: usize = 1 << 22;
