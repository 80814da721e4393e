#![allow(clippy::unwrap_used)] // A test may panic.

use super::*;

#[test]
fn builtin_machines_parse_and_every_value_has_a_source() {
    for name in Machine::builtin_names() {
        let machine = Machine::builtin(name).unwrap();
        assert_eq!(machine.name, name);
        let required = keys::KEYS.iter().filter(|key| key.is_required());
        for key in required.map(Key::path).chain(["dpm_level"]) {
            let fact = machine.fact(key).unwrap();
            assert!(fact.source.len() >= 5, "{name}: {key} has no source");
        }
    }
}

#[test]
fn npu2_is_eight_by_four_at_its_highest_clock() {
    let npu2 = Machine::npu2();
    assert_eq!((npu2.cols, npu2.rows, npu2.n_cores()), (8, 4, 32));
    assert_eq!(npu2.clock_hz, 1.8e9);
    assert_eq!(npu2.core.data_bytes, 65_536);
    assert_eq!(npu2.memory.data_bytes, 524_288);
    assert_eq!(npu2.buffer_bytes_max, 1 << 32);
    // The driver states 4096 × 8 × clock as TOPS.
    let tops = f64::from(2 * npu2.macs.int8 * npu2.n_cores()) * npu2.clock_hz / 1e12;
    assert!((tops - 58.98).abs() < 0.01);
}

#[test]
fn overrides_change_one_value_and_are_recorded() {
    let mut machine = Machine::npu2();
    machine.set("cols=4").unwrap();
    machine.set("core.data_bytes = 32768").unwrap();
    machine.set("dpm=low").unwrap();
    assert_eq!(machine.cols, 4);
    assert_eq!(machine.core.data_bytes, 32_768);
    assert_eq!((machine.dpm_level, machine.clock_hz), (0, 792e6));
    machine.set("dpm=medium").unwrap();
    assert_eq!((machine.dpm_level, machine.clock_hz), (3, 1267e6));
    machine.set("dpm=6").unwrap();
    assert_eq!(machine.clock_hz, 1584e6);
    machine.set("clock_hz=1e9").unwrap();
    assert_eq!(machine.clock_hz, 1e9);
    assert_eq!(machine.fact("cols").unwrap().source, "--set");
}

#[test]
fn bad_overrides_are_refused_and_change_nothing() {
    let before = Machine::npu2();
    for (assignment, words) in [
        ("colls=4", "did you mean `cols`?"),
        ("core.data_byte=1024", "did you mean `core.data_bytes`?"),
        ("cols", "key=value"),
        ("cols=0", "from 1 to 64"),
        ("cols=1e9", "from 1 to 64"),
        ("cols=2.5", "a whole number from 1 to 64"),
        ("cols=nan", "from 1 to 64"),
        ("cols=many", "from 1 to 64"),
        ("dpm=8", "an index from 0 to 7"),
        ("dpm=fast", "turbo, high, medium, low"),
        ("name=x", "no key `name`"),
    ] {
        let mut machine = before.clone();
        let error = machine.set(assignment).unwrap_err().to_string();
        assert!(error.contains(words), "{assignment}: {error}");
        assert_eq!(machine, before, "{assignment}");
    }
}

#[test]
fn a_file_of_ones_own_may_start_from_a_base() {
    let text = "base = \"npu2\"\nname = \"half\"\ncols = 4\n[core]\nlocks = 8\n\
                [dpm_level]\nvalue = \"low\"\nsource = \"a quiet fan\"\n";
    let machine = Machine::from_toml(text, "half.toml").unwrap();
    assert_eq!((machine.name.as_str(), machine.cols), ("half", 4));
    assert_eq!((machine.core.locks, machine.rows), (8, 4));
    assert_eq!(machine.clock_hz, 792e6);
    assert_eq!(machine.fact("dpm_level").unwrap().source, "a quiet fan");
    let text = "base = \"npu2\"\ndpm = [[300, 600], [400, 800]]";
    let machine = Machine::from_toml(text, "slow.toml").unwrap();
    assert_eq!((machine.dpm_level, machine.clock_hz), (1, 800e6));
}

#[test]
fn bad_files_are_refused_with_the_key() {
    for (text, words) in [
        ("cols = ", "half.toml"),
        ("cols = 4", "is missing"),
        ("base = \"npu9\"", "one of npu2"),
        ("base = \"npu2\"\ncolumns = 4", "no key `columns`"),
        (
            "base = \"npu2\"\n[core]\nlock = 4",
            "did you mean `core.locks`?",
        ),
        ("base = \"npu2\"\n[cores]\nlocks = 4", "no key `cores`"),
        (
            "base = \"npu2\"\ncols = \"eight\"",
            "a whole number from 1 to 64",
        ),
        (
            "base = \"npu2\"\n[cols]\nvalue = 4\nsauce = \"me\"",
            "cols.sauce",
        ),
        ("base = \"npu2\"\ndpm = []", "pairs of MHz"),
        ("base = \"npu2\"\ndpm = [[1, 2, 3]]", "pairs of MHz"),
        (
            "base = \"npu2\"\ndpm = [[400, 800]]\ndpm_level = 1",
            "0 to 0",
        ),
        (
            "base = \"npu2\"\n[cols]\nvalue = 4",
            "`cols.source` is missing",
        ),
    ] {
        let error = Machine::from_toml(text, "half.toml").unwrap_err();
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}
