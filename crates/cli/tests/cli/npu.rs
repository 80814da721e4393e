//! `kernel` and `fidelity`: the virtual NPU from the command line.

use crate::run::{BAD_INPUT, FAILED, Finished, NOT_FOUND, OK, USAGE, finish, millrace};
use serde_json::Value;

fn kernel(arguments: &[&str]) -> Finished {
    let mut command = millrace(std::env::temp_dir().as_path());
    finish(command.arg("kernel").args(arguments))
}

fn json(arguments: &[&str]) -> Value {
    kernel(&[arguments, &["--json"]].concat()).expect(OK).json()
}

#[test]
fn without_a_name_all_kernels_are_listed() {
    let text = kernel(&[]).expect(OK).stdout;
    for name in [
        "gemm-fused-cast",
        "gemv",
        "rmsnorm",
        "rope",
        "silu-mul",
        "flash-attention",
    ] {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
    let rows = json(&[]);
    let rows = rows.as_array().expect("an array");
    assert!(rows.len() >= 15 && rows.iter().all(|row| row["summary"].is_string()));
}

#[test]
fn a_kernel_is_verified_computed_compared_and_timed() {
    let report = json(&[
        "gemm-drain",
        "256x256x256",
        "--tile",
        "tile_m=32,tile_n=32,tile_k_l2=64",
    ]);
    assert_eq!(report["computed"]["n_unequal"], 0);
    assert_eq!(report["computed"]["n_elements"], 256 * 256);
    let predicted = &report["predicted"];
    assert!(
        predicted["label"]
            .as_str()
            .is_some_and(|l| l.starts_with("modelled("))
    );
    let total = predicted["total_ns"].as_f64().expect("a number");
    let parts: f64 = predicted["launches"]
        .as_array()
        .expect("launches")
        .iter()
        .map(|launch| launch["ns"].as_f64().expect("a number"))
        .sum();
    let dispatch = predicted["dispatch_ns"].as_f64().expect("a number");
    assert!(
        (total - parts - dispatch).abs() < 1.0,
        "{total} = {parts} + {dispatch}"
    );
    let text = kernel(&["gemv", "512x512"]).expect(OK).stdout;
    assert!(
        text.contains("equal to the reference bit for bit"),
        "{text}"
    );
    assert!(text.contains("row 0"), "no image of the array in\n{text}");
}

#[test]
fn a_machine_that_does_not_exist_is_slower() {
    let time = |set: &[&str]| {
        let arguments = ["gemm-f32", "512x512x512", "--time-only"];
        let report = json(&[&arguments[..], set].concat());
        assert!(report["computed"].is_null());
        report["predicted"]["total_ns"].as_f64().expect("a number")
    };
    let whole = time(&[]);
    assert!(time(&["--set", "dpm=low"]) > whole);
    assert!(time(&["--set", "profile.ddr.read_gb_per_s=5"]) > whole);
}

#[test]
fn a_sweep_ranks_legal_tilings() {
    let report = json(&["gemm-drain", "256x256x256", "--sweep", "--top", "5"]);
    let rows = report["tilings"].as_array().expect("tilings");
    let times: Vec<f64> = rows
        .iter()
        .filter_map(|row| row["predicted_ns"].as_f64())
        .collect();
    assert_eq!(times.len(), 5);
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn programs_print_and_are_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("add.tile");
    let text = kernel(&["add", "65536", "--print"]).expect(OK).stdout;
    std::fs::write(&file, &text).expect("written");
    let path = file.to_str().expect("UTF-8");
    let from_file = json(&["--program", path]);
    let built = json(&["add", "65536", "--time-only"]);
    assert_eq!(
        from_file["predicted"]["total_ns"],
        built["predicted"]["total_ns"]
    );
    std::fs::write(&file, "xdna2 1\nprogram p {").expect("written");
    let broken = kernel(&["--program", path]).expect(BAD_INPUT);
    assert!(broken.stderr.contains("add.tile"), "{}", broken.stderr);
}

#[test]
fn what_the_hardware_would_refuse_is_refused_with_the_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("deep.tile");
    let text = kernel(&["add", "65536", "--print"]).expect(OK).stdout;
    // This many blocks exceed a core's memory.
    std::fs::write(&file, text.replace("depth 2", "depth 60")).expect("written");
    let refused = kernel(&["--program", file.to_str().expect("UTF-8")]).expect(FAILED);
    assert!(refused.stderr.contains("XD201"), "{}", refused.stderr);
}

