use super::*;

fn kind(bytes: &[u8]) -> Option<String> {
    match check_weights(bytes, Path::new("m.gguf")) {
        Ok(()) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn every_kind_is_told_by_its_beginning() {
    let imatrix = [
        &2i32.to_le_bytes(),
        &19i32.to_le_bytes(),
        b"blk.0.attn_q.weight".as_slice(),
    ]
    .concat();
    let tar = [&[b'x'; 257], b"ustar\0".as_slice()].concat();
    for (bytes, said) in [
        (
            b"version https://git-lfs.github.com/spec/v1\n".as_slice(),
            "a Git LFS pointer",
        ),
        (
            b"version https://hawser.github.com/spec/v1\n",
            "a Git LFS pointer",
        ),
        (b"# xet version 0\n", "a Xet pointer"),
        (b"\xef\xbb\xbf\r\n<!doctype HTML>", "a web page"),
        (b"<HTML lang=en>", "a web page"),
        (b"<!-- saved from x -->\n<html>", "a web page"),
        (
            b"<?xml version=\"1.0\"?><Error><Code>AccessDenied",
            "an XML text",
        ),
        (
            b"{\"error\":\"Repository not found\"}",
            "a server's error message",
        ),
        (
            b"PK\x03\x04\0\0\0\0archive/data.pkl",
            "a PyTorch checkpoint",
        ),
        (b"PK\x03\x04\0\0\0\0model.gguf", "a ZIP archive"),
        (b"\x1f\x8b\x08\0", "a gzip archive"),
        (b"\xfd7zXZ\0\0", "an xz archive"),
        (b"\x28\xb5\x2f\xfd\0", "a Zstandard archive"),
        (b"BZh91AY&SY\0", "a bzip2 archive"),
        (b"7z\xbc\xaf\x27\x1c\0", "a 7-Zip archive"),
        (b"Rar!\x1a\x07\0", "a RAR archive"),
        (&tar, "a tar archive"),
        (b"\x80\x02}q\0", "a Python pickle"),
        (b"\x80\x02\x8a\x0al\xfc", "a Python pickle"),
        (b"\x93NUMPY\x01\0", "a NumPy array"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"tjgg\x03\0\0\0", "an old GGJT file"),
        (b"lmgg\0\x7d\0\0", "an old GGML file"),
        (b"fmgg\x01\0\0\0", "an old GGMF file"),
        (b"algg\x01\0\0\0", "a LoRA adapter"),
        (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
        (b"RKLLM\0", "an RKLLM model"),
        (b"RKNN\0\0", "an RKNN model"),
        (b"MZqFpD='\n", "a llamafile"),
        (b"\x7fELF\x02", "a program"),
        (&imatrix, "an importance matrix"),
        (b"\x08\x08\x12\x07pytorch\x1a", "an ONNX"),
        (&[0; 4096], "a file of zeros"),
        (b"", "an empty file"),
        (
            b"Access to model X is restricted",
            "a text that begins with",
        ),
    ] {
        let found = kind(bytes).unwrap_or_default();
        assert!(
            found.contains(said),
            "{:?}: {found:?}",
            bytes.escape_ascii().to_string()
        );
        assert!(found.contains("m.gguf: this is a"), "{found}");
    }
}

#[test]
fn models_are_taken_for_nothing_else() {
    assert_eq!(kind(b"GGUF\x03\0\0\0"), None);
    // Big-endian: its reader says so.
    assert_eq!(kind(b"FUGG"), None);
    assert_eq!(kind(b"\x01\x02\xff\0 unknown"), None);
    // Lengths of headers with the first bytes of gzip, of a pickle and of an ONNX model.
    for length in [0x8b1f_u64, 0x7d_0280, 0x12_0808, 2] {
        let bytes = [&length.to_le_bytes(), b"{\"w\":{}}".as_slice()].concat();
        assert_eq!(kind(&bytes), None, "{length:#x}");
    }
}
