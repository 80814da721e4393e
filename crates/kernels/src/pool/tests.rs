//! Tests of the pool.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::time::Instant;

fn counts(pool: &Pool, n_chunks: usize) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..n_chunks).map(|_| AtomicU32::new(0)).collect();
    pool.run(n_chunks, &|chunk| {
        counts[chunk].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicU32::into_inner).collect()
}

#[test]
fn every_chunk_runs_once() {
    for n_threads in [1, 2, 3, 8] {
        let pool = Pool::new(n_threads).expect("threads");
        assert_eq!(pool.n_threads(), n_threads);
        for n_chunks in [0, 1, 2, 3, 7, 64, 1000] {
            assert_eq!(
                counts(&pool, n_chunks),
                vec![1; n_chunks],
                "{n_threads} threads"
            );
        }
    }
}

#[test]
fn bad_counts_are_refused() {
    for asked in [0, MAX_THREADS + 1] {
        assert!(
            matches!(Pool::new(asked), Err(Error::ThreadCount { asked: found }) if found == asked)
        );
    }
}

/// Writes of a region are seen by the next, on whatever threads they run: a torn or late hand-over
/// would lose an increment.
#[test]
fn regions_follow_one_another() {
    let pool = Pool::new(4).expect("threads");
    let mut cells = vec![0u64; 64];
    for round in 0..3000u64 {
        // Gaps of different lengths reach spinning, yielding and parked workers.
        if round % 500 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let n_pieces = 1 + (round % 13) as usize;
        let piece = cells.len().div_ceil(n_pieces);
        pool.run_pieces(&mut cells, piece, &|_, cells| {
            for cell in cells {
                assert_eq!(*cell, round);
                *cell += 1;
            }
        });
    }
    assert!(cells.iter().all(|&cell| cell == 3000));
}

#[test]
fn nested_and_foreign_regions_run_on_their_own_thread() {
    let pool = Pool::new(3).expect("threads");
    let total = AtomicU32::new(0);
    let inner = |_| {
        let here = std::thread::current().id();
        pool.run(5, &|_| {
            assert_eq!(std::thread::current().id(), here);
            total.fetch_add(1, Ordering::Relaxed);
        });
    };
    pool.run(8, &inner);
    assert_eq!(total.load(Ordering::Relaxed), 40);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!(counts(&pool, 9), vec![1; 9]);
                }
            });
        }
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3).expect("threads");
    for round in 0..50 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(20, &|chunk| {
                if chunk % 7 == round % 7 {
                    panic!("chunk of class {}", round % 7);
                }
            });
        }));
        let payload = caught.expect_err("a chunk panicked");
        let message = payload
            .downcast_ref::<String>()
            .expect("a formatted message");
        assert_eq!(*message, format!("chunk of class {}", round % 7));
        assert_eq!(counts(&pool, 33), vec![1; 33]);
    }
}

/// Eight threads on any number of cores, with empty regions. The caller never waits for an idle
/// thread, so a region takes far less than a time slice.
#[test]
fn more_threads_than_cores_do_not_collapse() {
    let pool = Pool::new(8 * available_cores().max(1)).expect("threads");
    let start = Instant::now();
    for _ in 0..500 {
        pool.run(16, &|_| std::hint::spin_loop());
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn hot_workers_cool_down_and_wake_again() {
    let pool = Pool::with_options(&PoolOptions {
        n_threads: Some(2),
        spin: Some(Duration::ZERO),
        pin: true,
    })
    .expect("threads");
    for _ in 0..20 {
        let hot = pool.enter();
        assert_eq!(counts(&pool, 4), vec![1; 4]);
        drop(hot);
        assert_eq!(counts(&pool, 4), vec![1; 4]);
    }
    let _hot = pool.enter();
    std::thread::sleep(100 * DEFAULT_SPIN);
    assert_eq!(counts(&pool, 4), vec![1; 4]);
}

#[test]
fn dropping_a_pool_ends_its_threads() {
    for _ in 0..50 {
        let pool = Pool::new(3).expect("threads");
        assert_eq!(counts(&pool, 3), vec![1; 3]);
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        assert!(shared.upgrade().is_none(), "a worker outlived its pool");
    }
}

/// Cores of different speeds can share a region: a slow thread holds up only its chunk, and the others take all remaining chunks.
#[test]
fn a_slow_thread_holds_up_one_chunk() {
    const N_CHUNKS: u32 = 50;
    let pool = Pool::new(2).expect("threads");
    let n_others = AtomicU32::new(0);
    pool.run(N_CHUNKS as usize, &|chunk| {
        if chunk > 0 {
            n_others.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let start = Instant::now();
        while n_others.load(Ordering::SeqCst) < N_CHUNKS - 1 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "chunks wait for a thread that is not through with its own"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A team of fresh threads, or of the caller alone, which counts the requested threads.
struct Fresh {
    is_alone: bool,
    asked: Mutex<Vec<usize>>,
}

impl Team for Fresh {
    fn run(&self, n_threads: usize, f: &(dyn Fn() + Sync)) {
        self.asked.lock().expect("counts").push(n_threads);
        std::thread::scope(|scope| {
            for _ in 1..if self.is_alone { 1 } else { n_threads } {
                scope.spawn(f);
            }
            f();
        });
    }
}

#[test]
fn a_team_runs_every_chunk_once() {
    for is_alone in [false, true] {
        let team = Arc::new(Fresh {
            is_alone,
            asked: Mutex::default(),
        });
        let pool = Pool::of_team(team.clone(), 3).expect("a pool");
        assert_eq!(pool.n_threads(), 3);
        for n_chunks in [0, 1, 2, 7, 1000] {
            let _hot = pool.enter();
            assert_eq!(counts(&pool, n_chunks), vec![1; n_chunks]);
        }
        // No threads are requested where there is nothing to share.
        assert_eq!(*team.asked.lock().expect("counts"), vec![3; 3]);
        let total = AtomicU32::new(0);
        pool.run(4, &|_| {
            pool.run(5, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 20);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(9, &|chunk| assert_ne!(chunk, 4, "told to panic"));
        }));
        assert!(caught.is_err());
        assert_eq!(counts(&pool, 33), vec![1; 33]);
    }
    assert!(
        Pool::of_team(
            Arc::new(Fresh {
                is_alone: true,
                asked: Mutex::default()
            }),
            0
        )
        .is_err()
    );
}
