//! Models on several machines, as far as one process can test them.

use crate::run::{FAILED, OK, USAGE, finish, millrace};
use tempfile::tempdir;

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_refuses_it_and_says_how_to_get_it() {
    let home = tempdir().unwrap();
    let requests = home.path().join("in.jsonl");
    let request = r#"{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "demo", "prompt": "x"}}"#;
    std::fs::write(&requests, request).unwrap();
    let requests = requests.to_str().unwrap();
    let lines: [&[&str]; 6] = [
        &["run", "demo", "x"],
        &["bench", "demo"],
        &["perplexity", "demo", "no-file.txt"],
        &["profile", "demo"],
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

/// A model without files is planned by its shape and type: does a number of machines with a given memory hold it?
#[test]
fn a_geometry_is_planned_for_machines_without_its_file() {
    let home = tempdir().unwrap();
    let info = |options: &str| {
        let mut command = millrace(home.path());
        finish(command.arg("info").args(options.split(' ')))
    };
    let of_70b = "--geometry llama-3.1-70b --type Q4_K_M --memory-gb 16";
    // The exit code says whether it fits.
    let plan = |options: &str, code: i32| {
        info(&format!("{of_70b} --json {options}"))
            .expect(code)
            .json()
    };
    let four = plan("--ranks 4", OK);
    assert_eq!(four["geometry"], "llama-3.1-70b");
    assert_eq!(four["ranks"]["fits"], true);
    assert_eq!(four["ranks"]["memory_bytes"], 16_000_000_000_u64);
    let ranks = four["ranks"]["ranks"].as_array().unwrap();
    let weights: u64 = ranks
        .iter()
        .map(|rank| rank["weight_bytes"].as_u64().unwrap())
        .sum();
    // 70.6 billion weights at 4.8 bits, less the token table.
    assert!(
        (40_000_000_000..44_000_000_000).contains(&weights),
        "{weights}"
    );
    let two = plan("--ranks 2", FAILED);
    assert_eq!(two["ranks"]["fits"], false);
    let rows = two["ranks"]["predictions"].as_array().unwrap();
    let fits = |n: u64| rows.iter().find(|row| row["n_ranks"] == n).unwrap()["fits"].clone();
    assert_eq!(
        (fits(1), fits(4), fits(16)),
        (false.into(), true.into(), true.into())
    );
    // A context too long for any machine.
    let long = plan("--ranks 4 -c 131072", FAILED);
    assert_eq!(long["ranks"]["fits"], false);

    let text = info(&format!("{of_70b} --ranks 4")).expect(OK).stdout;
    assert!(text.contains("fits: rank"), "{text}");
    let text = info(&format!("{of_70b} --ranks 2")).expect(FAILED).stdout;
    assert!(
        text.contains("does not fit: rank") && text.contains("4 machines would hold it"),
        "{text}"
    );
    let refused = info("--geometry llama-3.1-70b").expect(USAGE);
    assert!(refused.stderr.contains("--ranks N"), "{}", refused.stderr);
    info("demo --memory-gb 16").expect(USAGE);
    info("demo --geometry llama-3.1-70b --ranks 2").expect(USAGE);
}

#[test]
fn other_machines_are_predicted_from_what_was_measured() {
    let home = tempdir().unwrap();
    // Milliseconds per token on `n_ranks`, and the plan.
    let predict = |n_ranks: &str, options: &str| {
        let mut command = millrace(home.path());
        let command = command.args(["info", "demo", "--json", "--ranks", n_ranks]);
        let plan = finish(command.args(options.split(' '))).expect(OK).json()["ranks"].clone();
        let rows = plan["predictions"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["n_ranks"].as_u64() == n_ranks.parse().ok());
        let ms = row.unwrap()["token_ms"][0].as_f64().unwrap();
        (ms, plan)
    };
    let free = "--gather-us=0.001 --message-us=0 --memory-gb-per-s=1e9";
    let fast = "--link-gbit-per-s=1e9,1";
    let of_two = |us: f64, n_others: f64| us + n_others * 2.0;
    for (n_ranks, gather_us) in [
        ("1", 0.0),
        ("2", of_two(100.0, 0.0)),
        ("3", of_two(100.0, 1.0)),
        ("16", of_two(100.0, 14.0)),
    ] {
        let (base_ms, plan) = predict(n_ranks, &format!("{free} {fast}"));
        assert!(base_ms < 0.001, "{base_ms}");
        let added = |options: &str| predict(n_ranks, options).0 - base_ms;
        // Undivided time is added on any number of machines.
        let ms = added(&format!("{free} {fast} --undivided-us=500"));
        assert!((ms - 0.5).abs() < 1e-9, "{n_ranks}: {ms}");
        // Each gather, and the command before them, costs more with more machines, and nothing with one.
        let ms = added(&format!(
            "--gather-us=100 --message-us=1 --memory-gb-per-s=1e9 {fast}"
        ));
        let rows = plan["ranks"].as_array().unwrap();
        let n_exchanges = rows[0]["gathers_per_token"].as_f64().unwrap() + 1.0;
        let expected = n_exchanges * gather_us / 1e3;
        assert!((ms - expected).abs() < 0.001, "{n_ranks}: {ms}, {expected}");
        // A gigabit per second carries 125 bytes in a microsecond, and the rank with the most traffic sets the time.
        let ms = added(&format!("{free} --link-gbit-per-s=1"));
        let moved = ["sent_bytes_per_token", "received_bytes_per_token"]
            .into_iter()
            .flat_map(|field| rows.iter().map(move |row| row[field].as_u64().unwrap()));
        let expected = moved.max().unwrap() as f64 / 125e3;
        assert!((ms - expected).abs() < 1e-6, "{n_ranks}: {ms}, {expected}");
    }
}

#[test]
fn profile_shows_what_each_rank_of_a_process_did() {
    let home = tempdir().unwrap();
    let profile = |options: &[&str]| {
        let mut command = millrace(home.path());
        finish(
            command
                .args(["profile", "demo", "--prompt-tokens", "8", "-n", "3"])
                .args(options),
        )
    };
    let plan = |n_ranks: &str| {
        let mut command = millrace(home.path());
        let command = command.args(["info", "demo", "--json", "--ranks", n_ranks]);
        finish(command).expect(OK).json()["ranks"]["ranks"].clone()
    };
    for n_ranks in ["1", "3"] {
        let document = profile(&["--ranks", n_ranks, "--json"]).expect(OK).json();
        let plan = plan(n_ranks);
        assert_eq!(document["n_ranks"].to_string(), n_ranks);
        let rows = document["decode"]["ranks"].as_array().unwrap();
        assert_eq!(rows.len(), plan.as_array().unwrap().len());
        for (row, plan) in rows.iter().zip(plan.as_array().unwrap()) {
            let each = |field: &str| row[field].as_u64().unwrap() as f64 / 3.0;
            assert_eq!(
                each("sent_bytes"),
                plan["sent_bytes_per_token"].as_f64().unwrap()
            );
            let received = plan["received_bytes_per_token"].as_f64().unwrap();
            assert_eq!(each("received_bytes"), received);
            assert_eq!(
                each("n_gathers"),
                plan["gathers_per_token"].as_f64().unwrap()
            );
            let parts = ["products_ns", "attention_ns", "sums_ns", "waiting_ns"];
            let sum: f64 = parts.iter().map(|part| each(part)).sum();
            assert!((sum - each("pass_ns")).abs() < 1.0, "{row}");
        }
        let link = &document["link"];
        assert_eq!(link.is_null(), n_ranks == "1");
        let predictor = &document["predictor"];
        assert!(predictor["memory_gb_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(predictor["gather_us"].is_null(), n_ranks == "1");
    }
    let text = profile(&["--ranks", "2"]).expect(OK).stdout;
    for part in [
        "demo on 2 ranks",
        "received",
        "millrace info demo --ranks N --memory-gb-per-s",
    ] {
        assert!(text.contains(part), "{text}");
    }
    for bad in [
        &["--ranks", "0"][..],
        &["--ranks", "2", "--timing-only"],
        &["--ranks", "2", "--features"],
    ] {
        profile(bad).expect(USAGE);
    }
}
