use super::*;
use crate::tile::TileWork;

#[test]
fn builtin_profiles_parse_and_cite() {
    for name in Profile::builtin_names() {
        let profile = Profile::builtin(name).expect(name);
        assert_eq!(profile.name, name);
        let scopes = [ErrorScope::Kernel, ErrorScope::Prompt, ErrorScope::Token];
        let stated = scopes.map(|scope| profile.error_of(scope));
        assert!(stated.iter().any(Option::is_some), "{name} states no error");
        for constant in &profile.constants {
            assert!(!constant.is(Origin::Set), "{name}: {}", constant.key);
            assert!(!constant.source.is_empty(), "{name}: {}", constant.key);
        }
    }
    let rows = |of: fn(&Profile) -> Vec<&str>| -> std::collections::BTreeSet<String> {
        (Profile::builtin_names().filter_map(Profile::builtin))
            .flat_map(|p| of(&p).into_iter().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    };
    let all = rows(Profile::calibration_rows);
    let models = rows(Profile::model_calibration_rows);
    let kernels: Vec<&String> = all.difference(&models).collect();
    assert!(
        kernels.len() <= 25,
        "{} of kernels: {kernels:?}",
        kernels.len()
    );
    assert!(models.len() <= 30, "{} of models: {models:?}", models.len());
}

#[test]
fn cycles_add_up() {
    let cycles = Cycles {
        call_cycles: 10.0,
        macs_per_cycle: 4.0,
        cycles_per_element: 0.5,
    };
    let work = TileWork {
        macs: 8,
        elements: 6,
        bytes: 99,
    };
    assert_eq!(cycles.of(work), 15.0);
    assert_eq!(Cycles::default().of(work), 0.0);
}

#[test]
fn constants_can_be_set_and_are_checked() {
    let mut profile = Profile::builtin(Profile::DEFAULT).expect("built in");
    profile.set("ddr.read_gb_per_s = 60").expect("a known key");
    assert_eq!(profile.ddr.read_gb_per_s, 60.0);
    profile
        .set("kernel.matmul_bf16_f32.mine.macs_per_cycle=200")
        .expect("a kernel");
    let mine = profile
        .kernel("matmul_bf16_f32.mine")
        .copied()
        .unwrap_or_default();
    assert_eq!(mine.macs_per_cycle, 200.0);
    for (text, words) in [
        (
            "ddr.red=3",
            "no constant `ddr.red`; known are ddr.read_gb_per_s, ",
        ),
        (
            "ddr.red=3",
            ", and kernel.NAME.FIELD with call_cycles, macs_per_cycle or cycles_per_element",
        ),
        ("ddr.read_gb_pers=3", "did you mean `ddr.read_gb_per_s`?"),
        (
            "ddr.read_mb_per_s=3",
            "did you mean `ddr.read_gb_per_s`? It is in GB/s",
        ),
        ("ddr.channels=1.5", "expected a whole number from 1 to 16"),
        (
            "ddr.read_gb_per_s=fast",
            "expected a number from 0.001 to 1000000 GB/s",
        ),
        ("ddr.read_gb_per_s=-1", "expected a number from"),
        ("kernel.x.speed=3", "no constant `kernel.x.speed`"),
        (
            "ddr.read_gb_per_s",
            "write key=value, as in ddr.read_gb_per_s=NUMBER",
        ),
    ] {
        let error = profile.set(text).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn files_are_checked() {
    let file =
        |body: &str| format!("name = \"x\"\nsummary = \"y\"\nbase = \"air-strix-2026\"\n{body}");
    let read = |body: &str| Profile::from_toml(&file(body), "x.toml");
    let mine = read("[ddr]\nread_gb_per_s = 70").expect("a value without origin");
    assert_eq!(mine.ddr.read_gb_per_s, 70.0);
    for (body, words) in [
        (
            "[ddr]\nread_gb_per_s = { value = 3, origin = \"fitted\", source = \"s\" }",
            "rows",
        ),
        (
            "[ddr]\nread_gb_per_s = { value = 3, origin = \"guessed\" }",
            "`ddr.read_gb_per_s.origin` = \"guessed\": expected published, derived, fitted or assumed",
        ),
        (
            "[ddr]\nread_gb_per_s = { value = 3, origin = \"published\" }",
            "`ddr.read_gb_per_s.source` is missing",
        ),
        ("[ddr]\nspeed = 3", "no constant `ddr.speed`"),
        ("ddr = 3", "a table of constants"),
        ("[ddr", "x.toml"),
    ] {
        let error = read(body).expect_err(body).to_string();
        assert!(error.contains(words), "{body}: {error}");
    }
    let missing = Profile::from_toml("name = \"x\"\nsummary = \"y\"", "x.toml");
    assert!(
        missing
            .expect_err("no base")
            .to_string()
            .contains("is missing")
    );
    let base = "name = \"x\"\nsummary = \"y\"\nbase = \"none\"";
    assert!(
        Profile::from_toml(base, "x.toml")
            .expect_err("no such base")
            .to_string()
            .contains("one of")
    );
}

#[test]
fn what_is_changed_by_hand_states_no_error() {
    let machine = crate::Machine::npu2();
    let mut profile = Profile::builtin(Profile::DEFAULT).expect("built in");
    let label = |profile: &Profile, machine: &crate::Machine| {
        profile.provenance(ErrorScope::Kernel, machine).to_string()
    };
    assert!(profile.error_of(ErrorScope::Prompt) > profile.error_of(ErrorScope::Kernel));
    assert!(label(&profile, &machine).contains('±'));
    let mut other = machine.clone();
    other.set("cols=4").expect("known");
    assert!(label(&profile, &other).contains("error unknown"));
    profile.set("ddr.read_gb_per_s=60").expect("known");
    assert!(label(&profile, &machine).contains("error unknown"));
    assert_eq!(profile.error_of(ErrorScope::Prompt), None);
}
