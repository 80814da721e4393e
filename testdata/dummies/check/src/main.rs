//! What each dummy must be able to do on the day that its patch is applied.
#![forbid(unsafe_code)]

mod format;
mod model;
mod op;
mod stage;
mod target;

fn main() {
    for (kind, check) in [
        ("weight format", format::check as fn()),
        ("sampler stage", stage::check),
        ("family", || model::check("dummy_dense")),
        ("mixture of experts", || model::check("dummy_experts")),
        ("op", op::check),
        ("target", target::check),
    ] {
        check();
        println!("{kind}: passed");
    }
}
