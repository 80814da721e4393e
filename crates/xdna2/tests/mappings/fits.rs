//! Shapes of real models and published tilings are accepted.

use crate::mappings::{GEMMS, build, case, fits};
use millrace_xdna2::mapping::TABLE;
use millrace_xdna2_machine::{Machine, Program};

#[test]
fn projections_of_llama_3_2_1b_and_gemma_3_4b() {
    // (K, N) of q, k and v, o, gate and up, down.
    let llama = [(2048, 2048), (2048, 512), (2048, 8192), (8192, 2048)];
    let gemma = [
        (2560, 2048),
        (2560, 1024),
        (2048, 2560),
        (2560, 10240),
        (10240, 2560),
    ];
    for (k, n) in llama.into_iter().chain(gemma) {
        for name in GEMMS {
            fits(name, &format!("2048x{k}x{n}"), "");
        }
        for prompt in [8, 24, 136, 1000, 2048] {
            fits("gemm-megatile", &format!("{prompt}x{k}x{n}"), "");
        }
        fits("gemv", &format!("{n}x{k}"), "");
    }
}

#[test]
fn other_kernels_of_llama_3_2_1b_and_gemma_3_4b() {
    for (d_model, d_ff) in [(2048, 8192), (2560, 10240)] {
        for n_tokens in [1, 2048] {
            for name in ["rmsnorm", "add-2d", "add-flat"] {
                fits(name, &format!("{n_tokens}x{d_model}"), "");
            }
            fits("add", &format!("{}", n_tokens * d_model), "");
            for name in ["silu-mul", "gelu-mul", "gelu"] {
                fits(name, &format!("{}", n_tokens * d_ff), "");
            }
        }
    }
    for (heads, head_dim) in [(32, 64), (8, 64), (8, 256), (4, 256)] {
        fits("rope", &format!("{}x{head_dim}", heads * 2048), "");
        fits("rope", &format!("{heads}x{head_dim}"), "cols=1");
        fits("rope", &format!("{heads}x{head_dim}"), "");
        // Gemma's norms of queries and keys.
        fits("rmsnorm", &format!("{}x{head_dim}", heads * 2048), "");
    }
    let llama = "2048 32q/8kv d64 causal";
    fits("flash-attention", llama, "");
    fits(
        "flash-attention",
        &format!("{llama} seq-first"),
        "causal_skip=1",
    );
    fits("flash-attention", "2048 8q/4kv d256 causal", "");
    // Tilings of mode fast.
    let even = "causal_skip=1,streamed=1,top_first=1";
    for (shape, columns) in [
        (llama, "unroll=2,heads=4,q_tiles=1"),
        ("2048 24q/8kv d128 causal", "unroll=1,q_tiles=8"),
        ("2048 32q/8kv d128 causal", "unroll=2,heads=4,q_tiles=1"),
        ("2048 14q/2kv d64 causal", "unroll=1,heads=7,q_tiles=1"),
        ("2048 8q/4kv d256 causal", "unroll=1,heads=2,q_tiles=4"),
    ] {
        let tiling = format!("{columns},{even}");
        fits("flash-attention", &format!("{shape} seq-first"), &tiling);
    }
    for d_ff in [8192, 10240, 14336] {
        let n = format!("{}", 2048 * d_ff);
        fits("silu-mul", &n, "rows=4,tile=4096,l2_copies=2");
        fits("gelu-mul", &n, "rows=2,tile=4096,l2_copies=2");
    }
    for d_model in [2048, 2560, 4096] {
        let shape = format!("2048x{d_model}");
        fits("rmsnorm", &shape, "rows=4,l2_copies=2");
        fits("add-2d", &shape, "rows=4,tile=1024,l2_copies=2");
    }
    for (heads, max_tokens) in [("32q/8kv d64", 131_072), ("8q/4kv d256", 32_768)] {
        for n_keys in [512, 4096, 32_768] {
            for new in [1, 64, 2048] {
                if new <= n_keys {
                    let shape = format!("{new}x{n_keys} {heads} of {max_tokens}");
                    fits("cached-attention", &shape, "");
                }
            }
        }
    }
    for lm_head in ["16384x2048", "128256x2048", "262144x2560"] {
        fits("gemv", lm_head, "");
    }
}

