//! README for the owner of exported designs.

use super::Pass;
use millrace_xdna2_silicon::KernelFunction;
use millrace_xdna2_silicon::export::KERNELS_FILE;
use std::collections::BTreeMap;
use std::fmt::Write;

const NEEDS: &str = "\
**Never run on hardware.** These files were printed by Millrace. Its importer read each design back, and its model of the
registers ran them. No NPU and no compiler of AMD's has seen them.

## What you need

| | version | where it is described |
|---|---|---|
| Ryzen AI with XDNA2 (Strix, Strix Halo, Krackan) | 8 columns | |
| Linux driver `amdxdna` and firmware of linux-firmware | Linux 6.14 or newer | drm/accel of the kernel's documentation |
| XRT with the NPU's plug-in | 2.21 or newer | github.com/amd/xdna-driver |
| mlir-aie (`aiecc`, aie_api headers) | 1.4, as wheels | github.com/Xilinx/mlir-aie, releases `latest-wheels-4` |
| Peano (llvm-aie: `clang++`, `llvm-ar`) | nightly, as wheels | github.com/Xilinx/llvm-aie, releases `nightly` |

These versions are those that the projects' pages name. Nobody tried them with these files.

## How a design is built

```
for f in kernels/*.cc; do
  $PEANO_INSTALL_DIR/bin/clang++ -O2 -std=c++20 --target=aie2p-none-unknown-elf -DNDEBUG \\
    -Wno-parentheses -Wno-attributes -Wno-macro-redefined -I $MLIR_AIE_INSTALL_DIR/include -c $f -o ${f%.cc}.o
done
$PEANO_INSTALL_DIR/bin/llvm-ar rc kernels.a kernels/*.o
aiecc --no-xchesscc --no-xbridge --aie-generate-xclbin --xclbin-name=final.xclbin \\
  --aie-generate-npu-insts --npu-insts-name=insts.bin designs/NAME.mlir
```

Kernels that set or copy elements are whole. The others stop the compiler with what is to be written: the file's head has the
formula, the sizes and the order of the operands. Start with a design that calls few of them.

The host gives the arguments of `aie.runtime_sequence` in their order; the tables below name them. Launches of a program run one
after the other on the same buffers. What the host computes between programs, `millrace explain` lists.

`millrace aie run designs/NAME.mlir` runs a design on the model of the registers, with Millrace's own kernels.

## Layouts

Matrices of the vector units are cut into 8 x 8 blocks. For `C[m, n] += A[m, k] B[k, n]`, from the outermost dimension:

| operand | element | order |
|---|---|---|
| A | bfloat16 (int8_t) | [k/8] [m/8] [8 m] [8 k] |
| B | bfloat16 | [n/8] [k/8] [8 k] [8 n] |
| B transposed | bfloat16 (int8_t) | [k/8] [n/8] [8 n] [8 k] |
| C | float (int32_t) | [n/8] [m/8] [8 m] [8 n] |

Sums are float, and every rounding to bfloat16 is to nearest, ties to even, unless a kernel's formula says otherwise. All other
operands lie row by row.
";

/// The text for a model's passes.
pub(super) fn readme(
    model: &str,
    passes: &[Pass],
    kernels: &BTreeMap<String, KernelFunction>,
) -> String {
    let mut text = format!("# {model} for XDNA2\n\n{NEEDS}");
    let mut refused: Vec<&str> = Vec::new();
    for pass in passes {
        let _ = writeln!(
            text,
            "\n## {}\n\n| program | launch | design | arguments |\n|---|---|---|---|",
            pass.title
        );
        for program in &pass.programs {
            for (launch, exported) in &program.launches {
                let (file, arguments) = match exported {
                    Ok(exported) => (exported.file.as_str(), exported.arguments.join(", ")),
                    Err(reason) => {
                        refused.push(reason);
                        ("none, see below", String::new())
                    }
                };
                let name = &program.name;
                let _ = writeln!(text, "| {name} | {launch} | {file} | {arguments} |");
            }
        }
    }
    refused.sort_unstable();
    refused.dedup();
    if !refused.is_empty() {
        text.push_str("\n## Launches without a design\n\n");
        for reason in refused {
            let _ = writeln!(text, "- {reason}");
        }
    }
    let _ = writeln!(
        text,
        "\n## Kernels in {KERNELS_FILE}\n\n| function | computes |\n|---|---|"
    );
    for (symbol, function) in kernels {
        let summary = function.instance.kernel.summary.replace('|', "/");
        let _ = writeln!(text, "| `{symbol}` | {summary} |");
    }
    text
}