#[test]
fn wrong_arguments_say_what_is_right() {
    let unknown = kernel(&["gem-f32", "2x2x2"]).expect(NOT_FOUND);
    assert!(unknown.stderr.contains("gemm-f32"), "{}", unknown.stderr);
    let shape = kernel(&["gemm-f32", "2x2"]).expect(USAGE);
    assert!(shape.stderr.contains("MxKxN"), "{}", shape.stderr);
    kernel(&["gemm-f32"]).expect(USAGE);
    let tile = kernel(&["gemm-f32", "512x512x512", "--tile", "tile_q=3"]).expect(USAGE);
    assert!(tile.stderr.contains("tile_n"), "{}", tile.stderr);
    kernel(&["add", "64", "--set", "colums=4"]).expect(USAGE);
    kernel(&["add", "64", "--machine", "npu9"]).expect(NOT_FOUND);
}

#[test]
fn a_trace_is_valid_chrome_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("t.json");
    let path = file.to_str().expect("UTF-8");
    kernel(&["rmsnorm", "64x512", "--time-only", "--trace", path]).expect(OK);
    let text = std::fs::read_to_string(&file).expect("a trace");
    let summary = millrace_npu::trace::check_chrome(&text).expect("a valid trace");
    assert!(summary.groups().iter().any(|group| group.contains("cores")));
}

#[test]
fn fidelity_lists_every_group_and_keeps_its_bounds() {
    let mut command = millrace(std::env::temp_dir().as_path());
    let report = finish(command.args(["fidelity", "--json"]))
        .expect(OK)
        .json();
    let groups = report["groups"].as_array().expect("groups");
    assert!(groups.len() >= 6 && groups.iter().all(|group| group["pass"] == true));
    let mut command = millrace(std::env::temp_dir().as_path());
    let text = finish(command.arg("fidelity")).expect(OK).stdout;
    assert!(
        text.contains("FlashAttention") && text.contains("N0472"),
        "{text}"
    );
}

/// Rows have their own constants: an option that would set others is refused, and is not in the help.
#[test]
fn fidelity_refuses_what_would_change_nothing() {
    for (option, value) in [
        ("--set", "cols=4"),
        ("--machine", "npu2"),
        ("--profile", "air-strix-2026"),
    ] {
        let mut command = millrace(std::env::temp_dir().as_path());
        let refused = finish(command.args(["fidelity", option, value])).expect(USAGE);
        let expected = format!("{option} changes nothing here");
        assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    }
    let mut command = millrace(std::env::temp_dir().as_path());
    let help = finish(command.args(["fidelity", "--help"]))
        .expect(OK)
        .stdout;
    assert!(!help.contains("--set"), "{help}");
}

/// An NPU2 stream: holds a core, enables its switch's first port, and waits for a token.
const STREAM: &str = "# a core held, a token awaited\n06040100 00000108 00000003 00000050\n\
    00000000 00000000 02232000 00000000 00000002 00000018\n\
    00000000 00000000 0223F02C 00000000 80000005 00000018\n00000080 00000010 00010001 01010100\n";

fn words(name: &str, content: &[u8], more: &[&str]) -> Finished {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a file");
    let mut command = millrace(folder.path());
    finish(command.args(["npu", "words", name]).args(more))
}