/// Published tilings of measured runs.
#[test]
fn published_gemm_tilings() {
    for (shape, tiling) in [
        ("2048x2048x2048", "tile_m=64,tile_k_l2=512"),
        ("4096x4096x4096", "tile_m=64,tile_k_l2=512"),
        ("2048x2560x9728", "tile_k_l2=64"),
        ("2048x4864x896", "tile_m=64,tile_k_l2=256,tile_n=32"),
        ("2048x18944x3584", "tile_k_l2=256"),
        ("512x512x512", "tile_m=32,tile_k_l2=256,tile_n=128"),
    ] {
        fits("gemm-f32", shape, tiling);
        fits("gemm-fused-cast", shape, tiling);
    }
    for (shape, [tm, kl2, tk, tn, cols, rows]) in [
        ("64x32x720", [16, 32, 32, 80, 4, 3]),
        ("64x720x32", [16, 144, 48, 32, 4, 1]),
        ("64x12288x960", [16, 384, 32, 240, 4, 4]),
        ("192x320x64", [32, 320, 32, 16, 6, 4]),
        ("1024x768x768", [32, 384, 64, 96, 8, 4]),
        ("2048x2048x8192", [32, 256, 32, 128, 8, 4]),
    ] {
        let tiling = format!(
            "tile_m={tm},tile_k_l2={kl2},tile_k_l1={tk},tile_n={tn},cols={cols},rows={rows}"
        );
        fits("gemm-drain", shape, &tiling);
    }
    let narrow = "tile_m=64,tile_k_l2=128,tile_n=64";
    fits("gemm-direct", "2048x4096x14336", narrow);
    let wide = "tile_m=64,tile_k_l2=512,tile_n=128";
    fits("gemm-direct", "2048x2048x2048", wide);
}

/// The Gemma 3 paper (§3.1.2) prints its megatiles as `M x K x N`.
#[test]
fn published_megatiles() {
    for (mega, tiling) in [
        ([128, 512, 512], "tile_m=16,e_y=1,tile_n=64,e_x=2"),
        ([256, 256, 512], "tile_m=32,e_y=1,tile_n=64,e_x=2"),
        ([512, 512, 512], "tile_m=64,e_y=1,tile_n=64,e_x=2"),
        ([512, 512, 512], "tile_m=32,e_y=2,tile_n=64,e_x=2"),
    ] {
        let tiling = format!("{tiling},tile_k_l2={}", mega[1]);
        let (mapping, shape, t) = case("gemm-megatile", "2048x2048x2048", &tiling);
        build(mapping, &shape, &t, &Machine::npu2());
        let m = t["cols"] * t["e_y"] * t["tile_m"];
        let n = t["rows"] * t["e_x"] * t["tile_n"];
        assert_eq!([m, t["tile_k_l2"], n], mega);
    }
}

/// Every mapping's program reads back from its text.
#[test]
fn programs_read_back_from_text() {
    for mapping in TABLE {
        let shapes = [
            "4096",
            "64x128",
            "64x64x64",
            "64 4q/2kv d16 causal",
            "64x512 4q/2kv d16",
            "1x640 4q/2kv d64",
        ];
        let parses = |text: &&&str| mapping.parse_shape(text).is_ok();
        let shape = match mapping.name() {
            // One token's.
            "token-attention" | "flow-kv" => shapes.last(),
            _ => shapes.iter().find(parses),
        };
        let (mapping, shape, tiling) = case(mapping.name(), shape.unwrap(), "");
        let program = build(mapping, &shape, &tiling, &Machine::npu2());
        let text = program.to_string();
        assert_eq!(text.parse::<Program>().as_ref(), Ok(&program), "{text}");
    }
}

#[test]
fn other_published_tilings() {
    for (shape, tiling) in [
        ("2048x2048", "tile_m=8,m_input=8"),
        ("2048x8192", "tile_m=2,m_input=2"),
        ("49152x2048", "tile_m=8,m_input=8"),
        ("896x896", "tile_m=16,m_input=16,cols=8"),
        ("2048x11008", "tile_m=2,m_input=1"),
        ("4864x896", "tile_m=16,m_input=16,cols=8"),
    ] {
        fits("gemv", shape, tiling);
    }
    fits("add", "4194304", "tile=2048,cols=2,rows=4");
    fits("gelu", "3145728", "tile=4096,cols=8,rows=2");
    fits("silu-mul", "16777216", "tile=4096,cols=8,rows=1");
    for shape in [
        "2048 14q/2kv d64 causal",
        "512 64q/8kv d64 full",
        "16384 2q/2kv d64 causal",
        "2048 12q/2kv d128 causal",
    ] {
        fits("flash-attention", shape, "");
    }
}
