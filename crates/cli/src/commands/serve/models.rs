//! The models of `serve`: their names, and how to open them.

use super::assign::{DRAFT, MMPROJ};
use super::drafts::Drafter;
use super::{ServedArgs, adapters};
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::{ModelArgs, warn};
use crate::output::Ui;
use crate::ranks::MpiArgs;
use crate::target_args::{DeviceArgs, ModeArgs, ModelPlacement};
use millrace_runtime::disk::{DiskError, PageFolder};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, LoadedModel, LogitsFor, VisionEncoder,
};
use millrace_server::scheduler::{EngineFactory, EngineSetup};
use millrace_server::{AdapterSpec, ModelSpec, image_memory_bytes};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A model, and the name that clients use for it.
pub(super) struct NamedModel {
    pub(super) name: String,
    pub(super) model: String,
}

/// Opens every model once, so that a fault in one shows before any request; then makes each for every device.
pub(crate) fn specs(models: &[String], args: &ServedArgs, ui: Ui) -> CommandResult<Vec<ModelSpec>> {
    if args.ranks.mpi {
        the_only(models, args)?;
    }
    check_devices(args)?;
    let models: Vec<NamedModel> = models.iter().map(|text| named(text)).collect();
    let drafts = DRAFT.assign(&args.draft, &models)?;
    let encoders = MMPROJ.assign(&args.mmproj, &models)?;
    let folder = args.page_folder(ui)?;
    let adapters = adapters::assign(&args.lora, &models)?;
    let assigned = drafts.into_iter().zip(encoders).zip(adapters);
    let mut specs = Vec::new();
    for (named, ((draft, mmproj), adapters)) in models.into_iter().zip(assigned) {
        let opened = OpenedModel::open(named, (draft, mmproj, adapters), args, ui)?;
        specs.push(opened.spec(None, args, folder.clone(), ui)?);
        for place in &args.also_on {
            specs.push(opened.spec(Some(*place), args, folder.clone(), ui)?);
        }
    }
    Ok(specs)
}

/// Refuses options with which no model could compute, before the server listens.
fn check_devices(args: &ServedArgs) -> CommandResult {
    let is_cpu = |place: &ModelPlacement| matches!(place, ModelPlacement::Cpu);
    if args.also_on.iter().all(is_cpu) {
        args.device.refuse_settings_on_cpu()?;
    }
    args.cpu.check()
}

/// A model to serve, already opened once.
struct OpenedModel {
    name: String,
    model: ModelArgs,
    loaded: Arc<LoadedModel>,
    drafter: Option<Drafter>,
    mmproj: Option<PathBuf>,
    adapters: Vec<AdapterSpec>,
    weight_bytes: u64,
    /// Bytes of weights, caches and scratch, of images, adapters and drafts.
    memory_bytes: u64,
}

impl OpenedModel {
    fn open(
        NamedModel { name, model }: NamedModel,
        (draft, mmproj, adapters): (Option<String>, Option<String>, Vec<AdapterSpec>),
        args: &ServedArgs,
        ui: Ui,
    ) -> CommandResult<OpenedModel> {
        let model = ModelArgs {
            model,
            offline: args.offline,
        };
        let loaded = model.load(ui)?;
        // Clients send text, so a tokenizer is needed.
        let tokenizer = loaded.tokenizer()?;
        match loaded.model().config.encoder {
            Some(_) => warn(tokenizer.vocabulary_warnings(), ui),
            None => warn(&tokenizer.warnings(), ui),
        }
        let drafter = match draft {
            Some(draft) => Drafter::open(draft, args, &loaded, &args.device, ui)?,
            None => None,
        };
        let mmproj = mmproj.map(PathBuf::from);
        let encoder = encoder(&loaded, mmproj.as_deref())?;
        let vision_bytes = encoder.as_ref().map_or(0, VisionEncoder::own_bytes);
        let weight_bytes = loaded.checkpoint().size_bytes() + vision_bytes;
        let mut parts_bytes = vec![engine_bytes(&loaded, &engine_options(args))?];
        if let Some(encoder) = &encoder {
            let most = loaded.model().config.context_length;
            let n_ctx = engine_options(args).n_ctx;
            let n_ctx = n_ctx.unwrap_or(most.min(EngineOptions::DEFAULT_MAX_CTX));
            parts_bytes.push(image_memory_bytes(encoder, n_ctx));
        }
        for adapter in adapters::open(&adapters, &loaded)? {
            parts_bytes.push(adapter.size_bytes() as u64);
        }
        if let Some(drafter) = &drafter {
            parts_bytes.push(drafter.memory_bytes(args, &loaded, ui)?);
        }
        let parts_bytes = parts_bytes.into_iter();
        Ok(OpenedModel {
            name,
            model,
            loaded,
            drafter,
            mmproj,
            adapters,
            weight_bytes,
            memory_bytes: parts_bytes.fold(weight_bytes, u64::saturating_add),
        })
    }

