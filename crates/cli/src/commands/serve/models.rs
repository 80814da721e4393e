//! The models of `serve`: names, and what opens them.

use super::Args;
use crate::exit::{Failure, Outcome};
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use crate::target_args::DeviceArgs;
use millrace_runtime::{CpuEngine, EngineOptions, LoadedModel};
use millrace_server::ModelSpec;
use millrace_server::scheduler::EngineFactory;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Opens every model once, so that what is wrong with one is told before anyone asks; then each on every device.
pub(super) fn specs(args: &Args, ui: Ui) -> Outcome<Vec<ModelSpec>> {
    let mut specs = Vec::new();
    for text in &args.models {
        let (name, model) = named(text);
        let model = ModelArgs {
            model: model.to_owned(),
            offline: args.offline,
        };
        let loaded = model.load(ui)?;
        // Clients speak in text.
        loaded.tokenizer()?;
        let weight_bytes = loaded.checkpoint().size_bytes();
        let memory_bytes = weight_bytes.saturating_add(engine_bytes(args, &loaded)?);
        let also = args.also_on.iter().map(|place| {
            let device = DeviceArgs {
                device: *place,
                ..args.device.clone()
            };
            (format!("{name}@{}", place.name()), device)
        });
        for (id, device) in std::iter::once((name.clone(), args.device.clone())).chain(also) {
            specs.push(ModelSpec {
                id,
                source: model.model.clone(),
                weight_bytes,
                memory_bytes,
                open: factory(args, device, model.clone(), Arc::clone(&loaded), ui),
            });
        }
    }
    Ok(specs)
}

/// The name by which clients call a model, and the model. A path that exists is no name with a model behind it.
fn named(text: &str) -> (String, &str) {
    if let Some((name, model)) = text.split_once('=')
        && !Path::new(text).exists()
        && !name.is_empty()
    {
        return (name.to_owned(), model);
    }
    let path = Path::new(text);
    let name = match path.exists() {
        true => path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned()),
        false => None,
    };
    let name = name.unwrap_or_else(|| text.strip_prefix("hf:").unwrap_or(text).to_owned());
    (name, text)
}

/// What the engine takes beside the weights. A device's own copies of them are not known before it is set up.
fn engine_bytes(args: &Args, loaded: &LoadedModel) -> Outcome<u64> {
    let memory = CpuEngine::memory(loaded, &engine_options(args))?;
    Ok(memory.kv_bytes.saturating_add(memory.scratch_bytes) as u64)
}

fn engine_options(args: &Args) -> EngineOptions {
    EngineOptions {
        n_ctx: args.context.ctx,
        kv_type: args.context.kv_type,
        max_sequences: args.parallel,
        kv_tokens: args.kv_tokens,
        keep_prefixes: true,
        ..args.cpu.options()
    }
}

/// Sets the device up; opens the files again if the model was unloaded.
fn factory(
    args: &Args,
    device: DeviceArgs,
    model: ModelArgs,
    loaded: Arc<LoadedModel>,
    ui: Ui,
) -> EngineFactory {
    let first = Mutex::new(Some(loaded));
    let cpu = args.cpu.clone();
    let options = engine_options(args);
    Arc::new(move || {
        let opened = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let loaded = match opened {
            Some(loaded) => loaded,
            None => model.load(ui).map_err(|failure: Failure| failure.message)?,
        };
        let engine = device.make(&loaded, options.clone(), &cpu, ui);
        engine.map_err(|failure: Failure| failure.message)
    })
}

#[cfg(test)]
mod tests {
    use super::named;

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
            assert_eq!(named(text), (name.to_owned(), model), "{text}");
        }
    }
}
