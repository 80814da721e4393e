use super::*;
use crate::lower::Mode;

/// A token sees itself and one key less than the window has. So a ring must have a masked row, for all numbers.
#[test]
fn a_ring_has_more_rows_than_its_window() {
    let features = Features::of(Mode::Int4);
    for (head_dim, n_kv_heads) in [(64, 8), (160, 8), (256, 1), (320, 4)] {
        for window in [1, 16, 40, 512, 1024, 4000] {
            let a = Attention {
                layer: 0,
                n_heads: n_kv_heads,
                n_kv_heads,
                head_dim,
                scale: 1.0,
                window: Some(window),
                chunked: false,
                softcap: None,
                sinks: None,
                slopes: None,
            };
            let n_rows = rows(&a, &Machine::npu2(), features, 1 << 20);
            assert!(n_rows > window as u64);
            let shape = shape(&a, 1, (n_rows, n_rows));
            assert_eq!(shape["window"], window as u64);
        }
    }
}

#[test]
fn buckets_hold_what_they_are_for() {
    for n_keys in [1, 512, 513, 768, 769, 1025, 4096, 100_000, u64::MAX] {
        let bucket = key_bucket(n_keys);
        assert!(bucket >= n_keys);
        let bounded = (512..=1 << 62).contains(&n_keys);
        assert!(!bounded || bucket <= n_keys + n_keys / 2);
        let bucket = token_bucket(n_keys);
        assert!(bucket >= n_keys);
        assert!(!bounded || bucket <= n_keys + n_keys / 4);
    }
    assert_eq!(
        [1, 600, 1025, 4096].map(token_bucket),
        [512, 640, 1280, 4096]
    );
    assert_eq!([1, 600, 900, 1025].map(key_bucket), [512, 768, 1024, 1536]);
    for n_keys in [1, 512, 513, 1025, 20_000, 100_001, u64::MAX] {
        let bucket = prompt_bucket(n_keys);
        assert!(bucket >= n_keys);
        let bounded = (512..=1 << 62).contains(&n_keys);
        assert!(!bounded || bucket <= n_keys + n_keys / 8);
    }
    let buckets = [1, 513, 1025, 4096, 10_240, 10_241].map(prompt_bucket);
    assert_eq!(buckets, [512, 576, 1152, 4096, 10_240, 11_264]);
}