    /// Specification of the model on its device under its name, or on a further device under its
    /// name and the device's.
    fn spec(
        &self,
        also_on: Option<ModelPlacement>,
        args: &ServedArgs,
        folder: Option<PageFolder>,
        ui: Ui,
    ) -> CommandResult<ModelSpec> {
        let place = also_on.unwrap_or(args.device.device);
        // Settings of an NPU are for the models beside this one, if it is on the CPU.
        let (is_cpu, plans) = match place {
            ModelPlacement::Cpu => (true, ModeArgs::default()),
            ModelPlacement::Target(target) => {
                let plans = args.device.plans.clone();
                plans.planner(target, &self.loaded.model().graph)?;
                (false, plans)
            }
        };
        let device = DeviceArgs {
            device: place,
            plans,
        };
        if !is_cpu && also_on.is_none() && !self.adapters.is_empty() {
            let message = format!("--lora: {} computes with no adapters", device.device.name());
            return Err(CommandFailure::usage(message)
                .hint("serve the model on the CPU, or merge the adapter into it"));
        }
        let adapters = match is_cpu {
            true => self.adapters.clone(),
            false => Vec::new(),
        };
        let id = match also_on {
            None => self.name.clone(),
            Some(place) => format!("{}@{}", self.name, place.name()),
        };
        let first = (Arc::clone(&self.loaded), self.drafter.clone());
        let source = (self.model.clone(), self.mmproj.clone(), adapters.clone());
        Ok(ModelSpec {
            adapters,
            id,
            source: self.model.model.clone(),
            weight_bytes: self.weight_bytes,
            memory_bytes: self.memory_bytes,
            open: factory(args, device, source, first, folder, ui),
        })
    }
}

/// Follows rank 0, which serves the model.
pub(crate) fn follow(models: &[String], args: &ServedArgs, ui: Ui) -> CommandResult {
    let model = ModelArgs {
        model: named(the_only(models, args)?).model,
        offline: args.offline,
    };
    let options = engine_options(args);
    args.ranks.follow(&model.load(ui)?, options, ui)
}

/// The single model that ranks share; refuses several.
fn the_only<'a>(models: &'a [String], args: &ServedArgs) -> CommandResult<&'a str> {
    match models {
        [model] if args.also_on.is_empty() => Ok(model),
        _ => Err(CommandFailure::usage(
            "--mpi serves one model: name one, and leave out --also-on",
        )),
    }
}

/// Splits a model from the name that clients use for it. A path that exists is not split.
fn named(text: &str) -> NamedModel {
    if let Some((name, model)) = text.split_once('=')
        && !Path::new(text).exists()
        && !name.is_empty()
    {
        return NamedModel {
            name: name.to_owned(),
            model: model.to_owned(),
        };
    }
    let path = Path::new(text);
    let name = match path.exists() {
        true => path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned()),
        false => None,
    };
    let name = name.unwrap_or_else(|| text.strip_prefix("hf:").unwrap_or(text).to_owned());
    NamedModel {
        name,
        model: text.to_owned(),
    }
}

/// The model's vision encoder, if it has one. A named encoder that does not open is refused here, before any image is
/// sent. For another, the client that sends an image gets the reason.
fn encoder(
    loaded: &Arc<LoadedModel>,
    mmproj: Option<&Path>,
) -> CommandResult<Option<VisionEncoder>> {
    match (VisionEncoder::open(loaded, mmproj), mmproj) {
        (Ok(encoder), _) => Ok(Some(encoder)),
        (Err(error), Some(_)) => Err(error.into()),
        (Err(_), None) => Ok(None),
    }
}

/// Memory of the engine beside the weights. A device's own copies of them are not known before it is set up.
pub(super) fn engine_bytes(loaded: &LoadedModel, options: &EngineOptions) -> CommandResult<u64> {
    let memory = CpuEngine::memory(loaded, options)?;
    Ok(memory.kv_bytes.saturating_add(memory.scratch_bytes) as u64)
}

pub(super) fn engine_options(args: &ServedArgs) -> EngineOptions {
    EngineOptions {
        n_ctx: args.context.ctx,
        kv_type: args.context.kv_type,
        max_sequences: args.parallel,
        kv_tokens: args.kv_tokens,
        keep_prefixes: true,
        ..args.cpu.options()
    }
}

