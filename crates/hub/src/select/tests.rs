use super::*;

fn listing(names: &[&str]) -> Vec<RepoFile> {
    let listed = |name: &&str| RepoFile {
        name: (*name).to_owned(),
        size_bytes: 1,
        hash: None,
    };
    names.iter().map(listed).collect()
}

fn pick(names: &[&str], reference: &str) -> Result<Vec<String>, Error> {
    let listed = listing(names);
    let reference = Reference::parse(reference).expect("a reference");
    let selection = select(&listed, &reference)?;
    Ok(selection
        .files
        .iter()
        .map(|&i| listed[i].name.clone())
        .collect())
}

const QUANTS: [&str; 6] = [
    "README.md",
    "M-1B-Q8_0.gguf",
    "M-1B-Q4_K_M.gguf",
    "M-1B-UD-Q4_K_XL.gguf",
    "M-1B-IQ4_NL.gguf",
    "mmproj-F16.gguf",
];

#[test]
fn a_quantisation_is_matched_at_the_end_of_the_name() {
    for (reference, file) in [
        ("a/b", "M-1B-Q4_K_M.gguf"),
        ("a/b:q4_k_m", "M-1B-Q4_K_M.gguf"),
        ("a/b:Q8_0", "M-1B-Q8_0.gguf"),
        ("a/b:UD-Q4_K_XL", "M-1B-UD-Q4_K_XL.gguf"),
        ("a/b:Q4_K_XL", "M-1B-UD-Q4_K_XL.gguf"),
        ("a/b:M-1B-IQ4_NL.gguf", "M-1B-IQ4_NL.gguf"),
    ] {
        assert_eq!(
            pick(&QUANTS, reference).expect(reference),
            [file],
            "{reference}"
        );
    }
}

#[test]
fn part_of_a_quantisation_is_not_one() {
    // `K_M` would match by suffix, `4_NL` is the tail of `IQ4_NL`, F16 only names the projector.
    for wrong in ["K_M", "4_NL", "F16", "Q5_K_M"] {
        let error = pick(&QUANTS, &format!("a/b:{wrong}")).expect_err(wrong);
        let Error::NoSuchPick { available, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(available, ["IQ4_NL", "Q4_K_M", "Q8_0", "Q4_K_XL"]);
    }
}

#[test]
fn shards_come_together_in_order_and_from_folders() {
    let names = [
        "Q8_0/M-00002-of-00002.gguf",
        "Q8_0/M-00001-of-00002.gguf",
        "Q4_0/M-Q4_0-00001-of-00001.gguf",
    ];
    let q8 = ["Q8_0/M-00001-of-00002.gguf", "Q8_0/M-00002-of-00002.gguf"];
    assert_eq!(pick(&names, "a/b:Q8_0").expect("folder name"), q8);
    assert_eq!(
        pick(&names, "a/b").expect("preferred"),
        ["Q4_0/M-Q4_0-00001-of-00001.gguf"]
    );
}

#[test]
fn a_split_model_is_complete_with_all_its_shards() {
    let reference = Reference::parse("a/b").expect("a reference");
    for (names, complete) in [
        (vec!["M-00001-of-00002.gguf", "M-00002-of-00002.gguf"], true),
        (vec!["M-00001-of-00002.gguf"], false),
    ] {
        let listed = listing(&names);
        let selection = select(&listed, &reference).expect("selected");
        assert_eq!(selection.is_complete(&listed, &|_| None), complete);
    }
}

#[test]
fn a_folder_is_weights_and_companions_small_files_first() {
    let names = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "consolidated.safetensors",
        "original/params.json",
        "config.json",
        "tokenizer.json",
        "model.safetensors.index.json",
        "pytorch_model.bin",
    ];
    let files = pick(&names, "a/b").expect("folder");
    assert_eq!(
        files,
        [
            "config.json",
            "model.safetensors.index.json",
            "tokenizer.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ]
    );
    let listed = listing(&names[1..]);
    let selection =
        select(&listed, &Reference::parse("a/b").expect("a reference")).expect("folder");
    let index = br#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    assert!(
        !selection.is_complete(&listed, &|_| Some(index.to_vec())),
        "first shard is missing"
    );
}

#[test]
fn nothing_to_choose_and_too_much_to_choose_are_errors() {
    assert!(matches!(
        pick(&["README.md"], "a/b"),
        Err(Error::NoWeights { .. })
    ));
    let odd = ["one.gguf", "two.gguf"];
    let error = pick(&odd, "a/b").expect_err("ambiguous");
    assert!(
        matches!(&error, Error::Ambiguous { available, .. } if *available == odd),
        "{error}"
    );
    assert_eq!(
        pick(&["w.gguf", "model.safetensors"], "a/b:safetensors").expect("folder"),
        ["model.safetensors"]
    );
}