#[test]
fn words_are_told_and_what_is_wrong_with_them() {
    let text = words("stream.txt", STREAM.as_bytes(), &[])
        .expect(OK)
        .stdout;
    for line in [
        "TXN 0.1 for NPU2, 8 columns, 6 rows, 1 of them of memory tiles: 3 operations, 80 bytes",
        "     4  write          core (1, 2) core control = 0x00000002",
        "        core control: reset=1",
        "        master West 2: enable=1 configuration=5",
        "    16  sync           a token of MM2S 1 of columns 1 to 1, rows 0 to 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let listed: Vec<u32> = (STREAM.lines().skip(1))
        .flat_map(str::split_whitespace)
        .map(|word| u32::from_str_radix(word, 16).expect("a word"))
        .collect();
    let mut binary: Vec<u8> = listed.iter().flat_map(|word| word.to_le_bytes()).collect();
    let json = words("stream.bin", &binary, &["--json"]).expect(OK).json();
    assert_eq!(
        json["operations"][1]["fields"][0][3]["name"],
        "configuration"
    );
    assert_eq!(json["operations"][1]["fields"][0][3]["value"], 5);
    assert_eq!(json["operations"][2]["words"][2], "00010001");
    binary[12] = 0x54;
    let refused = words("stream.bin", &binary, &[]).expect(BAD_INPUT).stderr;
    assert!(
        refused.contains("stream.bin: word 3: the header says 84 bytes, there are 80"),
        "{refused}"
    );
    let mut command = millrace(std::env::temp_dir().as_path());
    finish(command.args(["npu", "words", "no-such-file"])).expect(NOT_FOUND);
}

#[test]
fn programs_of_dma_alone_probe_the_board() {
    let probe = |more: &[&str]| {
        let mut command = millrace(std::env::temp_dir().as_path());
        finish(command.args(["probe", "--device", "xdna2"]).args(more))
    };
    let text = probe(&["--virtual"]).expect(OK).stdout;
    for part in [
        "never run on hardware",
        "transpose",
        "join",
        "in two columns at once",
        "in all eight",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("probed.toml");
    let file = file.to_str().expect("a path");
    let slow = ["--set", "profile.shim.port_gb_per_s=5"];
    let write = [&["--virtual", "--json", "--write-profile", file][..], &slow].concat();
    let report = probe(&write).expect(OK).json();
    let predicted = |more: &[&str]| {
        let time = ["add", "65536", "--time-only"];
        json(&[&time[..], more].concat())["predicted"].clone()
    };
    let (probed, plain) = (predicted(&["--profile", file]), predicted(&[]));
    let of = probed["label"].as_str().expect("a label");
    assert!(of.starts_with("modelled(probed, ±"), "{of}");
    let ns = |of: &Value| of["total_ns"].as_f64().expect("a number");
    assert!(ns(&probed) > ns(&plain) + 1e3);
    let tcp = [
        "probe",
        "--device",
        "tcp",
        "--virtual",
        "--write-profile",
        file,
    ];
    let mut command = millrace(folder.path());
    let refused = finish(command.args(tcp)).expect(FAILED).stderr;
    assert!(
        refused.contains("the probe of tcp found no constants"),
        "{refused}"
    );
    let steps = report["steps"].as_array().expect("steps");
    assert!(steps.len() >= 9 && steps.iter().all(|step| step["status"] == "ok"));
    let refused = probe(&["--virtual", "--fault", "lock"])
        .expect(FAILED)
        .stderr;
    assert!(
        refused.contains("nothing moves: firmware waits at operation"),
        "{refused}"
    );
    let old = probe(&["--virtual", "--fault", "firmware"]).expect(FAILED);
    assert!(
        old.stderr.contains("update linux-firmware"),
        "{}",
        old.stderr
    );
    // No device is simulated without being asked for.
    if !std::path::Path::new("/dev/accel").exists() {
        let hardware = probe(&[]).expect(FAILED);
        assert!(
            hardware.stderr.contains("no node in /dev/accel"),
            "{}",
            hardware.stderr
        );
    }
}

/// A kernel run as words gives the same bytes as when run as tiles, and reports its executor.
#[test]
fn kernels_run_as_words() {
    let case = ["gemm-stream", "64x64x64"];
    let tiles = json(&case);
    let words = json(&[&case[..], &["--simulator", "words"]].concat());
    let computed = |report: &Value| report["computed"].clone();
    assert_eq!(computed(&tiles)["simulator"], "tiles");
    assert_eq!(computed(&words)["simulator"], "words");
    assert_eq!(computed(&words)["n_unequal"], computed(&tiles)["n_unequal"]);
    assert!(computed(&words)["dma_words"].as_u64() > Some(64 * 64));
    let shown = kernel(&[&case[..], &["--simulator", "words"]].concat());
    let shown = shown.expect(OK).stdout;
    assert!(
        shown.contains("as words on the board behind the driver"),
        "{shown}"
    );
    let unknown = kernel(&[&case[..], &["--simulator", "wires"]].concat());
    let unknown = unknown.expect(USAGE).stderr;
    assert!(unknown.contains("there is tiles, words"), "{unknown}");
}

/// The smaller demo as words, on the board behind the driver, writes the same text as with tiles.
#[test]
fn models_run_as_words() {
    let run = |command: &str, more: &[&str]| {
        let mut millrace = millrace(std::env::temp_dir().as_path());
        finish(
            millrace
                .args([command, "demo-draft", "--device", "xdna2"])
                .args(more),
        )
    };
    let text = |more: &[&str]| {
        let first = ["Once upon", "-n", "3", "--temp", "0"];
        let all = [&first[..], more].concat();
        run("run", &all).expect(OK).stdout
    };
    assert_eq!(text(&["--simulator", "words"]), text(&[]));
    let prompts = ["--prompt-tokens", "64", "--simulator", "words", "--json"];
    let plans = run("explain", &prompts).expect(OK).json();
    for plan in plans["summary"]["plans"].as_array().expect("plans") {
        let programs = plan["executions"].as_array().expect("programs");
        assert!(!programs.is_empty());
        for program in programs {
            let how = program["execution"].as_str().expect("words");
            assert!(how.ends_with("on the board"), "{how}");
        }
    }
    let checked = ["--simulator", "words", "--tokens", "1", "--json"];
    let checked = run("verify", &checked).expect(OK).json();
    assert_eq!(
        (&checked["passes"], &checked["npu"]["substitutes"]),
        (&true.into(), &serde_json::json!([]))
    );
    let device = checked["npu"]["device"].as_str().expect("a name");
    assert!(device.ends_with("words on the board"), "{device}");
    let unknown = run("run", &["a", "--simulator", "wires"]);
    let unknown = unknown.expect(USAGE).stderr;
    assert!(unknown.contains("there is tiles, words"), "{unknown}");
}
