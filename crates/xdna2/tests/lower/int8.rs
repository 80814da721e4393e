//! Mode int8: products of 8-bit integers, one program each, from rows of floats to rows of floats.

use crate::lower::{demo, on_host};
use millrace_graph::{Embed, Graph, Linear, Node, Op, Value, ValueId, Weight, WeightId};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::{Direction, Usage};
use millrace_plan::{
    Binding, HeadRows, OperandArrangement, OwnSlot, PassKind, PlannedProgram, Planner, Settings,
    Target, ValueArrangement, WeightArrangement, WeightLayout, WeightSource,
};
use millrace_quant::DType;
use millrace_xdna2::lower::{Plan, program_of};
use millrace_xdna2::target::Xdna2Target;
use millrace_xdna2_machine::{Machine, verify};
use std::sync::Arc;

fn planner() -> Arc<dyn Planner> {
    let settings = Settings {
        mode: Some("int8".to_owned()),
        ..Settings::default()
    };
    Xdna2Target.planner(&settings).unwrap()
}

fn layouts(plan: &Plan) -> Vec<(WeightId, WeightLayout)> {
    let bindings = plan.calls().flat_map(|call| call.bindings.clone());
    let weights = bindings.filter_map(|binding| match binding {
        Binding::Weight { weight, layout } => Some((weight, layout)),
        _ => None,
    });
    weights.collect()
}

#[test]
fn every_product_of_a_model_is_the_arrays_and_prompt_and_token_share_weights() {
    let (graph, planner) = (demo(), planner());
    assert_eq!(planner.mode(), "int8");
    let plans = [PassKind::prefill(16), PassKind::decode()];
    let plans = plans.map(|kind| planner.lower(&graph, &kind).unwrap());
    for plan in &plans {
        let products = graph.nodes.iter();
        let products = products.filter(|node| matches!(node.op, Op::Linear(_)));
        assert_eq!(plan.calls().count(), products.count());
        let host = on_host(&graph, plan);
        assert!(
            host.iter()
                .all(|(_, why)| why.contains("products of matrices"))
        );
        for planned in &plan.programs {
            let program = program_of(planned).unwrap();
            assert_eq!(verify(program, &Machine::npu2()).err(), None);
            let cost = planner.pricer().unwrap().program(planned).unwrap();
            assert!(cost.run_ns > 0.0 && cost.launches[0].flops > 0);
        }
    }
    assert_eq!(layouts(&plans[0]), layouts(&plans[1]));
    let sizes = |plan: &Plan| -> Vec<Option<u64>> {
        let calls = plan.calls();
        let weights = calls.map(|call| plan.programs[call.program].slots()[1].size_bytes());
        weights.collect()
    };
    assert_eq!(sizes(&plans[0]), sizes(&plans[1]));
}

/// Numbers with an outlier in every row.
fn numbers(n: usize, k: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = |at: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
        if at % k == k / 3 { 9.0 * x } else { x }
    };
    (0..n * k).map(&mut next).collect()
}

fn linear(n: usize, k: usize) -> Graph {
    let weight = |name: &str, n| Weight {
        n_experts: 1,
        source: millrace_graph::WeightSource::Whole,
        name: name.to_owned(),
        n,
        k,
        dtype: DType::F32,
    };
    let node = |op, inputs, output, label| Node {
        op,
        inputs,
        output: ValueId(output),
        layer: None,
        label,
    };
    let table = Op::Embed(Embed {
        table: WeightId(0),
        scale: 1.0,
    });
    let product = Op::Linear(Linear {
        weight: WeightId(1),
        bias: None,
    });
    Graph {
        nodes: vec![
            node(table, Vec::new(), 0, "input"),
            node(product, vec![ValueId(0)], 1, "product"),
        ],
        values: vec![Value { width: k }, Value { width: n }],
        weights: vec![weight("input", 1), weight("weight", n)],
        logits: Some(ValueId(1)),
        ..Graph::default()
    }
}

