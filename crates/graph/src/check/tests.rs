use crate::*;
use millrace_quant::DType;

/// Embed, norm, product: `[4] -> [4] -> [6]`.
pub(crate) fn graph() -> Graph {
    let weight = |name: &str, n, k| Weight {
        name: name.to_owned(),
        n_experts: 1,
        source: WeightSource::Whole,
        n,
        k,
        dtype: DType::F32,
    };
    let node = |op: Op, inputs: &[usize], output, label| Node {
        op,
        inputs: inputs.iter().map(|v| ValueId(*v)).collect(),
        output: ValueId(output),
        layer: None,
        label,
    };
    let embed = Embed {
        table: WeightId(0),
        scale: 1.0,
    };
    let norm = RmsNorm {
        weight: WeightId(1),
        eps: 1e-5,
        offset: 0.0,
        group: 4,
    };
    let head = Linear {
        weight: WeightId(0),
        bias: None,
    };
    Graph {
        nodes: vec![
            node(embed.into(), &[], 0, "embed"),
            node(norm.into(), &[0], 1, "norm"),
            node(head.into(), &[1], 2, "head"),
        ],
        values: [4, 4, 6].map(|width| Value { width }).to_vec(),
        weights: vec![weight("table", 6, 4), weight("norm", 1, 4)],
        logits: Some(ValueId(2)),
        ..Graph::default()
    }
}

fn problem(change: impl FnOnce(&mut Graph)) -> String {
    let mut graph = graph();
    change(&mut graph);
    check(&graph).expect_err("makes no sense").to_string()
}

#[test]
fn what_makes_no_sense_is_named() {
    assert_eq!(check(&graph()), Ok(()));
    let read = problem(|g| g.nodes[1].inputs = vec![ValueId(2)]);
    assert_eq!(read, "node 1 (norm): reads value 2, which nothing wrote");
    let many = problem(|g| g.nodes[1].inputs.push(ValueId(0)));
    assert_eq!(many, "node 1 (norm): 2 inputs, it takes 1");
    let twice = problem(|g| g.nodes[2].output = ValueId(1));
    assert_eq!(twice, "node 2 (head): value 1 is written twice");
    let width = problem(|g| g.values[2].width = 5);
    assert_eq!(
        width,
        "node 2 (head): its operands' sizes do not fit together"
    );
    let experts = problem(|g| g.weights[0].n_experts = 2);
    assert_eq!(experts, width);
    let gone = problem(|g| g.weights.truncate(1));
    assert_eq!(gone, "node 1 (norm): weight 1 is not there");
    let empty = problem(|g| g.values[1].width = 0);
    assert_eq!(
        empty,
        format!("node 1 (norm): a value's width is 1 to {WIDTH_MAX}")
    );
    let logits = problem(|g| g.logits = Some(ValueId(9)));
    assert_eq!(
        logits,
        "the graph names no logits that one of its nodes writes"
    );
}

#[test]
fn a_layer_has_one_cache() {
    let mut graph = graph();
    let attention = Attention {
        layer: 0,
        n_heads: 2,
        n_kv_heads: 2,
        head_dim: 2,
        scale: 1.0,
        window: None,
        chunked: false,
        softcap: None,
        sinks: None,
        slopes: None,
    };
    for output in [3, 4] {
        graph.values.push(Value { width: 4 });
        graph.nodes.push(Node {
            op: attention.clone().into(),
            inputs: vec![ValueId(0); 3],
            output: ValueId(output),
            layer: Some(0),
            label: "attn",
        });
    }
    let found = check(&graph).expect_err("two of a layer").to_string();
    assert_eq!(found, "node 4 (attn): layer 0 has its cache already");
    // A number beyond the existing layers has no memory.
    for (layer, is_next) in [(2, false), (1, true)] {
        graph.nodes[4].op = Attention {
            layer,
            ..attention.clone()
        }
        .into();
        let found = check(&graph).err().map(|error| error.to_string());
        let said = format!("node 4 (attn): cache {layer} where 1 is next");
        assert_eq!(found, (!is_next).then_some(said));
    }
}

#[test]
fn a_shared_cache_is_one_that_an_earlier_op_fills() {
    let attention = Attention {
        layer: 0,
        n_heads: 2,
        n_kv_heads: 2,
        head_dim: 2,
        scale: 1.0,
        window: Some(5),
        chunked: false,
        softcap: None,
        sinks: None,
        slopes: None,
    };
    let with = |ops: [(Op, [usize; 3]); 2]| {
        let mut graph = graph();
        for (output, (op, inputs)) in (3..).zip(ops) {
            graph.values.push(Value { width: 4 });
            graph.nodes.push(Node {
                op,
                inputs: inputs.map(ValueId).to_vec(),
                output: ValueId(output),
                layer: Some(0),
                label: "attn",
            });
        }
        check(&graph).map_err(|error| error.to_string())
    };
    let shared = |attention: &Attention| -> Op {
        let attention = attention.clone();
        SharedAttention { attention }.into()
    };
    let own = || -> Op { attention.clone().into() };
    assert_eq!(
        with([(own(), [0; 3]), (shared(&attention), [3, 0, 0])]),
        Ok(())
    );
    let missing = "no earlier op fills such a cache of layer 0";
    // Before it, with other keys, with another window, and of another layer.
    let early = with([(shared(&attention), [0; 3]), (own(), [0; 3])]);
    assert_eq!(early, Err(format!("node 3 (attn): {missing}")));
    let keys = with([(own(), [0; 3]), (shared(&attention), [0, 3, 0])]);
    assert_eq!(keys, Err(format!("node 4 (attn): {missing}")));
    let window = Attention {
        window: None,
        ..attention.clone()
    };
    let window = with([(own(), [0; 3]), (shared(&window), [0; 3])]);
    assert_eq!(window, Err(format!("node 4 (attn): {missing}")));
    let layer = Attention {
        layer: 1,
        ..attention.clone()
    };
    assert!(with([(own(), [0; 3]), (shared(&layer), [0; 3])]).is_err());
}

#[test]
fn costs_and_last_readers_follow_the_graph() {
    let graph = graph();
    let depth = Depth {
        n_before: 9,
        kv_elem_bytes: 2.0,
    };
    let head = graph.nodes[2].op.cost(&graph, &depth);
    assert_eq!((head.flops, head.weight_bytes), (48.0, 96.0));
    assert_eq!(last_readers(&graph), [Some(1), Some(2), None]);
    let attention = Attention {
        layer: 0,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 8,
        scale: 1.0,
        window: Some(4),
        chunked: false,
        softcap: None,
        sinks: None,
        slopes: None,
    };
    let cost = attention.cost(&graph, &depth);
    assert_eq!(cost.memory_bytes, 4.0 * 2.0 * 16.0 * 2.0);
}
