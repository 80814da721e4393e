//! Records for tests, and errors in files about them.
#![allow(clippy::unwrap_used)] // A test may panic.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A record with every kind of key.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stack {
    name: String,
    summary: String,
    error: Option<f64>,
    cores: u32,
    memory_bytes: u64,
    clock_hz: f64,
    mode: String,
    spare_ns: f64,
    kernels: BTreeMap<String, f64>,
    constants: Vec<Fact>,
}

fn mode(stack: &mut Stack, value: &Value) -> Result<(), String> {
    let modes = ["fast", "slow"];
    let named = value.as_str().filter(|mode| modes.contains(mode));
    stack.mode = named.ok_or("fast or slow")?.to_owned();
    Ok(())
}

fn kernel<'s>(stack: &'s mut Stack, name: &str, _field: &str) -> Option<&'s mut f64> {
    Some(stack.kernels.entry(name.to_owned()).or_default())
}

static KERNELS: Family<Stack> = Family {
    prefix: "kernel",
    fields: &["call_cycles"],
    min: 0.0,
    max: 1e6,
    field: kernel,
};

const ROOT: &str = r#"
name = "root"
summary = "stands alone"
error = 0.25

[cores]
value = 4
origin = "published"
source = "a manual"

[memory]
bytes = { value = 65536, unit = "bytes", origin = "derived", source = "four banks" }

[clock_hz]
value = 1e9
origin = "fitted"
rows = ["A1", 7]
source = "two rows"

[mode]
value = "fast"
origin = "assumed"
source = "nobody says"

[kernel."mul.v2".call_cycles]
value = 30
origin = "fitted"
rows = ["A1"]
source = "one row"
"#;

const LEAF: &str = r#"
name = "leaf"
summary = "root with six cores"
base = "root"

[cores]
value = 6
origin = "published"
source = "another manual"
"#;

static BUILTIN: [Builtin<Stack>; 5] = [
    Builtin::new("root", ROOT),
    Builtin::new("leaf", LEAF),
    Builtin::new("itself", "name = 'x'\nsummary = 'x'\nbase = 'itself'"),
    Builtin::new("hen", "name = 'x'\nsummary = 'x'\nbase = 'egg'"),
    Builtin::new("egg", "name = 'x'\nsummary = 'x'\nbase = 'hen'"),
];

impl Record for Stack {
    const KIND: Kind = Kind::Profile;

    fn builtins() -> &'static [Builtin<Stack>] {
        &BUILTIN
    }

    fn keys() -> &'static [Key<Stack>] {
        const KEYS: &[Key<Stack>] = &[
            Key::u32("cores", 1, 64, |s| &mut s.cores),
            Key::u64("memory.bytes", 1024, 1 << 40, |s| &mut s.memory_bytes),
            Key::<Stack>::f64("clock_hz", 1e6, 1e10, |s| &mut s.clock_hz).because("it melts"),
            Key::own("mode", mode),
            Key::<Stack>::f64("spare_ns", 0.0, 1e9, |s| &mut s.spare_ns).optional(),
        ];
        KEYS
    }

    fn name_mut(&mut self) -> &mut String {
        &mut self.name
    }

    fn summary_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.summary)
    }

    fn facts(&self) -> &[Fact] {
        &self.constants
    }

    fn facts_mut(&mut self) -> &mut Vec<Fact> {
        &mut self.constants
    }

    fn remarks() -> &'static [Key<Stack>] {
        const REMARKS: &[Key<Stack>] = &[Key::maybe("error", 0.0, 1.0, |s| &mut s.error)];
        REMARKS
    }

    fn family() -> Option<&'static Family<Stack>> {
        Some(&KERNELS)
    }

    fn begin_file(&mut self) {
        self.error = None;
    }

    fn assigned_key(key: &str) -> &str {
        if key == "m" { "mode" } else { key }
    }
}

fn fact<'s>(stack: &'s Stack, key: &str) -> &'s Fact {
    stack.constants.iter().find(|fact| fact.key == key).unwrap()
}

