use std::collections::HashMap;

use millrace_graph::{
    Activation, Add, Attention, Embed, Extension, Glu, Operation, RmsNorm, Rope, RopeId, RopeStyle,
    RotateHeads, Shapes, TokenContext, Value, Weight,
};
use millrace_quant::DType;
use proptest::prelude::*;

use super::*;

/// Builds graphs value by value.
#[derive(Default)]
struct G(Graph);

impl G {
    fn weight(&mut self, n: usize, k: usize) -> WeightId {
        let name = format!("w{}", self.0.weights.len());
        self.0.weights.push(Weight {
            n_experts: 1,
            source: millrace_graph::WeightSource::Whole,
            name,
            n,
            k,
            dtype: DType::F32,
        });
        WeightId(self.0.weights.len() - 1)
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], width: usize) -> ValueId {
        self.0.values.push(Value { width });
        let output = ValueId(self.0.values.len() - 1);
        self.0.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            output,
            layer: None,
            label: "node",
        });
        output
    }

    fn embed(&mut self, width: usize) -> ValueId {
        let table = self.weight(10, width);
        self.node(Op::Embed(Embed { table, scale: 1.0 }), &[], width)
    }

    fn linear(&mut self, x: ValueId, width: usize) -> ValueId {
        let weight = self.weight(width, 1);
        self.node(Op::Linear(Linear { weight, bias: None }), &[x], width)
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let group = self.0.values[x.0].width;
        let weight = self.weight(1, group);
        self.node(
            Op::RmsNorm(RmsNorm {
                weight,
                eps: 0.0,
                offset: 0.0,
                group,
            }),
            &[x],
            group,
        )
    }

    fn rope(&mut self, x: ValueId) -> ValueId {
        let width = self.0.values[x.0].width;
        self.node(
            Op::Rope(RotateHeads {
                rope: RopeId(0),
                head_dim: 4,
                first: 0,
            }),
            &[x],
            width,
        )
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let width = self.0.values[a.0].width;
        self.node(Op::Add(Add), &[a, b], width)
    }

    fn glu(&mut self, gate: ValueId, up: ValueId) -> ValueId {
        let width = self.0.values[gate.0].width;
        self.node(
            Op::Glu(Glu {
                activation: Activation::Silu,
                clamp: None,
            }),
            &[gate, up],
            width,
        )
    }

    fn attention(&mut self, layer: usize, q: ValueId, k: ValueId, v: ValueId) -> ValueId {
        let attention = Attention {
            layer,
            n_heads: 2,
            n_kv_heads: 1,
            head_dim: 4,
            scale: 1.0,
            window: None,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        };
        let width = self.0.values[q.0].width;
        self.node(Op::Attention(attention), &[q, k, v], width)
    }

    /// Ends the graph with a head on `x`.
    fn finish(mut self, x: ValueId) -> Graph {
        let logits = self.linear(x, 10);
        let inv_freq = vec![1.0];
        let rope = Rope {
            style: RopeStyle::HalfSplit,
            n_rot: 2,
            inv_freq,
            attention_factor: 1.0,
        };
        self.0.ropes.push(rope);
        self.0.logits = Some(logits);
        self.0
    }
}

/// Two blocks of the usual shape.
fn transformer() -> Graph {
    let mut g = G::default();
    let mut x = g.embed(8);
    g.0.hidden.push(x);
    for layer in 0..2 {
        let h = g.norm(x);
        let q = g.linear(h, 8);
        let q = g.rope(q);
        let k = g.linear(h, 4);
        let k = g.rope(k);
        let v = g.linear(h, 4);
        let a = g.attention(layer, q, k, v);
        let o = g.linear(a, 8);
        x = g.add(x, o);
        let h = g.norm(x);
        let gate = g.linear(h, 24);
        let up = g.linear(h, 24);
        let f = g.glu(gate, up);
        let d = g.linear(f, 8);
        x = g.add(x, d);
        g.0.hidden.push(x);
    }
    let h = g.norm(x);
    g.finish(h)
}

