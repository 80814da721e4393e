//! `--draft`: speculative decoding, shared by `run`, `chat`, `bench` and `serve`.

use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::ModelArgs;
use crate::output::{Ui, bytes};
use crate::target_args::{DeviceArgs, ModelPlacement};
use millrace_plan::predict::{self, PromptWorkload};
use millrace_runtime::HostMemory;
use millrace_runtime::speculate::check_draft;
use millrace_runtime::{
    AdapterSet, CpuEngine, Engine, EngineOptions, LoadedModel, SpeculationStats, Speculator,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Value that selects drafts from repetitions in the text.
pub(crate) const NGRAM: &str = "ngram";

/// Value that selects the model's own draft layer.
pub(crate) const MTP: &str = "mtp";

/// How tokens are guessed ahead
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct DraftArgs {
    /// Guess tokens ahead and check them together: with a smaller MODEL of the same vocabulary, with the model's
    /// own draft layer (`mtp`), with its assistant (a MODEL too), or from repetitions in the text (`ngram`). Changes
    /// the speed, not the text; on an NPU, near ties may fall otherwise
    #[arg(long, value_name = "MODEL|mtp|ngram")]
    pub(crate) draft: Option<String>,
}

/// A drafter that suits its target, before any memory is laid out for it.
#[derive(Clone)]
pub(crate) enum Draft {
    Ngram,
    /// The target's own layer.
    Layer,
    Model(Arc<LoadedModel>),
    /// The target's assistant, which reads the target's keys and values.
    Assistant(Arc<LoadedModel>),
}

/// Memory of a model, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Need {
    weights: u64,
    cache: u64,
    scratch: u64,
}

impl Need {
    fn total(&self) -> u64 {
        self.weights
            .saturating_add(self.cache)
            .saturating_add(self.scratch)
    }

    fn words(&self) -> String {
        format!(
            "{} of weights, {} of cache, {} of scratch",
            bytes(self.weights),
            bytes(self.cache),
            bytes(self.scratch)
        )
    }
}

impl DraftArgs {
    /// Opens the draft model. Refuses one that cannot draft for `target`, or that does not fit beside it in the
    /// context of the options. Nothing is laid out yet.
    pub(crate) fn open(
        &self,
        target: &LoadedModel,
        args: &ModelArgs,
        device: &DeviceArgs,
        options: &EngineOptions,
        ui: Ui,
    ) -> CommandResult<Option<Draft>> {
        let Some(name) = &self.draft else {
            return Ok(None);
        };
        match name.as_str() {
            NGRAM => return Ok(Some(Draft::Ngram)),
            MTP => return open_layer(target, device, options, ui).map(Some),
            _ => {}
        }
        let args = ModelArgs {
            model: name.clone(),
            ..args.clone()
        };
        let draft = args.load_draft(ui)?;
        let options = with_context_of(target, options);
        let mut of_draft = options.clone();
        if draft.is_assistant() {
            check_on_cpu(device, (name.as_str(), "an assistant"))?;
            draft.for_target(target)?;
            of_draft = assistant_options(&options);
        } else {
            check_draft(target, &draft)?;
        }
        let needs = [
            need(target, device, &options)?,
            need(&draft, device, &of_draft)?,
        ];
        let n_ctx = options.n_ctx.unwrap_or_default();
        ui.detail(format_args!(
            "planned for a context of {n_ctx}: {} for {}; {} for {}",
            needs[0].words(),
            target.name(),
            needs[1].words(),
            draft.name()
        ));
        if let Some(usable) = HostMemory::read().usable_bytes() {
            check_fits([target.name(), draft.name()], needs, n_ctx, usable)?;
        }
        Ok(Some(Draft::of(draft)))
    }
}

/// Options for the memory of an assistant, which computes one row at a time.
pub(crate) fn assistant_options(options: &EngineOptions) -> EngineOptions {
    EngineOptions {
        max_chunk: 1,
        ..options.clone()
    }
}

