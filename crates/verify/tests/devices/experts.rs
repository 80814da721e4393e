//! Products of experts on every device: that they are there, that a row's bits are its own, and that memory is bounded.

use crate::goldens::{cpu, load, open, tokens};
use half::bf16;
use millrace_graph::{Graph, Op};
use millrace_npu::{Move, ProgramCache, Role};
use millrace_plan::{
    Binding, Call, NodePlace, OwnSlot, PassKind, Plan, PlannedProgram, Planner, Scales, Settings,
    Target, WeightLayout, WeightSource,
};
use millrace_rk3588::target::Rk3588Target;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_tcp::target::TcpTarget;
use millrace_testkit::golden::Golden;
use millrace_xdna2::target::Xdna2Target;
use std::sync::Arc;

/// Targets and modes whose products of experts are tested.
const DEVICES: [(&dyn Target, Option<&str>); 4] = [
    (&Rk3588Target, None),
    (&TcpTarget, None),
    (&Xdna2Target, None),
    (&Xdna2Target, Some("int8")),
];

fn planner(target: &dyn Target, mode: Option<&str>) -> Arc<dyn Planner> {
    let settings = Settings {
        mode: mode.map(str::to_owned),
        ..Settings::default()
    };
    target.planner(&settings).unwrap()
}

/// Mixtures whose rows all devices take, then some with rows of 24 and 40 numbers, which are not whole packets of `tcp`.
fn mixtures() -> impl Iterator<Item = (&'static str, Arc<LoadedModel>)> {
    let names = ["gpt-oss", "phimoe", "deepseek-v3", "mixtral", "qwen3moe"];
    names
        .map(|name| (name, open(Golden::named(name).hf())))
        .into_iter()
}

/// Experts' products on the device, and all.
fn placed(graph: &Graph, plan: &Plan) -> (usize, usize) {
    let of = plan.placement.iter();
    let of = of.filter(|p| matches!(graph.nodes[p.node].op, Op::ExpertLinear(_)));
    let on_device = of.clone().filter(|p| p.place != NodePlace::Host);
    (on_device.count(), of.count())
}

/// The floor: the device computes all products of experts of these mixtures, for prompts and for tokens. Every other op
/// of a mixture on the host has a reason.
#[test]
fn every_product_of_experts_is_the_devices() {
    let mut on_tiles = 0;
    for (name, model) in mixtures() {
        let graph = &model.model().graph;
        for (target, mode) in DEVICES {
            let planner = planner(target, mode);
            for kind in [PassKind::prefill(64), PassKind::decode()] {
                let plan = planner.lower(graph, &kind).unwrap();
                let (on_device, all) = placed(graph, &plan);
                let what = format!("{name} on {} {mode:?}", target.name());
                if target.name() == "tcp" && ["mixtral", "qwen3moe"].contains(&name) {
                    assert_eq!(on_device, 0, "{what}");
                    continue;
                }
                assert!(all >= 2, "{what}: {all} products of experts");
                let reasons = plan.placement.iter().map(|p| &p.reason);
                // Tile programs of one token take no row shorter than the vector unit, and these small models have such rows.
                let floor = if (target.name(), mode) == ("xdna2", None) {
                    on_tiles += on_device;
                    0
                } else {
                    all
                };
                assert!(
                    on_device >= floor,
                    "{what}: {:#?}",
                    reasons.collect::<Vec<_>>()
                );
                for placement in &plan.placement {
                    let why = match graph.nodes[placement.node].op {
                        Op::Route(_) => "chooses a token's experts",
                        Op::ExpertLinear(_) if placement.place == NodePlace::Host => {
                            "fits no tiling"
                        }
                        Op::ExpertLinear(_) => "a dispatch for each chosen expert",
                        Op::CombineExperts(_) => "sums the experts' results",
                        _ => continue,
                    };
                    assert!(
                        placement.reason.contains(why),
                        "{what}: {}",
                        placement.reason
                    );
                }
                let experts = plan.calls().filter(|call| call.experts.is_some());
                assert_eq!(experts.count(), on_device, "{what}: a call each");
            }
        }
    }
    assert!(on_tiles >= 20, "{on_tiles} products on tiles");
}

/// A program of experts on a device, with one matrix.
struct ExpertProgram<'a> {
    planner: &'a dyn Planner,
    cache: ProgramCache,
    planned: &'a PlannedProgram,
    call: &'a Call,
    matrix: WeightSource<'a>,
    rows: usize,
    cpu: millrace_kernels::Cpu,
}

