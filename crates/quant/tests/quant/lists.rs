//! Lists of formats follow from the table: outside the files below no code names a block format.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_quant::DType;

/// Files and folders that name block formats, with the reason. A new format does not need to change any of them.
const ALLOWED: [(&str, &str); 18] = [
    (
        "model/src/arch/gptoss.rs",
        "tells a method of transformers, whose name a format has too",
    ),
    (
        "model/src/derive.rs",
        "joins blocks whose two parts transformers stores apart",
    ),
    ("quant/src/formats", "the formats themselves"),
    ("kernels/src/x86", "kernels of single formats"),
    ("kernels/src/aarch64", "kernels of single formats"),
    (
        "kernels/src/oracle/matmul/levels.rs",
        "what those kernels must compute",
    ),
    (
        "kernels/src/oracle/matmul/levels",
        "what those kernels must compute",
    ),
    (
        "format/src/packed",
        "the formats that hold what quantisers packed",
    ),
    (
        "xdna2/src/target/packed.rs",
        "one device's readings; it decodes all others",
    ),
    (
        "evidence/src/xdna2/fidelity/models.rs",
        "published measurements",
    ),
    (
        "evidence/src/xdna2/fidelity/models",
        "published measurements",
    ),
    (
        "format/src/safetensors",
        "bundles hold additive Q4NX tiles as I8",
    ),
    (
        "format/src/tensor.rs",
        "bundles may lack the shape of Q4NX tiles",
    ),
    ("model/src/recipe.rs", "llama.cpp's mixtures of formats"),
    (
        "ggml-plugin/src/npu/plan.rs",
        "one product asks whether a target plans any",
    ),
    (
        "cli/src/commands/snr/pipelines.rs",
        "published pipelines begin with one",
    ),
    ("cli/src/commands/synth.rs", "the default of --type"),
    ("hub/src/select.rs", "the order of preference among files"),
];

/// Names with a second meaning: a kind of files and a mode of an NPU; a format of KV caches.
const AMBIGUOUS: [&str; 2] = ["q4nx", "q8_0"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Rust files of the programs, without those of tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// Names of a format in code.
struct Names {
    dtype: DType,
    /// The variant of the enum.
    variant: String,
    /// The format or its files, as separate texts in lower case.
    texts: Vec<String>,
}

impl Names {
    fn of_blocks() -> Vec<Names> {
        let blocks = DType::all().filter(|dtype| !dtype.is_float());
        blocks.map(Names::of).collect()
    }

    fn of(dtype: DType) -> Names {
        let files = dtype.file_types().iter().map(|file| file.name);
        let names = files.chain([dtype.name()]).map(str::to_lowercase);
        let clear = names.filter(|name| !AMBIGUOUS.contains(&name.as_str()));
        Names {
            dtype,
            variant: format!("DType::{dtype:?}"),
            texts: clear.map(|name| format!("\"{name}\"")).collect(),
        }
    }

    fn are_in(&self, line: &str, lower: &str) -> bool {
        let ends = |at: usize| {
            let next = line[at + self.variant.len()..].chars().next();
            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
        };
        line.match_indices(&self.variant).any(|(at, _)| ends(at))
            || self.texts.iter().any(|text| lower.contains(text))
    }
}

/// Places in a file that name a block format: number of the line, and the format.
fn places(text: &str, formats: &[Names]) -> Vec<(usize, DType)> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    for (i, line) in code.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if is_comment || !(line.contains("DType::") || line.contains('"')) {
            continue;
        }
        let lower = line.to_lowercase();
        let named = formats.iter().filter(|names| names.are_in(line, &lower));
        found.extend(named.map(|names| (i + 1, names.dtype)));
    }
    found
}

#[test]
fn no_code_but_kernels_and_recipes_names_a_block_format() {
    let mut unused: Vec<&str> = ALLOWED.iter().map(|(path, _)| *path).collect();
    let (mut wrong, formats) = (Vec::new(), Names::of_blocks());
    for folder in fs::read_dir(crates()).expect("the crates") {
        let folder = folder.expect("a crate").path().join("src");
        let mut found = Vec::new();
        if folder.is_dir() {
            sources(&folder, &mut found);
        }
        for path in found {
            let text = fs::read_to_string(&path).expect("a source");
            let relative = path.strip_prefix(crates()).expect("a crate's file");
            let allowed = ALLOWED
                .iter()
                .find(|(allowed, _)| relative.starts_with(allowed));
            for (line, dtype) in places(&text, &formats) {
                match allowed {
                    Some((path, _)) => unused.retain(|unused| unused != path),
                    None => wrong.push(format!("{}:{line} names {dtype}", relative.display())),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "derive these from the table of formats (DType::all and a predicate):\n{}",
        wrong.join("\n")
    );
    assert_eq!(unused, [""; 0], "these name no format: strike them off");
}

#[test]
fn a_named_format_is_found() {
    let cases = [
        ("matches!(dtype, DType::Q5K | DType::F16)", vec![DType::Q5K]),
        ("[\"Q5_K_M\", \"f32\"]", vec![DType::Q5K]),
        ("let name = \"mxfp4\";", vec![DType::Mxfp4]),
        ("DType::Q4nxSub => 1,", vec![DType::Q4nxSub]),
        ("// DType::Q5K", vec![]),
        ("mode == \"q4nx\" && dtype == DType::BF16", vec![]),
    ];
    for (line, expected) in cases {
        let found: Vec<DType> = places(line, &Names::of_blocks())
            .into_iter()
            .map(|(_, dtype)| dtype)
            .collect();
        assert_eq!(found, expected, "{line}");
    }
}

/// A row of the table in docs/files.md.
fn documented(dtype: DType) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let shape = match dtype.is_tiled() {
        true => format!("{} x {}", dtype.block_rows(), dtype.block_elems()),
        false => dtype.block_elems().to_string(),
    };
    let files = dtype.file_types().iter().map(|file| match file.number {
        Some(number) => format!("{} ({number})", file.name),
        None => file.name.to_owned(),
    });
    let files: Vec<String> = files.collect();
    format!(
        "| {dtype} | {} | {shape} | {} | {} | {} | {} | {} |",
        dtype.bits_per_element(),
        dtype.block_bytes(),
        dtype.error_budget(),
        or_none(dtype.gguf_type().map(|number| number.to_string())),
        or_none(dtype.safetensors_name().map(str::to_owned)),
        or_none(Some(files.join(", ")).filter(|files| !files.is_empty())),
    )
}

#[test]
fn every_format_has_its_row_in_the_documentation() {
    let path = crates().join("../docs/files.md");
    let text = fs::read_to_string(path).expect("the documentation of files");
    let table = text
        .split_once("| format | bits |")
        .expect("the table of formats");
    let rows = table
        .1
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.collect();
    let expected: Vec<String> = DType::all().map(documented).collect();
    let lacks = expected.iter().filter(|row| !rows.contains(&row.as_str()));
    let lacks: Vec<&str> = lacks.map(String::as_str).collect();
    assert!(
        lacks.is_empty(),
        "docs/files.md lacks\n{}",
        lacks.join("\n")
    );
    assert_eq!(
        rows.len(),
        expected.len(),
        "docs/files.md has rows of no format"
    );
}