#[test]
fn names_that_leave_the_snapshot_are_unsafe() {
    for (name, safe) in [
        ("a/b.gguf", true),
        ("../x", false),
        ("a/../../x", false),
        ("/etc/passwd", false),
        ("a//b", false),
        ("a\\b", false),
        ("C:x", false),
        ("", false),
    ] {
        assert_eq!(is_safe_path(name), safe, "{name:?}");
    }
}

#[test]
fn a_quantisation_is_a_whole_word_anywhere() {
    for (name, labels, picked, refused) in [
        (
            "Tiny-IMAT-IQ4_XS-Q8nextn",
            "IQ4_XS",
            vec!["IQ4_XS", "iq4_xs"],
            vec!["Q8", "Q4_XS", "Q8NEXTN_"],
        ),
        (
            "Tiny-Q4_K_M-imat",
            "Q4_K_M",
            vec!["Q4_K_M", "imat"],
            vec!["Q4_K", "K_M"],
        ),
        (
            "Tiny-Q4_K_M_imat",
            "Q4_K_M",
            vec!["Q4_K_M"],
            vec!["Q4_K", "Q4"],
        ),
        ("Tiny.q5_k_m", "Q5_K_M", vec!["Q5_K_M"], vec!["Q5_K", "Q5"]),
        ("tiny_q5_0", "Q5_0", vec!["Q5_0"], vec!["0", "Q5"]),
        ("Tiny-Q8_0-2.54bpw", "Q8_0", vec!["Q8_0"], vec!["Q8"]),
        (
            "Tiny-UD-Q4_K_XL",
            "Q4_K_XL",
            vec!["UD-Q4_K_XL", "Q4_K_XL"],
            vec!["Q4_K", "XL"],
        ),
        ("Tiny.MXFP4", "MXFP4", vec!["mxfp4"], vec!["FP4"]),
        (
            "IQ2_XXS/Tiny-00001-of-00001",
            "IQ2_XXS",
            vec!["IQ2_XXS"],
            vec!["IQ2"],
        ),
    ] {
        let file = format!("{name}.gguf");
        let listed = listing(&[file.as_str(), "Other-BF16.gguf"]);
        assert!(
            available(&gguf_models(&listed))
                .iter()
                .any(|label| label == labels),
            "{name}"
        );
        for quant in picked {
            let reference = format!("a/b:{quant}");
            let found = pick(&[file.as_str(), "Other-BF16.gguf"], &reference);
            assert_eq!(found.expect(&reference), [file.as_str()], "{name}");
        }
        for quant in refused {
            let reference = format!("a/b:{quant}");
            let error = pick(&[file.as_str(), "Other-BF16.gguf"], &reference);
            assert!(
                matches!(error, Err(Error::NoSuchPick { .. })),
                "{reference} in {name}"
            );
        }
    }
}

/// Every listed label can be typed, and picks the model that it names.
#[test]
fn every_label_picks_its_own_file() {
    let names = [
        "M-Q4_K_M.gguf",
        "M-Q4_K_M-imat.gguf",
        "M-Q6_K-Q8_0out.gguf",
        "M-IQ4_XS-Q8_0.gguf",
        "M-Q8_0.gguf",
        "M.gguf",
    ];
    let labels = available(&gguf_models(&listing(&names)));
    assert!(labels.contains(&"Q6_K".to_owned()) && labels.contains(&"IQ4_XS".to_owned()));
    let mut picked: Vec<String> = labels
        .iter()
        .flat_map(|label| pick(&names, &format!("a/b:{label}")).expect(label))
        .collect();
    picked.sort();
    let mut all = names.to_vec();
    all.sort_unstable();
    assert_eq!(picked, all, "{labels:?}");
    // A word at the end counts more than one within the name.
    assert_eq!(
        pick(&names, "a/b:Q4_K_M").expect("found"),
        ["M-Q4_K_M.gguf"]
    );
    assert_eq!(pick(&names, "a/b").expect("preferred"), ["M-Q4_K_M.gguf"]);
}

/// An index beside the one whole file is out of date.
#[test]
fn the_whole_file_completes_a_folder() {
    let listed = listing(&["config.json", "model.safetensors", INDEX]);
    let selection = select(&listed, &Reference::parse("a/b").expect("a reference"));
    let index = br#"{"weight_map":{"a":"model-00001-of-00002.safetensors"}}"#;
    assert!(
        selection
            .expect("folder")
            .is_complete(&listed, &|_| Some(index.to_vec()))
    );
}