/// Refuses a target without a draft layer, one on a device, and one that does not fit beside its layer's cache.
fn open_layer(
    target: &LoadedModel,
    device: &DeviceArgs,
    options: &EngineOptions,
    ui: Ui,
) -> CommandResult<Draft> {
    check_on_cpu(device, (MTP, "an MTP layer"))?;
    let layer = target.draft_layer()?;
    let options = with_context_of(target, options);
    let needs = [
        need(target, device, &options)?,
        Need {
            // The weights are part of the target's file.
            weights: 0,
            ..need(&layer, device, &options)?
        },
    ];
    let n_ctx = options.n_ctx.unwrap_or_default();
    ui.detail(format_args!(
        "planned for a context of {n_ctx}: {} for {}; {} for its MTP layer",
        needs[0].words(),
        target.name(),
        needs[1].words(),
    ));
    if let Some(usable) = HostMemory::read().usable_bytes() {
        check_fits([target.name(), "its MTP layer"], needs, n_ctx, usable)?;
    }
    Ok(Draft::Layer)
}

/// A device does not give out the hidden states that a draft layer or an assistant reads.
fn check_on_cpu(device: &DeviceArgs, (name, drafter): (&str, &str)) -> CommandResult {
    match device.device {
        ModelPlacement::Cpu => Ok(()),
        ModelPlacement::Target(target) => Err(CommandFailure::usage(format!(
            "--draft {name} runs on the CPU: {} does not give out the states that {drafter} reads",
            target.name()
        ))
        .hint("take --draft ngram or a smaller model, or leave --device out")),
    }
}

/// Options with the target's context, so that the draft model gets the same.
pub(crate) fn with_context_of(target: &LoadedModel, options: &EngineOptions) -> EngineOptions {
    let trained = target.model().config.usual_context();
    let n_ctx = trained.min(EngineOptions::DEFAULT_MAX_CTX);
    EngineOptions {
        n_ctx: Some(options.n_ctx.unwrap_or(n_ctx)),
        ..options.clone()
    }
}

/// Memory of a model where it runs.
fn need(model: &LoadedModel, device: &DeviceArgs, options: &EngineOptions) -> CommandResult<Need> {
    let target = match device.device {
        ModelPlacement::Cpu => {
            let memory = CpuEngine::memory(model, options)?;
            return Ok(Need {
                weights: model.checkpoint().size_bytes(),
                cache: memory.kv_bytes as u64,
                scratch: memory.scratch_bytes as u64,
            });
        }
        ModelPlacement::Target(target) => target,
    };
    let graph = &model.model().graph;
    let planner = device.plans.planner(target, graph)?;
    let n_ctx = options.n_ctx.unwrap_or(1) as u64;
    let longest = planner.lengths().all().last().copied().unwrap_or(1);
    let work = PromptWorkload {
        prompt_tokens: longest.min(n_ctx).max(1),
        context: n_ctx.saturating_sub(1),
    };
    let memory = predict::memory(graph, &*planner, &work)
        .map_err(|error| CommandFailure::usage(error.to_string()))?;
    Ok(Need {
        weights: memory.weight_bytes + memory.table_bytes,
        cache: memory.cache_bytes,
        scratch: memory.value_bytes,
    })
}

/// Refuses models that do not fit, with the numbers.
fn check_fits(names: [&str; 2], needs: [Need; 2], n_ctx: usize, usable: u64) -> CommandResult {
    let total = needs[0].total().saturating_add(needs[1].total());
    if total <= usable {
        return Ok(());
    }
    let [target, draft] = names;
    Err(CommandFailure::usage(format!(
        "{target} and {draft} do not fit together in a context of {n_ctx} tokens: {} ({}) and {} ({}) are \
         needed, and {} are free",
        bytes(needs[0].total()),
        needs[0].words(),
        bytes(needs[1].total()),
        needs[1].words(),
        bytes(usable),
    ))
    .hint("lower --ctx (both models share it), take a smaller draft model, or --draft ngram, which needs no memory"))
}

impl Draft {
    /// The drafter that an open model is.
    pub(crate) fn of(model: Arc<LoadedModel>) -> Draft {
        match model.is_assistant() {
            true => Draft::Assistant(model),
            false => Draft::Model(model),
        }
    }

