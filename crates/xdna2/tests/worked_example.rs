//! `docs/xdna2.md` is true: its code is the example's, which is run here; its rules, facts and refusals are those of
//! the crate; its text-form program runs.
#![allow(clippy::unwrap_used)] // A test may panic.

/// The example, which has its own `main`.
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/add_rmsnorm.rs"]
mod example;

use half::bf16;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2_machine::program::text;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::timing::Timing;
use millrace_xdna2_machine::verify::Rule;
use millrace_xdna2_machine::{Machine, Profile, verify};

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page() -> String {
    read("../../docs/xdna2.md")
}

#[test]
fn the_code_of_the_page_is_the_code_of_the_example() {
    let (page, source) = (page(), read("examples/add_rmsnorm.rs"));
    let mut parts = 0;
    for part in source.split("// doc: ").skip(1) {
        let (name, code) = part.split_once('\n').unwrap();
        if name == "end" {
            continue;
        }
        parts += 1;
        let same = page.contains(&format!("```rust\n{code}```"));
        assert!(same, "copy part `{name}` of the example to the page");
    }
    assert_eq!(parts, page.matches("```rust\n").count());
    assert_eq!(parts, 5);
}

#[test]
fn the_example_verifies_and_computes_at_any_shape_it_admits() {
    for (n_rows, d, m) in [(8, 16, 1), (64, 256, 2), (48, 130, 2), (24, 64, 1)] {
        let program = example::add_rmsnorm(n_rows, d, m).unwrap();
        let what = format!("{n_rows} rows of {d} on {m} rows of cores");
        verify(&program, &Machine::npu2()).unwrap_or_else(|e| panic!("{what}: {}", e[0]));
        let wrong = example::differences(&program, n_rows as usize, d as usize).unwrap();
        assert!(wrong.is_empty(), "{what}: {wrong:?}");
    }
}

#[test]
fn fusing_saves_traffic_and_time() {
    let program = example::add_rmsnorm(2048, 2048, 2).unwrap();
    let [one, two] = example::times(&program, "2048x2048").unwrap();
    let bytes = |timing: &Timing| -> f64 {
        let launches = timing.launches.iter();
        launches.map(|l| l.ddr_read_bytes + l.ddr_write_bytes).sum()
    };
    // a, b, s and y once each, γ once a core; as separate kernels, s is read again and γ once.
    let (slot, row) = (2.0 * 2048.0 * 2048.0, 2.0 * 2048.0);
    assert_eq!(bytes(&one), 4.0 * slot + 16.0 * row);
    assert_eq!(bytes(&two), 5.0 * slot + row);
    assert!(one.total_ns < two.total_ns);
}

#[test]
fn what_is_broken_on_purpose_is_told_as_the_page_says() {
    let page = page();
    let said = example::broken().unwrap();
    let begins = ["XD302 ", "XD201 ", "XD502 ", "XD606 ", "s: element "];
    assert_eq!(said.len(), begins.len());
    for ((what, said), begins) in said.iter().zip(begins) {
        assert!(said.starts_with(begins), "{what}: {said}");
        let shown = page.contains(&format!("{what}:\n  {said}\n"));
        assert!(shown, "the page does not show\n{what}:\n  {said}");
    }
}

#[test]
fn the_page_lists_every_rule() {
    let page = page();
    for rule in Rule::ALL {
        let row = format!("| {} | {} |\n", rule.code(), rule.states());
        assert!(
            page.contains(&row),
            "the page's table of rules lacks\n{row}"
        );
    }
    assert_eq!(page.matches("\n| XD").count(), Rule::ALL.len());
}

#[test]
fn the_facts_of_the_page_are_those_of_the_machine() {
    let (page, machine) = (page(), Machine::npu2());
    let mut facts = 0;
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(fact) = cells
            .get(1)
            .and_then(|key| machine.fact(key.trim_matches('`')))
        else {
            continue;
        };
        assert_eq!(cells[2], fact.value.to_string(), "{}", fact.key);
        facts += 1;
    }
    assert!(facts >= 20, "{facts} facts");
}

#[test]
fn the_page_names_every_profile() {
    let page = page();
    for name in Profile::builtin_names() {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn the_text_form_program_of_the_page_runs() {
    let page = page();
    let at = page.find("```text\nxdna2 1\n").unwrap() + "```text\n".len();
    let program = text::parse(page[at..].split("```").next().unwrap()).unwrap();
    verify(&program, &Machine::npu2()).unwrap_or_else(|e| panic!("{}", e[0]));
    let bytes = |values: &[f32]| -> Vec<u8> {
        let bytes = |&v: &f32| bf16::from_f32(v).to_le_bytes();
        values.iter().flat_map(bytes).collect()
    };
    let n = 4096;
    let a: Vec<f32> = (0..n).map(|i| (i % 100) as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (i / 64) as f32).collect();
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let mut slots = vec![bytes(&a), bytes(&b), vec![0; 2 * n]];
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
    assert!(slots[2] == bytes(&sum));
}
