//! A plan's steps: programs of groups, calls of them, and the placement of each node.

use super::assemble::GroupSlots;
use super::group::{GroupItem, NodeGroup};
use super::kernel::Kernels;
use super::{
    Call, Device, Feature, LowerError, Misfit, NodePlace, Phase, Placement, Plan, PlannedProgram,
    Step, resident,
};
use millrace_plan::Annex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Puts a plan together.
pub(super) struct Assembly<'a> {
    plan: Plan,
    kernels: &'a Kernels<'a>,
    /// Programs by signature.
    known: HashMap<String, usize>,
    /// Keys of buffer sets in use.
    sets: HashSet<String>,
    /// Columns of a group's projections if it is one configuration, by the signature of the plain group.
    columns: HashMap<String, Result<u64, String>>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(kernels: &'a Kernels<'a>) -> Assembly<'a> {
        Assembly {
            plan: Plan {
                phase: kernels.phase,
                n_tokens: kernels.n_tokens(),
                alias: kernels.options.features.has(Feature::Alias),
                head: kernels.options.head,
                programs: Vec::new(),
                steps: Vec::new(),
                placement: Vec::new(),
                single_row: match kernels.is_single_row() {
                    true => millrace_graph::single_row(kernels.graph),
                    false => Vec::new(),
                },
            },
            kernels,
            known: HashMap::new(),
            sets: HashSet::new(),
            columns: HashMap::new(),
        }
    }

    /// The plan of all that was added.
    pub(super) fn done(mut self) -> Plan {
        self.plan.placement.sort_by_key(|p| p.node);
        self.plan
    }

    pub(super) fn add(&mut self, item: GroupItem) -> Result<Result<(), Misfit>, LowerError> {
        match item {
            GroupItem::Also(step) => self.plan.steps.push(Step::Host(step)),
            GroupItem::Host {
                node,
                steps,
                reason,
            } => {
                self.plan.steps.extend(steps.into_iter().map(Step::Host));
                let place = NodePlace::Host;
                self.plan.placement.push(Placement {
                    node,
                    place,
                    reason,
                });
            }
            GroupItem::Group(group) => return self.add_group(&group),
        }
        Ok(Ok(()))
    }

    /// The group as one configuration of the array, if it may be and fits.
    fn resident(&mut self, group: &NodeGroup) -> Result<Option<NodeGroup>, Misfit> {
        let kernels = self.kernels;
        let wanted = kernels.options.features.has(Feature::Resident);
        if !wanted || kernels.phase != Phase::Decode || group.members.len() < 2 {
            return match group.attends() {
                true => Err(Misfit::Attention),
                false => Ok(None),
            };
        }
        let plain = GroupSlots::new(group, kernels).signature;
        let columns = (self.columns.entry(plain))
            .or_insert_with(|| resident::columns(group, kernels, self.kernels.machine));
        let cols = match columns.clone() {
            Ok(cols) => cols,
            Err(problem) if group.attends() => return Err(self.misfit(group, problem)),
            Err(_) => return Ok(None),
        };
        Ok(resident::rebuilt(group, kernels, cols))
    }

    /// Why a group with attention does not fit: for its head, if it does without.
    fn misfit(&self, group: &NodeGroup, problem: String) -> Misfit {
        let of_blocks = group.of_blocks(self.kernels);
        match resident::columns(&of_blocks, self.kernels, self.kernels.machine) {
            Ok(_) if group.has_head(self.kernels) => Misfit::Head(problem),
            _ => Misfit::Attention,
        }
    }

    fn add_group(&mut self, group: &NodeGroup) -> Result<Result<(), Misfit>, LowerError> {
        let resident = match self.resident(group) {
            Ok(resident) => resident,
            Err(misfit) => return Ok(Err(misfit)),
        };
        let group = resident.as_ref().unwrap_or(group);
        let wired = GroupSlots::new(group, self.kernels);
        let program = match self.known.get(&wired.signature) {
            Some(&known) => known,
            None => self.add_program(&wired, resident.is_some())?,
        };
        let step = self.plan.steps.len();
        let mut first = 0_usize;
        for (i, (node, kernels)) in group.members.iter().enumerate() {
            // One without a kernel is computed by the kernel before it.
            let launches = match kernels.len() {
                0 => first.saturating_sub(1)..first,
                n => first..first + n,
            };
            first = launches.end;
            let reason = match i.checked_sub(1).map(|before| group.members[before].0) {
                None => group.reason.clone(),
                Some(before) => format!(
                    "shares the dispatch of its neighbour {}",
                    self.kernels.graph.nodes[before].label
                ),
            };
            let device = Device {
                step,
                program,
                launches,
            };
            self.plan.placement.push(Placement {
                node: *node,
                place: NodePlace::Device(device),
                reason,
            });
        }
        let name = self.plan.programs[program].name().to_owned();
        let set = self.set(&name, group.block);
        self.plan.steps.push(Step::Call(Call {
            program,
            set,
            bindings: wired.bindings(),
            nodes: group.members.iter().map(|&(node, _)| node).collect(),
            experts: match &group.members[..] {
                [(node, _)] => self.kernels.experts.get(node).copied(),
                _ => None,
            },
        }));
        Ok(Ok(()))
    }

    fn add_program(&mut self, wired: &GroupSlots<'_>, resident: bool) -> Result<usize, LowerError> {
        let taken = |name: &str| {
            let mut programs = self.plan.programs.iter();
            programs.any(|p| p.name() == name)
        };
        let name = distinct(&wired.base, taken);
        let (mut program, launches) = wired.stitch(&name, self.kernels)?;
        if let (true, Some(placed)) = (resident, resident::place(&program, self.kernels.machine)) {
            program = placed;
        }
        if let Err(refusals) = self.kernels.verifier.verify(&program) {
            return Err(LowerError::Refused {
                program: name,
                refusals: refusals.iter().map(ToString::to_string).collect(),
            });
        }
        let container = program.to_container();
        let container = container.map_err(|error| LowerError::Program {
            program: name,
            problem: error.to_string(),
        })?;
        let planned = PlannedProgram {
            container: Arc::new(container),
            launches,
            annex: Annex::new(program),
        };
        self.known
            .insert(wired.signature.clone(), self.plan.programs.len());
        self.plan.programs.push(planned);
        Ok(self.plan.programs.len() - 1)
    }

    /// A unique key for a call's buffers: `bo_key` in MLIR-AIR's Llama-3.2-1B example.
    fn set(&mut self, program: &str, block: Option<usize>) -> String {
        let base = match block {
            Some(block) => format!("{program}_L{block}"),
            None => program.to_owned(),
        };
        let set = distinct(&base, |name| self.sets.contains(name));
        self.sets.insert(set.clone());
        set
    }
}

/// The name, or the first free one of `name_2`, `name_3`, ….
fn distinct(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut found = name.to_owned();
    let mut number = 2_usize;
    while taken(&found) {
        found = format!("{name}_{number}");
        number += 1;
    }
    found
}
