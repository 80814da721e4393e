//! Times of the stitched programs that mode mlir-air runs. Measurements of MLIR-AIR's Llama-3.2-1B example and of the
//! profile that accompanies it are predicted from these alone.

use super::stack::StackProgram;
use millrace_format::Source;
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_xdna2::lower::{self, LowerOptions, Mode, PlannedProgram};
use millrace_xdna2_machine::{Machine, Profile, timing};
use std::collections::HashMap;

/// Run times of a model's programs by name, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct ModelRunTimes {
    by_name: HashMap<String, f64>,
}

impl ModelRunTimes {
    /// Lowers a model of that name for prompts of that length, and times its programs. One block is enough: every block
    /// runs the same programs.
    pub(super) fn new(
        model: &str,
        length: u64,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<ModelRunTimes, String> {
        let name = model.to_lowercase();
        let geometry =
            ModelGeometry::named(&name).ok_or_else(|| format!("no geometry `{name}`"))?;
        let recipe = Recipe::parse("bf16").ok_or("no recipe `bf16`")?;
        let model = Model::without_weights(geometry, Some(1), recipe, Source::HuggingFace);
        let graph = model.map_err(|e| e.to_string())?.graph;
        let options = LowerOptions::new(Mode::MlirAir, length);
        let prefill = lower::prefill(&graph, machine, &options).map_err(|e| e.to_string())?;
        let decode = lower::decode(&graph, machine, &options).map_err(|e| e.to_string())?;
        let time = |planned: PlannedProgram| {
            let program = lower::program_of(&planned).ok_or("no tile program")?;
            let timing = timing::predict(program, machine, profile);
            let total_ns = timing.map_err(|e| e.to_string())?.total_ns;
            Ok((planned.name().to_owned(), total_ns))
        };
        let programs = prefill.programs.into_iter().chain(decode.programs);
        let by_name = programs.map(time).collect::<Result<_, String>>()?;
        Ok(ModelRunTimes { by_name })
    }

    /// The NPU's run of a program.
    pub(super) fn run_ns(&self, program: StackProgram) -> Result<f64, String> {
        let name = program.name();
        let found = self.by_name.get(name).copied();
        found.ok_or_else(|| format!("no program `{name}` in the plan"))
    }
}
