//! The printed crate: manifest, one module a program, and notes for its owner.

use super::spelling::identifier;
use super::{ExportError, VENDOR_CRATE, function};
use crate::Program;
use millrace_plan::SourceFile;
use std::fmt::Write;

/// A program of a pass.
#[derive(Clone, Debug)]
pub(crate) struct PackageCall<'p> {
    /// The program.
    pub program: &'p Program,
    /// Lines about its computation.
    pub notes: Vec<String>,
    /// How often a pass calls it.
    pub n_calls: usize,
}

/// A pass of the model: a prompt, or a token.
#[derive(Clone, Debug)]
pub(crate) struct Pass<'p> {
    /// Description of its input.
    pub title: String,
    /// Its programs, in the order of their first call.
    pub calls: Vec<PackageCall<'p>>,
    /// Ops that the host computes between them, with reasons.
    pub host: Vec<(String, String)>,
}

/// The nightly compiler that the vendor's crates were type-checked with.
const TOOLCHAIN: &str = "nightly-2026-05-20";

const ATTRIBUTES: &str = "\
#![feature(register_tool)]
#![register_tool(furiosa_opt)]
";

/// A crate of the programs of `passes`. `what` names the model and the numbers.
///
/// # Errors
/// The first program that the vendor's interface has no words for.
pub(crate) fn package(
    name: &str,
    what: &str,
    passes: &[Pass<'_>],
) -> Result<Vec<SourceFile>, ExportError> {
    let name = identifier(&name.to_ascii_lowercase());
    let mut modules: Vec<(String, String)> = Vec::new();
    for call in passes.iter().flat_map(|pass| &pass.calls) {
        let module = identifier(&call.program.name);
        if modules.iter().all(|(known, _)| *known != module) {
            let text = function(call.program, &call.notes)?;
            modules.push((module, text));
        }
    }
    let file = |path: &str, text: String| SourceFile {
        path: path.to_owned(),
        text,
    };
    let (vendor, version) = VENDOR_CRATE;
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
         [dependencies]\n{vendor} = \"={version}\"\n\n# A crate of its own, wherever it lies.\n[workspace]\n"
    );
    let mut lib = format!("//! Device functions of {what}.\n//! See README.md.\n{ATTRIBUTES}\n");
    for (module, _) in &modules {
        // Writing to a String cannot fail.
        let _ = writeln!(lib, "pub mod {module};");
    }
    let toolchain = format!("[toolchain]\nchannel = \"{TOOLCHAIN}\"\n");
    let mut files = vec![
        file("Cargo.toml", manifest),
        file("rust-toolchain.toml", toolchain),
        file("README.md", readme(&name, what, passes)),
        file("src/lib.rs", lib),
    ];
    let module = |(module, text)| file(&format!("src/{module}.rs"), text);
    files.extend(modules.into_iter().map(module));
    Ok(files)
}

const NEEDS: &str = "\
What you need beyond this crate:

- A card, and the vendor's compiler driver (`cargo furiosa-opt`), which is closed. Without it, plain `cargo` runs
  the functions' bodies on the host, slowly and in order.
- The two archives that the vendor's build scripts download (`furiosa_mapping_impl`, `furiosa_opt_lower_impl`).
  They check every mapping when a function runs. Types are checked without them: set
  `FURIOSA_MAPPING_IMPL_LOCAL_PREBUILT` and `FURIOSA_OPT_LOWER_IMPL_LOCAL_PREBUILT` to an empty archive.
- A program of the host's own: it opens the device, uploads weights, and calls the functions below in the order
  of the model. The type of each argument is its layout in the chip's memory.

What the host does between calls:

- Weights: each is written once, in the order of its argument's mapping.
- Indices (`token`, `last`) are byte offsets into the table here.
- `t` holds the 2 × 2 rotation matrices of the pass's positions, `mask` 0 where a key is seen and a large negative
  number elsewhere.
- New keys and values go to their rows of `k_cache` and `v_cache` before attention is called.

What differs from the verified programs, because the vendor's interface wants it so:

- Packets are padded to flits of 32 bytes, and the vector engine's four ways are written out.
- A register file of a contraction is named as the stream that meets it; copies over clusters and slices are given
  those names by `reshape`, which moves nothing.
- Register files of contractions are filled by the sub context.
- SiLU times up takes two passes: an interleaved stream cannot be stashed.
- Addresses in data memory are the compiler's to choose.

No program of this crate has run on a card. Its types were checked; whether the vendor's archives take every mapping
was not.
";

fn readme(name: &str, what: &str, passes: &[Pass<'_>]) -> String {
    let (vendor, version) = VENDOR_CRATE;
    let mut text = format!(
        "# {name}\n\nDevice functions of {what}, for {vendor} {version}, \
         printed by Millrace from programs that its verifier accepts.\n\n{NEEDS}"
    );
    for pass in passes {
        let _ = writeln!(
            text,
            "\n## {}\n\n| function | calls | computes |\n|---|---:|---|",
            pass.title
        );
        for call in &pass.calls {
            let function = identifier(&call.program.name);
            let computes = call.notes.join("; ").replace('|', "/");
            let _ = writeln!(text, "| `{function}` | {} | {computes} |", call.n_calls);
        }
        if pass.host.is_empty() {
            continue;
        }
        text.push_str("\nOn the host:\n\n");
        for (op, reason) in &pass.host {
            let _ = writeln!(text, "- {op}: {reason}");
        }
    }
    text
}
