//! What a weight format must be able to do on the day that its file is written.

use millrace_format::Checkpoint;
use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};
use millrace_kernels::{Cpu, CpuOptions, Level, table};
use millrace_model::Model;
use millrace_model::convert::{Conversion, ConversionTarget, OutputContainer};
use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_quant::{DType, decode_rows, encode_matrix};
use std::ops::ControlFlow;
use std::path::Path;

/// Smooth numbers in (−1, 1).
fn numbers(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step).sin()).collect()
}

/// `sqrt(Σ(found − expected)² / Σ expected²)`
fn relative_rms(expected: &[f32], found: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let pairs = expected.iter().zip(found);
    let error: f64 = pairs.map(|(e, f)| square(f64::from(e - f))).sum();
    let power: f64 = expected.iter().map(|e| square(f64::from(*e))).sum();
    (error / power).sqrt()
}

fn products_run_at_every_level(dtype: DType) {
    let (m, n, k) = (5, 33, 10 * dtype.block_elems());
    let (w, x) = (numbers(n * k, 0.37), numbers(m * k, 0.91));
    let mut bytes = vec![0; dtype.size_bytes(n, k).expect("whole blocks")];
    encode_matrix(dtype, &w, n, k, &mut bytes).expect("a matrix");
    let mut stored = vec![0.0; n * k];
    decode_rows(dtype, &bytes, n, k, 0..n, &mut stored).expect("a matrix");
    let error = relative_rms(&w, &stored);
    assert!(error > 0.0 && error < 2.0 * dtype.error_budget(), "{error}");
    let dot = |t: usize, row: usize| {
        let pairs = x[t * k..][..k].iter().zip(&stored[row * k..][..k]);
        pairs
            .map(|(x, w)| f64::from(*x) * f64::from(*w))
            .sum::<f64>() as f32
    };
    for level in Level::supported() {
        let kernel = table::pick(dtype, level, m, false);
        assert!(
            kernel.name().ends_with("/matmul_f32/dummy"),
            "{}",
            kernel.name()
        );
        let options = CpuOptions {
            n_threads: Some(1),
            level: Some(level),
        };
        let cpu = Cpu::new(options).expect("a supported level");
        for m in [1, m] {
            let expected: Vec<f32> = (0..m * n).map(|i| dot(i / n, i % n)).collect();
            let mut out = vec![f32::NAN; m * n];
            let weight = WeightMatrix::new(dtype, n, k, &bytes).expect("a matrix");
            let mut products = [Multiplication {
                weight,
                bias: None,
                out: &mut out,
            }];
            matmul(
                &cpu,
                &x[..m * k],
                m,
                &mut Activations::default(),
                &mut products,
            );
            let error = relative_rms(&expected, &out);
            assert!(error < 1e-5, "{level}, {m} tokens: {error:e}");
        }
        println!("{level}: {}", kernel.name());
    }
}

fn convert(from: &Path, to: &Path, recipe: Recipe) {
    let checkpoint = Checkpoint::open(from).expect("a checkpoint");
    let target = ConversionTarget {
        container: OutputContainer::Gguf,
        recipe,
    };
    let conversion = Conversion::new(&checkpoint, target).expect("a plan");
    let write = conversion.write(to, 1, &mut |_| ControlFlow::Continue(()));
    write.expect("a file");
}

/// A model is written in the format, read, written in another, and that in the first again.
fn files_go_round(dtype: DType) {
    let recipe = Recipe::parse("dummy").expect("a recipe");
    assert_eq!((recipe.base(), recipe.file_type()), (dtype, Some(1001)));
    let unknown = Recipe::from_name("dummy_k")
        .expect_err("no recipe")
        .to_string();
    assert!(
        unknown.contains("dummy_k") && unknown.contains("DUMMY"),
        "{unknown}"
    );
    let folder = std::env::temp_dir().join(format!("dummy-format-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let [first, wide, again] =
        ["first", "f32", "again"].map(|name| folder.join(name).with_extension("gguf"));
    let options = SynthOptions {
        recipe,
        vocab: None,
        n_layers: Some(1),
        vision: false,
        seed: 3,
        n_threads: Some(1),
    };
    let geometry = ModelGeometry::named("llama-tiny").expect("a geometry");
    synth::write(geometry, &first, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .expect("a file");
    convert(&first, &wide, Recipe::parse("F32").expect("a recipe"));
    convert(&wide, &again, recipe);
    let open = |path: &Path| Checkpoint::open(path).expect("a checkpoint");
    let (first, again) = (open(&first), open(&again));
    let metadata = first.gguf().expect("GGUF");
    assert_eq!(
        metadata.get_u32("general.file_type").expect("a number"),
        Some(1001)
    );
    let mut n_matrices = 0;
    for info in first
        .tensors()
        .iter()
        .filter(|info| info.tensor_type == dtype.into())
    {
        let (a, b) = (first.require(&info.name), again.require(&info.name));
        let (a, b) = (a.expect("a tensor"), b.expect("a tensor"));
        assert!(
            b.info.tensor_type == dtype.into() && a.bytes == b.bytes,
            "{}",
            info.name
        );
        n_matrices += 1;
    }
    assert!(n_matrices >= 7, "{n_matrices} matrices");
    Model::from_checkpoint(&first).expect("a model");
    std::fs::remove_dir_all(&folder).expect("a folder");
    println!("{n_matrices} matrices written, read, decoded, and encoded to the same bytes");
}

/// The format is found by name and number, multiplied at every level, and goes round through files.
pub fn check() {
    let dtype = DType::from_name("dummy").expect("the new format");
    assert!(DType::all().any(|other| other == dtype));
    assert_eq!(DType::from_gguf_type(1000), Some(dtype));
    products_run_at_every_level(dtype);
    files_go_round(dtype);
}