/// Sets up the device for a model and its drafter; opens the files again if the model was unloaded.
fn factory(
    args: &ServedArgs,
    device: DeviceArgs,
    (model, mmproj, adapters): (ModelArgs, Option<PathBuf>, Vec<AdapterSpec>),
    first: (Arc<LoadedModel>, Option<Drafter>),
    folder: Option<PageFolder>,
    ui: Ui,
) -> EngineFactory {
    let again = first.1.as_ref().map(Drafter::source);
    let first = Mutex::new(Some(first));
    let options = engine_options(args);
    let ranks: MpiArgs = args.ranks.clone();
    let open = move || -> CommandResult<EngineSetup> {
        let opened = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_reload = opened.is_none();
        let (loaded, drafter) = match opened {
            Some(opened) => opened,
            None => {
                let drafter = again.as_ref().map(|source| Drafter::reopen(source, ui));
                (model.load(ui)?, drafter.transpose()?)
            }
        };
        let mut engine = ranks.make(&device, &loaded, options.clone(), ui)?;
        // A virtual device would take as long to simulate this as a request of one token.
        if engine.device_model().is_none() {
            warm_up(&mut *engine)?;
        }
        if let Some(folder) = folder.as_ref().filter(|_| engine.limits().keeps_prefixes) {
            keep_pages(&mut *engine, folder, is_reload)?;
        }
        let lay_out = |drafter: Drafter| {
            let draft = drafter.draft;
            draft.speculator(&*engine, &device, &options, ui)
        };
        let speculator = drafter.map(lay_out).transpose()?;
        Ok(EngineSetup {
            engine,
            speculator,
            mmproj: mmproj.clone(),
            adapters: adapters::open(&adapters, &loaded)?,
        })
    };
    Arc::new(move || open().map_err(|failure: CommandFailure| failure.message))
}

/// Time that a reloaded model waits for its former engine, which completes its answers and writes their pages.
const LEAVING_TIME: Duration = Duration::from_secs(60);

/// Keeps an engine's pages in a folder. The engine unloaded before it may still hold the folder.
fn keep_pages(engine: &mut dyn Engine, folder: &PageFolder, is_reload: bool) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match engine.keep_pages_in(folder) {
            Err(Error::Disk(error))
                if is_reload
                    && matches!(*error, DiskError::Busy { .. })
                    && start.elapsed() < LEAVING_TIME =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Computes one token and forgets it. A file is mapped, so the first pass waits for its pages to be read; no request should pay for that.
fn warm_up(engine: &mut dyn Engine) -> CommandResult<()> {
    // An encoder has no next token.
    let logits = match engine.model().model().config.encoder {
        Some(_) => LogitsFor::None,
        None => LogitsFor::Last,
    };
    let seq = engine.create()?;
    engine.compute(&[BatchItem::new(seq, &[0], logits)])?;
    Ok(engine.release(seq)?)
}

#[cfg(test)]
mod tests {
    use super::{named, warm_up};
    use millrace_runtime::{CpuEngine, Engine, EngineOptions};
    use std::sync::Arc;

    #[test]
    fn a_warm_engine_has_computed_and_holds_nothing() {
        let encoder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../testdata/encoders/bert-rank"
        );
        for (name, n_logit_rows) in [("demo", 1), (encoder, 0)] {
            let model = millrace::Model::open(name).unwrap();
            let options = EngineOptions {
                n_threads: Some(1),
                n_ctx: Some(64),
                ..EngineOptions::default()
            };
            let mut engine = CpuEngine::new(Arc::clone(model.loaded()), options).unwrap();
            warm_up(&mut engine).unwrap();
            let counters = engine.counters();
            assert_eq!(counters.n_logit_rows, n_logit_rows, "{name}");
            assert_eq!(engine.kv_usage().used_bytes, 0, "{name}");
            assert_eq!(engine.room(&[], 1).unwrap(), 64, "{name}");
        }
    }

    #[test]
    fn models_have_names() {
        for (text, name, model) in [
            ("demo", "demo", "demo"),
            ("small=demo", "small", "demo"),
            (
                "hf:OWNER/REPO:Q4_K_M",
                "OWNER/REPO:Q4_K_M",
                "hf:OWNER/REPO:Q4_K_M",
            ),
            ("x=hf:OWNER/REPO", "x", "hf:OWNER/REPO"),
            ("src/main.rs", "main", "src/main.rs"),
        ] {
            let found = named(text);
            assert_eq!((&*found.name, &*found.model), (name, model), "{text}");
        }
    }
}
