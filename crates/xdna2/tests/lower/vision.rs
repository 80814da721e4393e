//! Vision encoders: the programs of blocks, the contents of their slots, and their predicted times.

use millrace_npu::Role;
use millrace_plan::{Lowering, Planner, VisionMatrix, VisionPlan, VisionShape, VisionSlot};
use millrace_xdna2::lower::{Features, Mode, vision_encoder};
use millrace_xdna2::target::Xdna2;
use millrace_xdna2_machine::{Machine, Profile};

/// The published vision encoder of Gemma 3.
const PUBLISHED: VisionShape = VisionShape {
    n_patches: 4096,
    d_model: 1152,
    d_ff: 4304,
    n_heads: 16,
    head_dim: 72,
    patch_elems: 588,
    n_tokens: 256,
    d_text: 2560,
};

fn plan(shape: &VisionShape) -> Result<VisionPlan, String> {
    vision_encoder(shape, &Machine::npu2(), Features::of(Mode::Fast))
}

#[test]
fn slots_hold_every_matrix_once_and_whole() {
    let plan = plan(&PUBLISHED).unwrap();
    let mut matrices = Vec::new();
    for program in plan.programs() {
        let slots = program.program.slots();
        assert_eq!(slots.len(), program.slots.len());
        for (slot, of) in slots.iter().zip(&program.slots) {
            let n_elems = slot.n_elements().unwrap();
            let (role, expected) = match *of {
                VisionSlot::Rows { width, .. } => (Role::Input, n_elems / width * width),
                VisionSlot::Matrix { of, n, k, bias } => {
                    matrices.push((of, n, k, bias));
                    (Role::Static, n * k)
                }
                VisionSlot::Position => (Role::Static, n_elems),
                VisionSlot::Scratch => (Role::Intermediate, n_elems),
                VisionSlot::Sum => (Role::Output, n_elems),
            };
            assert_eq!((slot.role, n_elems), (role, expected), "{}", slot.name);
        }
    }
    use VisionMatrix::{Down, K, Out, Patches, Projection, Q, Up, V};
    let expected = [
        // 588 numbers and a one, 1,152 and a one.
        (Patches, 1152, 640, true),
        (Q, 1152, 1216, true),
        (K, 1152, 1216, true),
        (V, 1152, 1216, true),
        (Out, 1152, 1152, false),
        // 4,304 outputs, of which the last 48 are none.
        (Up, 4352, 1216, true),
        (Down, 1152, 4352, false),
        (Projection, 2560, 1152, false),
    ];
    assert_eq!(matrices, expected);
}

#[test]
fn sizes_that_are_no_encoders_are_refused_in_words() {
    for (shape, words) in [
        (
            VisionShape {
                head_dim: 64,
                ..PUBLISHED
            },
            "16 heads of 64 in rows of 1152",
        ),
        (
            VisionShape {
                n_patches: 0,
                ..PUBLISHED
            },
            "0 patches",
        ),
        (
            VisionShape {
                n_patches: 1 << 40,
                ..PUBLISHED
            },
            "patches",
        ),
        (
            VisionShape {
                n_heads: u64::MAX,
                ..PUBLISHED
            },
            "heads fill a row",
        ),
        (
            VisionShape {
                n_patches: 4095,
                ..PUBLISHED
            },
            "4095",
        ),
        (
            VisionShape {
                d_model: 1 << 40,
                n_heads: 1 << 34,
                head_dim: 64,
                ..PUBLISHED
            },
            "sizes up to",
        ),
    ] {
        let problem = plan(&shape).err().unwrap();
        assert!(problem.contains(words), "{problem}");
    }
}

/// The parts of the prediction: all blocks', each launch once a block, nothing lost between them.
#[test]
fn a_image_takes_what_its_programs_take() {
    let planner = Xdna2::new(
        Machine::npu2(),
        Profile::builtin("air-krackan-2026").unwrap(),
        Features::of(Mode::Fast),
    );
    let plan = planner.vision_encoder(&PUBLISHED).unwrap();
    let mut pricer = planner.pricer().unwrap();
    let mut cost = |n_layers: usize| plan.cost(n_layers, &mut *pricer).unwrap();
    let (one, all) = (cost(1), cost(27));
    assert_eq!((one.n_dispatches, all.n_dispatches), (4, 56));
    let block = cost(2).total_ns() - one.total_ns();
    assert!((all.total_ns() - one.total_ns() - 26.0 * block).abs() < 1e-3 * all.total_ns());
    assert!(all.products_ns + all.attention_ns < all.work_ns);
    // 3.39 TFLOP of products and 2.09 of attention, below the array's peak and not far below its kernels' rates.
    let tflops = |flops: f64, ns: f64| flops / ns * 1e9;
    let products = tflops(3.39, all.products_ns);
    let attention = tflops(2.09, all.attention_ns);
    assert!((7.0..15.0).contains(&products), "{products} TFLOP/s");
    assert!((3.0..15.0).contains(&attention), "{attention} TFLOP/s");
}
