//! A target that takes products of matrices, those of attention among them.

use millrace_graph::Graph;
use millrace_npu::{Container, Element, Role, Slot};
use millrace_plan::attention_products::{AttentionProducts, group};
use millrace_plan::offload::{self, OffloadedOp, Product};
use millrace_plan::{
    Annex, Binding, LowerError, NamedNumbers, PassKind, Plan, PlannedLaunch, PlannedProgram,
    Reason, ValueArrangement, WeightArrangement, WeightLayout,
};
use std::sync::Arc;

/// A plan of products. Attention is products too where `n_keys` gives a number of keys.
pub(crate) fn products(
    graph: &Graph,
    kind: &PassKind,
    n_keys: Option<usize>,
) -> Result<Plan, LowerError> {
    let attend: offload::Attend<'_> = &mut |op, attention| {
        let Some(n_keys) = n_keys else {
            return Err(Reason("no keys".to_owned()));
        };
        let m = op.n_rows * group(attention) as u64;
        let (n, k) = (n_keys as u64, attention.head_dim as u64);
        let ids = [4, 5, 6].map(ValueArrangement);
        Ok(AttentionProducts {
            scores: (
                program("scores", [[m, k], [n, k], [m, n]], Role::Input),
                ids,
            ),
            sums: (program("sums", [[m, n], [k, n], [m, k]], Role::Input), ids),
            n_keys,
            reason: "attention as products".to_owned(),
        })
    };
    offload::products_and_attention(graph, kind, &mut take, attend)
}

/// The product as a separate program.
pub(crate) fn take(product: &Product) -> Result<OffloadedOp, Reason> {
    let value = |value| Binding::Packed {
        value,
        id: ValueArrangement(1),
        bias: None,
    };
    let layout = WeightLayout::Own {
        id: WeightArrangement(2),
        half_split: product.half_split,
    };
    let bindings = vec![
        value(product.x),
        Binding::Weight {
            weight: product.weight,
            layout,
        },
        value(product.y),
    ];
    let shapes = [
        [product.m, product.k],
        [product.n, product.k],
        [product.m, product.n],
    ];
    Ok(OffloadedOp {
        program: program("product", shapes, Role::Static),
        bindings,
        reason: "a product".to_owned(),
        experts: None,
    })
}

fn program(name: &str, shapes: [[u64; 2]; 3], second: Role) -> PlannedProgram {
    let roles = [Role::Input, second, Role::Output];
    let slots = ["a", "b", "c"].into_iter().zip(shapes).zip(roles);
    let slots = slots.map(|((name, shape), role)| Slot {
        name: name.to_owned(),
        element: Element::F32,
        shape: shape.to_vec(),
        role,
    });
    let container = Container::new("toy", name, slots.collect(), Vec::new());
    PlannedProgram {
        container: Arc::new(container.expect("a container")),
        launches: vec![PlannedLaunch {
            name: name.to_owned(),
            kernel: "matmul".to_owned(),
            shape: NamedNumbers::new(&[("m", shapes[0][0])]),
            tiling: NamedNumbers::new(&[]),
            slots: vec![0, 1, 2],
            n_results: 1,
            physical: 0..1,
        }],
        annex: Annex::default(),
    }
}