/// `[m, k] · [n, k]ᵀ` as the plan computes it on the virtual array: results, and both operands as multiplied.
fn product([m, n, k]: [usize; 3], x: &[f32], w: &[f32]) -> [Vec<f32>; 3] {
    let planner = planner();
    let kind = match m {
        1 => PassKind::decode(),
        m => PassKind::prefill(m as u64).with_head(HeadRows::All),
    };
    let plan = planner.lower(&linear(n, k), &kind).unwrap();
    let call = plan.calls().next().unwrap();
    let program = &plan.programs[call.program];
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let device = planner.open(Cpu::new(CpuOptions::default()).unwrap());
    let device = device.unwrap();
    let value = |slot: usize| match &call.bindings[slot] {
        Binding::Packed { id, .. } => at(program, slot, *id),
        other => panic!("{other:?}"),
    };
    let weight = |slot: usize| match &call.bindings[slot] {
        Binding::Weight {
            layout: WeightLayout::Own { id, .. },
            ..
        } => at(program, slot, *id),
        other => panic!("{other:?}"),
    };
    let operand = |slot: usize| match slot {
        0 => at(program, slot, OperandArrangement::Value(value(slot).id)),
        _ => at(program, slot, OperandArrangement::Weight(weight(slot).id)),
    };
    let usages = [
        Usage::HostToDevice,
        Usage::HostToDevice,
        Usage::DeviceToHost,
    ];
    let sizes = program
        .slots()
        .iter()
        .map(|slot| slot.size_bytes().unwrap());
    let buffers: Vec<_> = sizes
        .zip(usages)
        .map(|(bytes, usage)| device.alloc(bytes, usage).unwrap())
        .collect();
    let bytes: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
    let source = WeightSource {
        dtype: DType::F32,
        bytes: &bytes,
        n,
        k,
        half_split: None,
    };
    let mut scales = vec![Default::default(); 3];
    let mut operands = [vec![0.0; m * k], vec![0.0; n * k]];
    for slot in [0, 1] {
        buffers[slot]
            .write_with(|out| {
                scales[slot] = match slot {
                    0 => planner.pack(&cpu, &value(0), x, k, out).unwrap(),
                    _ => planner.fill(&cpu, &weight(1), &source, out).unwrap(),
                };
                let into = &mut operands[slot];
                planner
                    .operand(&cpu, &operand(slot), out, &scales[slot], into)
                    .unwrap();
                let short = planner.operand(&cpu, &operand(slot), &out[..8], &scales[slot], into);
                assert!(short.is_err());
            })
            .unwrap();
        buffers[slot].sync(Direction::ToDevice).unwrap();
    }
    let loaded = device.load(&program.container).unwrap();
    let bound = device.bind(&loaded, &buffers).unwrap();
    let fence = device.submit(&bound).unwrap();
    device.wait(fence).unwrap();
    buffers[2].sync(Direction::FromDevice).unwrap();
    let mut out = vec![0.0; m * n];
    let read = buffers[2].read_with(|bytes| {
        planner
            .unpack(&cpu, &value(2), bytes, &scales, n, &mut out)
            .unwrap();
        let wrong = planner.unpack(&cpu, &value(2), bytes, &scales[..1], n, &mut out.clone());
        assert!(wrong.is_err());
    });
    read.unwrap();
    let [x, w] = operands;
    [out, x, w]
}

fn at<I>(program: &PlannedProgram, slot: usize, id: I) -> OwnSlot<'_, I> {
    OwnSlot { program, slot, id }
}

/// Sums of integers are exact: results are those of the operands in f64, but for the roundings of three scales; and the operands are
/// those of the rows to half a step.
#[test]
fn products_are_exact_for_what_was_quantised() {
    for dims in [
        [1, 20, 96],
        [1, 64, 64],
        [1, 2050, 40],
        [3, 7, 33],
        [13, 100, 72],
        [16, 64, 64],
        [40, 130, 640],
    ] {
        let [m, n, k] = dims;
        let (x, w) = (numbers(m, k, 1), numbers(n, k, 2));
        let [found, x_used, w_used] = product(dims, &x, &w);
        let dot = |x: &[f32], w: &[f32]| -> f64 {
            let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
            terms.sum()
        };
        let rows = |x: &[f32]| -> Vec<Vec<f32>> { x.chunks(k).map(<[f32]>::to_vec).collect() };
        let (mut noise, mut signal) = (0.0, 0.0);
        for (row, (x, x_used)) in rows(&x).iter().zip(rows(&x_used)).enumerate() {
            for (col, (w, w_used)) in rows(&w).iter().zip(rows(&w_used)).enumerate() {
                let found = f64::from(found[row * n + col]);
                let size: f64 = x_used
                    .iter()
                    .zip(&w_used)
                    .map(|(x, w)| f64::from((x * w).abs()))
                    .sum();
                let error = (found - dot(&x_used, &w_used)).abs();
                assert!(
                    error <= 1e-6 * size,
                    "{dims:?} {row} {col}: {error} of {size}"
                );
                let exact = dot(x, w);
                noise += (found - exact).powi(2);
                signal += exact.powi(2);
            }
        }
        // 8 bits with a scale a row: 40 dB and more, less on rows of few numbers.
        assert!(noise / signal < 1e-3, "{dims:?}: {noise} of {signal}");
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let planner = planner();
    let plan = planner
        .lower(&linear(20, 96), &PassKind::prefill(8))
        .unwrap();
    let program = &plan.programs[0];
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let mut out = vec![0; 64 * 128];
    let rows = planner.pack(
        &cpu,
        &at(program, 0, ValueArrangement(1)),
        &[0.0; 96],
        96,
        &mut out,
    );
    assert!(rows.unwrap_err().contains("expected 768"));
    let bytes = vec![0; 20 * 95 * 4];
    let weight = WeightSource {
        dtype: DType::F32,
        bytes: &bytes,
        n: 20,
        k: 95,
        half_split: None,
    };
    let filled = planner.fill(
        &cpu,
        &at(program, 1, WeightArrangement(2)),
        &weight,
        &mut out,
    );
    assert!(filled.unwrap_err().contains("expected 96"));
}