    /// Lays out the drafter for `engine`'s model, on the same device and in the same context.
    pub(crate) fn speculator(
        &self,
        engine: &dyn Engine,
        device: &DeviceArgs,
        options: &EngineOptions,
        ui: Ui,
    ) -> CommandResult<Speculator> {
        let draft = match self {
            Draft::Ngram => return Ok(Speculator::ngram()),
            Draft::Layer => None,
            Draft::Model(draft) => Some(draft),
            Draft::Assistant(draft) => {
                check_on_cpu(device, (draft.name(), "an assistant"))?;
                return Ok(Speculator::assistant(draft, engine)?);
            }
        };
        let options = EngineOptions {
            n_ctx: Some(engine.limits().n_ctx),
            // Adapters belong to the target.
            adapters: AdapterSet::default(),
            ..options.clone()
        };
        let Some(draft) = draft else {
            check_on_cpu(device, (MTP, "an MTP layer"))?;
            let layer = Arc::new(engine.model().draft_layer()?);
            let own = CpuEngine::new(layer, options)?;
            return Ok(Speculator::layer(Box::new(own), engine.model())?);
        };
        let own = device.make(draft, options, ui)?;
        Ok(Speculator::model(own, engine.model())?)
    }

    /// Refuses images for a draft model, which reads only tokens.
    pub(crate) fn refuse_images(&self, n_images: usize) -> CommandResult {
        match self {
            Draft::Model(draft) if n_images > 0 => Err(CommandFailure::usage(format!(
                "the draft model {} cannot see images",
                draft.name()
            ))
            .hint("take --draft ngram, or leave --draft out")),
            _ => Ok(()),
        }
    }
}

/// `drafted 120 tokens, 96 drawn (80 %) in 30 checks, 4 steps without`.
pub(crate) fn line(stats: &SpeculationStats) -> String {
    let SpeculationStats {
        n_checks,
        n_plain,
        n_drafted,
        n_accepted,
        ..
    } = stats;
    match stats.acceptance() {
        None => format!("no drafts: they would not have paid ({n_plain} steps)"),
        Some(share) => format!(
            "drafted {n_drafted} tokens, {n_accepted} drawn ({:.0} %) in {n_checks} checks, {n_plain} steps without",
            share * 100.0
        ),
    }
}

/// Difference of the counters since `before`.
pub(crate) fn since(now: SpeculationStats, before: SpeculationStats) -> SpeculationStats {
    SpeculationStats {
        n_checks: now.n_checks - before.n_checks,
        n_plain: now.n_plain - before.n_plain,
        n_drafted: now.n_drafted - before.n_drafted,
        n_accepted: now.n_accepted - before.n_accepted,
        draft_ns: now.draft_ns - before.draft_ns,
    }
}

/// Counters as `--json` prints them.
pub(crate) fn json(stats: &SpeculationStats) -> Value {
    json!({
        "n_drafted": stats.n_drafted,
        "n_accepted": stats.n_accepted,
        "acceptance": stats.acceptance(),
        "n_checks": stats.n_checks,
        "n_plain_steps": stats.n_plain,
        "draft_ms": stats.draft_ns as f64 / 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said_with_numbers() {
        let need = |gib: u64| Need {
            weights: gib << 30,
            cache: 1 << 30,
            scratch: 0,
        };
        let names = ["big", "small"];
        assert!(check_fits(names, [need(4), need(1)], 8192, 7 << 30).is_ok());
        let failure = check_fits(names, [need(4), need(1)], 8192, (7 << 30) - 1).unwrap_err();
        for part in ["big and small", "8192", "5.0 GiB", "2.0 GiB", "are free"] {
            assert!(
                failure.message.contains(part),
                "{part}: {}",
                failure.message
            );
        }
    }

    #[test]
    fn statistics_are_told_in_a_line() {
        let mut stats = SpeculationStats {
            n_plain: 3,
            ..SpeculationStats::default()
        };
        assert!(line(&stats).contains("would not have paid"));
        (stats.n_checks, stats.n_drafted, stats.n_accepted) = (10, 40, 30);
        assert!(line(&stats).contains("40 tokens, 30 drawn (75 %) in 10 checks"));
        assert_eq!(since(stats, stats), SpeculationStats::default());
    }
}