impl<'a> ExpertProgram<'a> {
    fn own<I>(&self, slot: usize, id: I) -> OwnSlot<'a, I> {
        OwnSlot {
            program: self.planned,
            slot,
            id,
        }
    }

    fn element(&self, slot: usize, values: &[f32], bytes: &mut [u8]) {
        let element = self.planned.slots()[slot].element;
        let size = element.size_bytes() as usize;
        for (x, bytes) in values.iter().zip(bytes.chunks_exact_mut(size)) {
            match size {
                2 => bytes.copy_from_slice(&bf16::from_f32(*x).to_le_bytes()),
                _ => bytes.copy_from_slice(&x.to_le_bytes()),
            }
        }
    }

    /// The matrix's slot, or the host's numbers of it.
    fn weight(&self, slot: usize, layout: &WeightLayout, bytes: &mut [u8]) -> Scales {
        if let WeightLayout::Own { id, .. } = layout {
            let filled = (self.planner).fill(&self.cpu, &self.own(slot, *id), &self.matrix, bytes);
            return filled.unwrap();
        }
        let (n, k) = (self.matrix.n, self.matrix.k);
        let mut rows = vec![0.0; n * k];
        let (dtype, from) = (self.matrix.dtype, self.matrix.bytes);
        millrace_quant::decode_rows(dtype, from, n, k, 0..n, &mut rows).unwrap();
        if let WeightLayout::Transposed { .. } = layout {
            rows = (0..n * k).map(|i| rows[i % n * k + i / n]).collect();
        }
        self.element(slot, &rows, bytes);
        Scales::default()
    }

    /// The results of those rows.
    fn run(&self, x: &[f32]) -> Vec<f32> {
        let slots = self.planned.slots();
        let (n, k) = (self.matrix.n, self.matrix.k);
        let mut scales = vec![Scales::default(); slots.len()];
        let mut bytes: Vec<Vec<u8>> = slots
            .iter()
            .map(|slot| vec![0; slot.size_bytes().unwrap() as usize])
            .collect();
        for (slot, binding) in self.call.bindings.iter().enumerate() {
            let out = &mut bytes[slot];
            match (slots[slot].role, binding) {
                (_, Binding::Weight { layout, .. }) => {
                    scales[slot] = self.weight(slot, layout, out)
                }
                (Role::Input, Binding::Packed { id, .. }) => {
                    let packed = self
                        .planner
                        .pack(&self.cpu, &self.own(slot, *id), x, k, out);
                    scales[slot] = packed.unwrap();
                }
                (Role::Input, Binding::Value(_)) => self.element(slot, x, out),
                _ => {}
            }
        }
        let moves: Vec<Move<'_>> = (slots.iter().zip(&bytes))
            .map(|(slot, bytes)| match slot.role {
                Role::Output => Move::Read(0..bytes.len() as u64),
                Role::Static | Role::Input => Move::Write(bytes),
                Role::Intermediate => Move::None,
            })
            .collect();
        let mut results = vec![0.0; self.rows * n];
        let ran =
            self.cache
                .run_moving(&self.planned.container, "expert", &moves, |slot, bytes| {
                    if let Binding::Packed { id, .. } = &self.call.bindings[slot] {
                        let at = self.own(slot, *id);
                        let read =
                            self.planner
                                .unpack(&self.cpu, &at, bytes, &scales, n, &mut results);
                        return read.unwrap();
                    }
                    let element = slots[slot].element;
                    let numbers = bytes.chunks_exact(element.size_bytes() as usize);
                    let numbers = numbers.map(|x| element.number(x).unwrap() as f32);
                    results.iter_mut().zip(numbers).for_each(|(to, x)| *to = x);
                });
        ran.unwrap();
        results
    }
}

fn row(k: usize, salt: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 37 + salt * 101 + 11) % 255) as f32 / 127.0 - 1.0;
    (0..k)
        .map(|i| bf16::from_f32(number(i) * (1 + salt % 7) as f32).to_f32())
        .collect()
}