/// The graph's computation, as an expression for each value.
fn expressions(graph: &Graph) -> HashMap<usize, String> {
    let mut of: HashMap<usize, String> = HashMap::new();
    for node in &graph.nodes {
        let inputs: Vec<String> = node.inputs.iter().map(|v| of[&v.0].clone()).collect();
        let text = expression(&node.op, &inputs);
        of.insert(node.output.0, text);
    }
    of
}

fn expression(op: &Op, inputs: &[String]) -> String {
    let x = |i: usize| inputs[i].clone();
    match op {
        Op::Embed(Embed { table, .. }) => format!("embed{}", table.0),
        Op::RmsNorm(RmsNorm { weight, .. }) => format!("norm{}({})", weight.0, x(0)),
        Op::Linear(Linear { weight, .. }) => format!("lin{}({})", weight.0, x(0)),
        Op::Rope(_) => format!("rope({})", x(0)),
        Op::Attention(a) => format!("attn{}({},{},{})", a.layer, x(0), x(1), x(2)),
        Op::Glu(_) => format!("glu({},{})", x(0), x(1)),
        Op::Add(_) => sum(x(0), x(1)),
        op => format!("{}({})", op.name(), inputs.join(",")),
    }
}

fn sum(a: String, b: String) -> String {
    if a <= b {
        format!("({a}+{b})")
    } else {
        format!("({b}+{a})")
    }
}

/// Runs the plan on expressions: the logits, and each captured hidden state.
fn run(graph: &Graph, plan: &CpuPlan) -> (String, HashMap<usize, String>) {
    let mut buffers = vec![String::from("?"); plan.buffer_widths.len()];
    let mut hidden = HashMap::new();
    for step in &plan.steps {
        let at = |register: &Register| buffers[register.buffer].clone();
        match &step.kind {
            StepKind::Op { node, inputs, out } => {
                let op = &graph.nodes[*node].op;
                let overwritten = inputs.iter().filter(|x| x.buffer == out.buffer).count();
                assert!(overwritten <= usize::from(!op.in_place().is_empty()));
                let inputs: Vec<String> = inputs.iter().map(at).collect();
                buffers[out.buffer] = expression(op, &inputs);
            }
            StepKind::Linear { x, parts } => {
                let x_text = at(x);
                assert!(parts.len() <= MAX_PARTS);
                for part in parts {
                    assert_ne!(x.buffer, part.out.buffer);
                    buffers[part.out.buffer] = format!("lin{}({})", part.weight.0, x_text);
                }
            }
            StepKind::Experts { x, choice, parts } => {
                let inputs = [at(x), at(choice)];
                for part in parts {
                    assert!(part.out.buffer != x.buffer && part.out.buffer != choice.buffer);
                    buffers[part.out.buffer] = expression(&graph.nodes[part.node].op, &inputs);
                }
            }
            StepKind::Copy { x, out } => buffers[out.buffer] = at(x),
        }
        for (index, register) in &step.hidden {
            hidden.insert(*index, buffers[register.buffer].clone());
        }
    }
    let head = plan.head.as_ref().unwrap();
    (
        format!("lin{}({})", head.weight.0, buffers[head.x.buffer]),
        hidden,
    )
}

fn assert_same(graph: &Graph) {
    let plan = CpuPlan::new(graph).unwrap();
    let of = expressions(graph);
    let (logits, hidden) = run(graph, &plan);
    assert_eq!(logits, of[&graph.logits.unwrap().0]);
    for (index, value) in graph.hidden.iter().enumerate() {
        assert_eq!(hidden[&index], of[&value.0], "hidden {index}");
    }
}

#[test]
fn a_transformer_computes_what_its_graph_says() {
    assert_same(&transformer());
}

