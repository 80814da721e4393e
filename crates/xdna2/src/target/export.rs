//! Plans as designs in MLIR's aie dialect, with shells of the kernels that cores call.

mod readme;

use super::Xdna2Target;
use crate::lower::Plan;
use millrace_plan::{
    AttentionOn, BenchError, Export, Exporter, PassKind, Phase, SourceFile, Step, Target,
};
use millrace_xdna2_machine::Program;
use millrace_xdna2_silicon::{KernelFunction, LaunchDesign, WordsError, designs};
use std::collections::BTreeMap;

/// Prints for mlir-aie and Peano.
pub(super) struct Xdna2Exporter;

impl Exporter for Xdna2Exporter {
    fn form(&self) -> &'static str {
        "designs in MLIR's aie dialect and C++ shells of their kernels"
    }

    fn export(&self, request: &Export<'_>) -> Result<Vec<SourceFile>, BenchError> {
        let planner = Xdna2Target.planner(request.settings)?;
        let (machine, _) = super::machine(request.settings)?;
        let mut package = DesignPackage::default();
        for kind in request.kinds {
            let plan = planner.lower(request.graph, kind);
            let plan = plan.map_err(|error| BenchError::Failed(error.to_string()))?;
            let mut pass = Pass::new(title(kind));
            for program in called(&plan) {
                let planned = &plan.programs[program];
                let failed = |problem: String| {
                    BenchError::Failed(format!("`{}`: {problem}", planned.name()))
                };
                let program = Program::from_container(&planned.container)
                    .map_err(|error| failed(error.to_string()))?;
                let designs = designs(&program, &machine).map_err(|e| failed(e.to_string()))?;
                pass.programs.push(package.program(&program, designs));
            }
            package.passes.push(pass);
        }
        package.files(request.model)
    }
}

/// Title of a pass.
fn title(kind: &PassKind) -> String {
    let keys = match kind.attention {
        AttentionOn::Cached { n_keys, .. } => format!(", {n_keys} keys"),
        _ => String::new(),
    };
    match kind.phase {
        Phase::Prefill => format!("A prompt of {} tokens{keys}", kind.n_tokens),
        Phase::Decode => format!("A token{keys}"),
    }
}

/// A plan's programs in the order of their first call.
fn called(plan: &Plan) -> Vec<usize> {
    let mut order = Vec::new();
    for step in &plan.steps {
        if let Step::Call(call) = step
            && !order.contains(&call.program)
        {
            order.push(call.program);
        }
    }
    order
}

/// A pass of the model: its title, and its programs.
struct Pass {
    title: String,
    programs: Vec<ExportedProgram>,
}

impl Pass {
    fn new(title: String) -> Pass {
        Pass {
            title,
            programs: Vec::new(),
        }
    }
}

/// A program's launches, each with its file, or why it has none.
struct ExportedProgram {
    name: String,
    launches: Vec<(String, Result<ExportedLaunch, String>)>,
}

/// A launch's file and arguments.
struct ExportedLaunch {
    file: String,
    arguments: Vec<String>,
}

/// Everything that is written.
#[derive(Default)]
struct DesignPackage {
    passes: Vec<Pass>,
    /// Files by text without the title, which names the first program with that text.
    designs: BTreeMap<String, String>,
    files: Vec<SourceFile>,
    kernels: BTreeMap<String, KernelFunction>,
}

impl DesignPackage {
    fn program(
        &mut self,
        program: &Program,
        designs: Vec<Result<LaunchDesign, WordsError>>,
    ) -> ExportedProgram {
        let launches = designs.into_iter().zip(&program.launches);
        let launches = launches.map(|(design, launch)| {
            let exported = design.map_err(|error| error.to_string()).map(|design| {
                let slot = |&slot: &usize| program.slots[slot].name.clone();
                ExportedLaunch {
                    arguments: design.arguments.iter().map(slot).collect(),
                    file: self.design(&program.name, design),
                }
            });
            (launch.name.clone(), exported)
        });
        ExportedProgram {
            launches: launches.collect(),
            name: program.name.clone(),
        }
    }

    /// The file of a design: a new one, or that of an equal one.
    fn design(&mut self, program: &str, design: LaunchDesign) -> String {
        let body = design.text.split_once('\n').map_or("", |(_, body)| body);
        if let Some(file) = self.designs.get(body) {
            return file.clone();
        }
        let number = self.designs.len();
        let plain = |name: &str| -> String {
            let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            name.chars().map(keep).collect()
        };
        let (program, launch) = (plain(program), plain(&design.launch));
        let path = format!("designs/{number:02}_{program}_{launch}.mlir");
        self.designs.insert(body.to_owned(), path.clone());
        for kernel in design.kernels {
            self.kernels.insert(kernel.instance.symbol(), kernel);
        }
        self.files.push(SourceFile {
            path: path.clone(),
            text: design.text,
        });
        path
    }

    fn files(self, model: &str) -> Result<Vec<SourceFile>, BenchError> {
        let mut files = vec![SourceFile {
            path: "README.md".to_owned(),
            text: readme::readme(model, &self.passes, &self.kernels),
        }];
        files.extend(self.files);
        for (symbol, kernel) in &self.kernels {
            let text = kernel.shell();
            let text = text.map_err(|e| BenchError::Failed(format!("`{symbol}`: {e}")))?;
            files.push(SourceFile {
                path: format!("kernels/{symbol}.cc"),
                text,
            });
        }
        Ok(files)
    }
}