/// The error for a file that has `root` as its base and this body.
fn refused(body: &str) -> String {
    let text = format!("name = 'x'\nsummary = 'x'\nbase = 'root'\n{body}");
    let error = from_toml::<Stack>(&text, "x.toml").unwrap_err();
    assert_eq!(error.path, "x.toml");
    error.to_string()
}

#[test]
fn values_come_with_their_sources() {
    let root = builtin::<Stack>("root").unwrap();
    assert_eq!((root.cores, root.memory_bytes), (4, 65_536));
    assert_eq!((root.clock_hz, root.error), (1e9, Some(0.25)));
    assert_eq!((&*root.mode, root.spare_ns), ("fast", 0.0));
    assert_eq!(root.kernels["mul.v2"], 30.0);
    assert_eq!(fact(root, "clock_hz").rows, ["A1", "7"]);
    assert_eq!(fact(root, "clock_hz").unit(), Some("Hz"));
    assert_eq!(fact(root, "mode").value.to_string(), "fast");
    assert_eq!(fact(root, "cores").unit(), None);
    assert_eq!(calibration_rows(&root.constants), ["7", "A1"]);
    assert_eq!(names::<Stack>().next(), Some("root"));
    assert_eq!(builtin::<Stack>("branch"), None);
}

#[test]
fn a_base_gives_what_a_file_leaves_out() {
    let leaf = builtin::<Stack>("leaf").unwrap();
    assert_eq!((leaf.cores, leaf.clock_hz), (6, 1e9));
    assert_eq!(leaf.error, None, "an error is no file's but its own");
    assert_eq!(fact(leaf, "cores").source, "another manual");
    assert_eq!(fact(leaf, "clock_hz").source, "two rows");
    // A file over a file over a file. A value that the user's file gives has no stated origin.
    let text = "name = 'mine'\nsummary = 'x'\nbase = 'leaf'\nclock_hz = 2e9\nspare_ns = 5";
    let mine: Stack = from_toml(text, "mine.toml").unwrap();
    assert_eq!((mine.cores, mine.clock_hz, mine.spare_ns), (6, 2e9, 5.0));
    assert!(fact(&mine, "clock_hz").is(Origin::Set));
    assert_eq!(calibration_rows(&mine.constants), ["A1"]);
    // A user's file may have the same name and path as its base.
    let text = "name = 'leaf'\nsummary = 'x'\nbase = 'leaf'";
    assert_eq!(from_toml::<Stack>(text, "leaf").unwrap().cores, 6);
}

#[test]
fn bases_that_lead_in_a_circle_are_refused() {
    let circle = |base: &str| {
        let text = format!("name = 'x'\nsummary = 'x'\nbase = '{base}'");
        from_toml::<Stack>(&text, "x.toml").unwrap_err().to_string()
    };
    assert_eq!(
        circle("itself"),
        "itself: `base` leads in a circle: itself → itself; one of them must stand alone"
    );
    assert_eq!(
        circle("hen"),
        "egg: `base` leads in a circle: hen → egg → hen; one of them must stand alone"
    );
    let own = read::builtin::<Stack>("itself").unwrap_err().to_string();
    assert_eq!(own, circle("itself"));
}

