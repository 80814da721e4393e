//! Models on several machines, as far as one process goes.

use crate::run::{OK, USAGE, finish, millrace};
use tempfile::tempdir;

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_refuses_it_and_says_how_to_get_it() {
    let home = tempdir().unwrap();
    let requests = home.path().join("in.jsonl");
    let request = r#"{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "demo", "prompt": "x"}}"#;
    std::fs::write(&requests, request).unwrap();
    let requests = requests.to_str().unwrap();
    let lines: [&[&str]; 5] = [
        &["run", "demo", "x"],
        &["bench", "demo"],
        &["perplexity", "demo", "no-file.txt"],
        &["serve", "demo"],
        &["batch", requests, "--out", "out.jsonl", "--model", "demo"],
    ];
    for line in lines {
        let refused = finish(millrace(home.path()).args(line).arg("--mpi")).expect(USAGE);
        assert!(refused.stdout.is_empty(), "{line:?}");
        assert!(refused.stderr.contains("built without MPI"), "{line:?}");
        assert!(refused.stderr.contains("--features mpi"), "{line:?}");
    }
}

#[test]
fn info_plans_what_ranks_hold_and_exchange() {
    let home = tempdir().unwrap();
    let info = |options: &[&str]| {
        let mut command = millrace(home.path());
        finish(command.args(["info", "demo"]).args(options))
    };
    let alone = info(&["--json"]).expect(OK).json();
    assert!(alone["ranks"].is_null());
    let plan = info(&["--ranks", "2", "--json"]).expect(OK).json()["ranks"].clone();
    let ranks = plan["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    let sum = |field: &str| -> u64 { ranks.iter().map(|rank| rank[field].as_u64().unwrap()).sum() };
    // Every rank reads the norms.
    let weights = alone["memory"]["weights_bytes"].as_u64().unwrap();
    assert!(sum("weight_bytes") < weights + (64 << 10));
    assert_eq!(sum("sent_bytes_per_token"), sum("received_bytes_per_token"));
    assert!(ranks[0]["weight_bytes"].as_u64().unwrap() < weights * 2 / 3);
    let predictions = plan["predictions"].as_array().unwrap();
    let machines: Vec<u64> = predictions
        .iter()
        .map(|p| p["n_ranks"].as_u64().unwrap())
        .collect();
    assert_eq!(machines, [1, 2, 4, 8, 16]);
    // One machine exchanges nothing: its networks do not matter.
    let one = &predictions[0]["token_ms"];
    assert_eq!(one[0], one[1]);
    assert!(predictions[1]["token_ms"][0].as_f64() > predictions[1]["token_ms"][1].as_f64());
    let text = info(&["--ranks", "2"]).expect(OK).stdout;
    assert!(text.contains("2 ranks, a context of 512 tokens"), "{text}");
    for bad in [
        ["--ranks", "0"],
        ["--gather-us", "nan"],
        ["--memory-gb-per-s", "0"],
    ] {
        info(&bad).expect(USAGE);
    }
}
