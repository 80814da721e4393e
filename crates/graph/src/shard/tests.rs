use super::cut::{Division, heads};
use super::*;
use crate::*;
use millrace_quant::DType;

fn attention(n_heads: usize, n_kv_heads: usize) -> Attention {
    Attention {
        layer: 0,
        n_heads,
        n_kv_heads,
        head_dim: 4,
        scale: 0.5,
        window: None,
        chunked: false,
        softcap: None,
        sinks: None,
        slopes: None,
    }
}

/// Embed, queries, keys and values, attention, its product, the sum, a head: 8 query heads of 4 elements.
fn graph(n_kv_heads: usize) -> Graph {
    let (d, kv) = (32, n_kv_heads * 4);
    let shapes = [(96, d), (d, d), (kv, d), (kv, d), (d, d)];
    let weight = |(n, k)| Weight {
        name: format!("{n} x {k}"),
        n_experts: 1,
        source: WeightSource::Whole,
        n,
        k,
        dtype: DType::F32,
    };
    let linear = |weight| {
        Op::from(Linear {
            weight: WeightId(weight),
            bias: None,
        })
    };
    let embed = Embed {
        table: WeightId(0),
        scale: 1.0,
    };
    let rows: [(Op, &[usize], usize); 7] = [
        (embed.into(), &[], d),
        (linear(1), &[0], d),
        (linear(2), &[0], kv),
        (linear(3), &[0], kv),
        (attention(8, n_kv_heads).into(), &[1, 2, 3], d),
        (linear(4), &[4], d),
        (Add.into(), &[0, 5], d),
    ];
    let mut graph = Graph {
        weights: shapes.map(weight).to_vec(),
        hidden: vec![ValueId(0), ValueId(6)],
        logits: Some(ValueId(7)),
        ..Graph::default()
    };
    for (op, inputs, width) in rows.into_iter().chain([(linear(0), &[6][..], 96)]) {
        let output = ValueId(graph.values.len());
        graph.values.push(Value { width });
        graph.nodes.push(Node {
            op,
            inputs: inputs.iter().map(|v| ValueId(*v)).collect(),
            output,
            layer: None,
            label: "node",
        });
    }
    graph
}

fn of_ranks(graph: &Graph, n_ranks: usize) -> Vec<RankGraph> {
    let place = |rank| RankPlace { rank, n_ranks };
    (0..n_ranks).map(|rank| shard(graph, place(rank))).collect()
}

#[test]
fn every_rank_has_a_graph_that_makes_sense_and_meets_the_others() {
    for n_kv_heads in [1, 2, 4, 8] {
        let graph = graph(n_kv_heads);
        check(&graph).unwrap();
        for n_ranks in 1..=4 {
            let ranks = of_ranks(&graph, n_ranks);
            for own in &ranks {
                assert_eq!(check(&own.graph), Ok(()), "{n_kv_heads} of {n_ranks}");
                assert_eq!(own.graph.width(own.graph.logits.unwrap()), 96);
                assert_eq!(own.graph.hidden.len(), 2);
            }
            let names = |own: &RankGraph| {
                let nodes = own.graph.nodes.iter();
                nodes.map(|node| node.op.name()).collect::<Vec<_>>()
            };
            assert!(ranks.iter().all(|own| names(own) == names(&ranks[0])));
        }
    }
}

#[test]
fn rows_of_a_matrix_go_to_one_rank_each() {
    let graph = graph(4);
    for n_ranks in [2, 3] {
        // The head, which reads the table whose rows tokens look up whole.
        let ranks = of_ranks(&graph, n_ranks);
        let rows = ranks.iter().map(|own| {
            let Op::Linear(head) = &own.graph.nodes[own.graph.nodes.len() - 2].op else {
                panic!("the head stands before the last gather")
            };
            let part = own.parts[head.weight.0].unwrap();
            assert_eq!(part.of, WeightId(0));
            part.row..part.row + own.graph.weights[head.weight.0].n
        });
        let mut end = 0;
        for rows in rows {
            assert_eq!(rows.start, end);
            assert!(!rows.is_empty());
            end = rows.end;
        }
        assert_eq!(end, 96);
    }
}

#[test]
fn heads_are_divided_by_keys_and_where_there_are_few_by_queries() {
    let cases: [(usize, usize, &[usize], &[usize]); 6] = [
        (2, 4, &[4, 4], &[2, 2]),
        (3, 4, &[2, 2, 4], &[1, 1, 2]),
        (4, 4, &[2, 2, 2, 2], &[1, 1, 1, 1]),
        (4, 2, &[2, 2, 2, 2], &[1, 1, 1, 1]),
        (3, 2, &[2, 2, 4], &[1, 1, 1]),
        (3, 1, &[2, 3, 3], &[1, 1, 1]),
    ];
    for (n_ranks, n_kv_heads, queries, keys) in cases {
        let cuts = heads(&attention(8, n_kv_heads), n_ranks).unwrap();
        let found = cuts.map(|cut| {
            let parts = cut.parts.iter().map(|part| part.len() / 4);
            parts.collect::<Vec<_>>()
        });
        assert_eq!(found, [queries, keys], "{n_ranks} ranks");
    }
    assert_eq!(heads(&attention(2, 2), 8), None);
    // Slopes follow from a head's index among all heads.
    let sloped = Attention {
        slopes: Some(distance_slopes(8.0, 8)),
        ..attention(8, 4)
    };
    assert_eq!(heads(&sloped, 2), None);
}

#[test]
fn what_ranks_share_is_given_by_the_first() {
    let cut = Division {
        n_pieces: 1,
        parts: vec![0..4, 0..4, 4..8],
    };
    let lens = |rank| {
        let gather = cut.gather(rank);
        (gather.lens, gather.first)
    };
    assert_eq!(lens(0), (vec![4, 0, 4], 0));
    assert_eq!(lens(1), (vec![4, 0, 4], 4));
    assert_eq!(lens(2), (vec![4, 0, 4], 0));
}
