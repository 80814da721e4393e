use super::*;

const TEXT: &str = include_str!("../../testdata/gemv.tcp");

#[test]
fn text_and_container_come_back() {
    let program = parse(TEXT).unwrap();
    let printed = print(&program);
    assert_eq!(parse(&printed).unwrap(), program);
    assert_eq!(print(&parse(&printed).unwrap()), printed);
    let container = program.to_container().unwrap();
    let bytes = container.encode();
    let back = millrace_npu::Container::decode(&bytes).unwrap();
    assert_eq!(Program::from_container(&back).unwrap(), program);
    assert_eq!(container.slots()[0].name, "w");
}

#[test]
fn lines_that_make_no_sense_are_named() {
    let error = |from: &str, to: &str| {
        assert!(TEXT.contains(from), "{from}");
        parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert!(error("bf16 static", "bf17 static").contains("expected an element type, found `bf17`"));
    assert!(error("outer x_trf", "outer y_trf").contains("no tensor is named `y_trf`"));
    assert!(error("axis K = 256", "axis K = 0").contains("sizes are from 1"));
    assert!(error("packet m![1]", "packet 1").contains("expected `m![…]`"));
    assert!(error("main gemv", "main 1gemv").contains("expected a name"));
    assert!(error("tcp 1", "tcp 2").contains("expected `1`, found `2`"));
    assert!(error("    commit y", "    commits y").contains("`commits` is not a stage"));
    let cut = &TEXT[..TEXT.len() - 3];
    assert!(parse(cut).unwrap_err().to_string().contains("ends before"));
}

#[test]
fn cut_and_changed_texts_do_not_panic() {
    for at in (0..TEXT.len()).filter(|&at| TEXT.is_char_boundary(at)) {
        let _ = parse(&TEXT[..at]);
        let mut bytes = TEXT.as_bytes().to_vec();
        bytes[at] = bytes[at].wrapping_add(1) & 0x7f;
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}