/// A row's bits do not depend on its place in a dispatch, nor on the rows in other places.
#[test]
fn a_row_has_its_bits_wherever_it_stands_and_whoever_stands_beside_it() {
    let model = open(Golden::named("deepseek-v3").hf());
    let graph = &model.model().graph;
    for (target, mode) in DEVICES {
        let planner = planner(target, mode);
        let plan = planner.lower(graph, &PassKind::prefill(64)).unwrap();
        let mut seen = Vec::new();
        for call in plan.calls() {
            let Some(experts) = call.experts.filter(|_| !seen.contains(&call.program)) else {
                continue;
            };
            seen.push(call.program);
            let (_, linear) = experts.op(graph).unwrap();
            let spec = &graph.weights[linear.weight.0];
            let program = ExpertProgram {
                planner: &*planner,
                cache: ProgramCache::new(planner.open(cpu()).unwrap()),
                planned: &plan.programs[call.program],
                call,
                matrix: WeightSource {
                    dtype: spec.dtype,
                    bytes: model.matrix_bytes(linear.weight, 1),
                    n: spec.n,
                    k: spec.k,
                    half_split: None,
                },
                rows: experts.rows as usize,
                cpu: cpu(),
            };
            let (m, n, k) = (program.rows, spec.n, spec.k);
            let mine = row(k, 1000);
            let mut alone = vec![0.0; m * k];
            alone[..k].copy_from_slice(&mine);
            let expected = program.run(&alone)[..n].to_vec();
            assert!(expected.iter().any(|x| *x != 0.0));
            for place in [1, m / 2, m - 1] {
                let mut rows: Vec<f32> = (0..m).flat_map(|i| row(k, i * place)).collect();
                rows[place * k..][..k].copy_from_slice(&mine);
                let found = program.run(&rows);
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
                assert!(
                    found[place * n..][..n].iter().zip(&expected).all(same),
                    "{} {mode:?}: {} at row {place} of {m}",
                    target.name(),
                    program.planned.name()
                );
            }
        }
        assert!(!seen.is_empty(), "{}", target.name());
    }
}

/// Later tokens of a prompt share experts with a token, and change no bit of its logits.
#[test]
fn later_tokens_change_no_bit_of_a_mixtures_logits() {
    let model = open(Golden::named("deepseek-v3").hf());
    let vocab_size = model.model().config.vocab_size;
    for (target, mode) in DEVICES {
        let npu = Arc::new(load(&model, target, mode).unwrap());
        let mut session = NpuSession::new(&npu).unwrap();
        let mut first = |tail: &[u32]| {
            session.truncate(0).unwrap();
            let tokens = [&tokens(9, 3, vocab_size)[..], tail].concat();
            session.prefill_all(&tokens).unwrap()[..9 * vocab_size].to_vec()
        };
        let short = first(&[]);
        for salt in [4, 5] {
            let long = first(&tokens(40, salt, vocab_size));
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            assert!(
                short.iter().zip(&long).all(same),
                "{} {mode:?}",
                target.name()
            );
        }
    }
}

/// Matrices are loaded when they are first chosen and evicted when others need their room; the logits are the same.
#[test]
fn experts_on_the_device_are_bounded() {
    let model = open(Golden::named("qwen3moe").hf());
    let vocab_size = model.model().config.vocab_size;
    let prompt = tokens(24, 3, vocab_size);
    let run = |expert_bytes: Option<u64>| {
        let options = NpuOptions {
            n_ctx: Some(128),
            n_threads: Some(2),
            prefill_tokens: Some(64),
            expert_bytes,
            ..NpuOptions::default()
        };
        let planner = planner(&Rk3588Target, None);
        let npu = Arc::new(NpuModel::load(model.clone(), planner, options).unwrap());
        let loaded = npu.memory().weight_bytes;
        let mut session = NpuSession::new(&npu).unwrap();
        let mut logits = session.prefill(&prompt).unwrap().to_vec();
        for token in 0..6 {
            logits.extend_from_slice(session.decode(token).unwrap());
        }
        let n = session.counters().decode.n_dispatches;
        (logits, npu.memory().weight_bytes - loaded, n)
    };
    let (expected, all, n) = run(None);
    assert!(all > 0);
    let room = all / 3;
    let (found, held, n_of_few) = run(Some(room));
    assert_eq!(found, expected);
    assert!(held <= room, "{held} of {room}");
    assert_eq!(n, n_of_few);
    let graph = &model.model().graph;
    let planner = planner(&Rk3588Target, None);
    let plan = planner.lower(graph, &PassKind::decode()).unwrap();
    // A token's experts are as many as it uses, so the mean is exact.
    assert_eq!(n, 6 * plan.dispatches(graph));
}