#[test]
fn files_are_refused_with_file_key_and_remedy() {
    for (body, words) in [
        ("cores =", "TOML parse error at line 4"),
        ("core = 4", "no constant `core`; did you mean `cores`?"),
        (
            "[cores]\nvalues = 4",
            "no constant `cores.values`; a value has value, unit, source, note, origin, rows",
        ),
        ("clock_mhz = 900", "did you mean `clock_hz`? It is in Hz"),
        (
            "sponge_size = 1",
            "no constant `sponge_size`; known are cores, memory.bytes, clock_hz, mode, spare_ns, and kernel.NAME.FIELD with call_cycles",
        ),
        ("memory = 4", "`memory` = 4: expected a table of constants"),
        (
            "[memory]\nbyte = 4096",
            "no constant `memory.byte`; did you mean `memory.bytes`?",
        ),
        ("[kernel.x]\nspeed = 1", "no constant `kernel.x.speed`"),
        (
            "[kernel]\nx = 1",
            "`kernel.x` = 1: expected a table of constants",
        ),
        (
            "[kernel.x]\ncall_cycles = -1",
            "`kernel.x.call_cycles` = -1: expected a number from 0 to 1000000 cycles",
        ),
        (
            "cores = 65",
            "`cores` = 65: expected a whole number from 1 to 64",
        ),
        (
            "cores = 2.5",
            "`cores` = 2.5: expected a whole number from 1 to 64",
        ),
        (
            "cores = 'four'",
            "`cores` = \"four\": expected a whole number",
        ),
        (
            "clock_hz = nan",
            "`clock_hz` = nan: expected a number from 1000000 to 10000000000 Hz (it melts)",
        ),
        (
            "mode = 'medium'",
            "`mode` = \"medium\": expected fast or slow",
        ),
        ("error = 2", "`error` = 2: expected a number from 0 to 1"),
        ("[cores]\nsource = 's'", "`cores.value` is missing"),
        (
            "[cores]\nvalue = 4\norigin = 'derived'",
            "`cores.source` is missing; say where the value comes from",
        ),
        ("[cores]\nvalue = 4", "`cores.source` is missing"),
        (
            "[cores]\nvalue = 4\nsource = 4",
            "`cores.source` = 4: expected a text",
        ),
        (
            "[cores]\nvalue = 4\nsource = 's'\norigin = 'felt'",
            "`cores.origin` = \"felt\": expected published, derived, fitted or assumed",
        ),
        (
            "[cores]\nvalue = 4\nsource = 's'\norigin = 'set'",
            "`cores.origin` = \"set\"",
        ),
        (
            "[cores]\nvalue = 4\nsource = 's'\norigin = 'fitted'",
            "`cores.rows` is missing",
        ),
        (
            "[cores]\nvalue = 4\nsource = 's'\norigin = 'derived'\nrows = ['A']",
            "no other constant has rows",
        ),
        (
            "[cores]\nvalue = 4\nsource = 's'\norigin = 'fitted'\nrows = [[]]",
            "a list of ids of rows",
        ),
        (
            "[clock_hz]\nvalue = 900\nunit = 'MHz'\nsource = 's'",
            "`clock_hz.unit` = \"MHz\": expected \"Hz\"",
        ),
        (
            "[cores]\nvalue = 4\nunit = 'bytes'\nsource = 's'",
            "`cores.unit` = \"bytes\": expected no unit",
        ),
    ] {
        let error = refused(body);
        assert!(error.contains(words), "{body}: {error}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let error = |text: &str| from_toml::<Stack>(text, "x.toml").unwrap_err().to_string();
    let head = "name = 'x'\nsummary = 'x'\n";
    let missing = error(&format!("{head}cores = 4"));
    assert!(missing.contains("`memory.bytes` is missing") && missing.contains("base = \"root\""));
    assert!(error("base = 'root'").contains("`name` is missing; add name = "));
    assert!(error("name = 'x'\nbase = 'root'").contains("`summary` is missing; add summary = "));
    assert!(error("name = ''").contains("a name of 1 to 64 bytes"));
    assert!(error(&format!("{head}base = 'roots'")).contains("expected one of root, leaf, "));
    assert!(error(&format!("{head}base = 4")).contains("`base` = 4: expected one of root"));
}

#[test]
fn changes_are_recorded_or_change_nothing() {
    let before = builtin::<Stack>("root").unwrap();
    let mut stack = before.clone();
    set(&mut stack, " cores = 8 ").unwrap();
    set(&mut stack, "kernel.add.x.call_cycles=2.5").unwrap();
    set(&mut stack, "m=slow").unwrap();
    assert_eq!((stack.cores, &*stack.mode), (8, "slow"));
    assert_eq!(stack.kernels["add.x"], 2.5);
    let cores = fact(&stack, "cores");
    assert!(cores.is(Origin::Set) && cores.source == "--set");
    assert_eq!(cores.value, Datum::Number(8.0));
    assert_eq!(fact(&stack, "mode").value.number(), None);
    for (change, words) in [
        (
            "cores",
            "--set: `cores` has no `=`; write key=value, as in cores=NUMBER",
        ),
        (
            "coers=4",
            "--set: no constant `coers`; did you mean `cores`?",
        ),
        ("clock_ghz=1", "did you mean `clock_hz`? It is in Hz"),
        ("clock=1e9", "did you mean `clock_hz`?"),
        (
            "cores=0",
            "`cores` = 0: expected a whole number from 1 to 64",
        ),
        ("cores=inf", "`cores` = inf"),
        ("mode=4", "expected fast or slow"),
        ("kernel.add.calls=4", "no constant `kernel.add.calls`"),
        ("kernel..call_cycles=4", "no constant"),
        ("name=x", "no constant `name`"),
        ("=", "no constant ``"),
    ] {
        let mut stack = before.clone();
        let error = set(&mut stack, change).unwrap_err().to_string();
        assert!(error.contains(words), "{change}: {error}");
        assert_eq!(stack, *before, "{change}");
    }
    let long = "x".repeat(10_000);
    let error = set(&mut stack, &format!("{long}=1")).unwrap_err();
    assert!(error.to_string().len() < 400);
}

/// The values of a file or a change, each left out or given.
fn values() -> impl Strategy<Value = [Option<u32>; 3]> {
    let value = || proptest::option::of(1024_u32..64_000);
    (proptest::option::of(1_u32..65), value(), value()).prop_map(|(a, b, c)| [a, b, c])
}

const NAMES: [&str; 3] = ["cores", "memory.bytes", "spare_ns"];

fn lines(values: &[Option<u32>; 3]) -> String {
    let given = NAMES.iter().zip(values);
    let given = given.filter_map(|(name, value)| value.map(|value| format!("{name} = {value}\n")));
    given.collect()
}

fn numbers(stack: &Stack) -> [f64; 3] {
    [
        f64::from(stack.cores),
        stack.memory_bytes as f64,
        stack.spare_ns,
    ]
}

proptest! {
    /// Every value, and its source, is that of the last statement: a change, else the file, else its base.
    #[test]
    fn the_last_word_counts(file in values(), changes in values()) {
        let base = builtin::<Stack>("leaf").unwrap();
        let text = format!("name = 'x'\nsummary = 'x'\nbase = 'leaf'\n{}", lines(&file));
        let mut stack: Stack = from_toml(&text, "x.toml").unwrap();
        for change in lines(&changes).lines() {
            set(&mut stack, change).unwrap();
        }
        let of_base = numbers(base);
        for (i, found) in numbers(&stack).into_iter().enumerate() {
            let said = changes[i].or(file[i]).map(f64::from);
            prop_assert_eq!(found, said.unwrap_or(of_base[i]), "{}", NAMES[i]);
            let of = |stack: &Stack| stack.constants.iter().find(|f| f.key == NAMES[i]).cloned();
            match (changes[i], file[i]) {
                (Some(_), _) => prop_assert_eq!(of(&stack).unwrap().source, "--set"),
                (_, Some(_)) => prop_assert!(of(&stack).unwrap().is(Origin::Set)),
                _ => prop_assert_eq!(of(&stack), of(base)),
            }
        }
        let keys: std::collections::BTreeSet<&str> =
            stack.constants.iter().map(|fact| fact.key.as_str()).collect();
        prop_assert_eq!(keys.len(), stack.constants.len(), "each key once");
    }

    /// For any text in a file or a change, the result is a record or an error.
    #[test]
    fn no_text_panics(text in "[a-z_.=\"'\\[\\]{}0-9\n ]{0,60}") {
        let _ = from_toml::<Stack>(&text, "x.toml");
        let over = format!("name = 'x'\nsummary = 'x'\nbase = 'root'\n{text}");
        let _ = from_toml::<Stack>(&over, "x.toml");
        let _ = set(&mut builtin::<Stack>("root").unwrap().clone(), &text);
    }
}