#[test]
fn linears_of_one_input_share_a_step_and_buffers_are_reused() {
    let plan = CpuPlan::new(&transformer()).unwrap();
    let parts = |step: &ExecutionStep| match &step.kind {
        StepKind::Linear { parts, .. } => Some(parts.len()),
        _ => None,
    };
    let counts: Vec<usize> = plan.steps.iter().filter_map(parts).collect();
    assert_eq!(counts, [3, 1, 2, 1, 3, 1, 2, 1]);
    assert!(plan.buffer_widths.len() <= 6, "{:?}", plan.buffer_widths);
    assert!(
        !plan
            .steps
            .iter()
            .any(|step| matches!(step.kind, StepKind::Copy { .. }))
    );
}

#[test]
fn rows_may_be_dropped_after_the_last_attention_only() {
    let plan = CpuPlan::new(&transformer()).unwrap();
    let graph = transformer();
    let is_attention = |step: &ExecutionStep| match step.kind {
        StepKind::Op { node, .. } => matches!(graph.nodes[node].op, Op::Attention(_)),
        _ => false,
    };
    assert!(is_attention(&plan.steps[plan.gather_at - 1]));
    assert!(!plan.steps[plan.gather_at..].iter().any(is_attention));
    assert_eq!(
        plan.gather.len(),
        2,
        "the residual and the attention's output"
    );
}

#[test]
fn a_value_read_after_an_in_place_step_is_copied_first() {
    let mut g = G::default();
    let x = g.embed(8);
    let turned = g.rope(x);
    let both = g.add(turned, x);
    let twice = g.add(both, turned);
    let graph = g.finish(twice);
    assert_same(&graph);
}

/// A user-defined op that claims to share its input.
#[derive(Debug)]
struct Identity;

impl Operation for Identity {
    fn name(&self) -> &'static str {
        "sharing"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, _shapes: &Shapes<'_>) -> Result<(), String> {
        Ok(())
    }

    fn shares_input(&self) -> bool {
        true
    }

    fn row(&self, row: &TokenContext<'_, f32>, _state: &mut [f32], out: &mut [f32]) {
        out.copy_from_slice(row.inputs[0]);
    }

    fn row_f64(&self, row: &TokenContext<'_, f64>, _state: &mut [f64], out: &mut [f64]) {
        out.copy_from_slice(row.inputs[0]);
    }
}

/// Only ops that one step can compute together are combined: every other node keeps a separate step.
#[test]
fn ops_without_a_step_for_several_go_alone() {
    let mut g = G::default();
    let x = g.embed(8);
    let [a, b] = [(); 2].map(|()| g.node(Extension::new(Identity).into(), &[x], 8));
    let sum = g.add(a, b);
    assert_same(&g.finish(sum));
}

#[test]
fn broken_graphs_are_refused() {
    let mut g = G::default();
    let x = g.embed(8);
    let graph = g.finish(x);
    // An encoder ends with its hidden states.
    let mut headless = graph.clone();
    headless.logits = None;
    assert_eq!(CpuPlan::new(&headless).map(|plan| plan.head), Ok(None));
    let mut embedded = graph;
    embedded.nodes.pop();
    assert_eq!(CpuPlan::new(&embedded), Err(PlanError::NoHead));
}

proptest! {
    /// Random graphs in which any earlier value may be read by any later node.
    #[test]
    fn any_graph_computes_what_it_says(
        ops in prop::collection::vec((0u8..6, any::<u16>(), any::<u16>(), any::<u16>()), 1..30),
    ) {
        let mut g = G::default();
        let mut values = vec![g.embed(8)];
        for (op, a, b, c) in ops {
            let pick = |i: u16| values[i as usize % values.len()];
            let (a, b, c) = (pick(a), pick(b), pick(c));
            values.push(match op {
                0 => g.norm(a),
                1 => g.linear(a, 8),
                2 => g.rope(a),
                3 => g.add(a, b),
                4 => g.glu(a, b),
                5 => g.attention(0, a, b, c),
                _ => g.linear(a, 8),
            });
        }
        let last = values[values.len() - 1];
        g.0.hidden.push(values[values.len() / 2]);
        let graph = g.finish(last);
        assert_same(&graph);
    }
}
