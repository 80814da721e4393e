//! The virtual kernel behaves as Linux does, traps included.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_rk3588::command;
use millrace_rk3588::matmul::{Banks, Emit, MatmulKind, Task};
use millrace_rk3588::rocket::{CreatedBo, Host, JobArgs, Node, TaskArgs};
use millrace_rk3588::simulate::{Board, BoardMode, BoardOptions, PATH};
use rustix::io::Errno;
use std::sync::Arc;

const FAR: i64 = i64::MAX / 2;

fn board(mode: BoardMode) -> Board {
    Board::new(BoardOptions {
        mode,
        ..BoardOptions::default()
    })
}

/// One open file with objects for commands, A, B and C of a task of 4 × 32 × 64.
struct Bench {
    node: Arc<dyn Node>,
    regcmd: CreatedBo,
    a: CreatedBo,
    b: CreatedBo,
    c: CreatedBo,
}

fn write(node: &Arc<dyn Node>, bo: &CreatedBo, content: &[u8]) {
    node.prep_bo(bo.handle, FAR).unwrap();
    node.access(bo, &mut |bytes| {
        bytes[..content.len()].copy_from_slice(content)
    })
    .unwrap();
    node.fini_bo(bo.handle).unwrap();
}

impl Bench {
    fn new(board: &Board) -> Bench {
        let node = board.open(PATH).unwrap();
        let bo = |size| node.create_bo(size).unwrap();
        let (regcmd, a, b, c) = (bo(4096), bo(256), bo(2048), bo(512));
        write(&node, &a, &[1; 256]);
        write(&node, &b, &[2; 2048]);
        write(&node, &c, &[0xee; 512]);
        Bench {
            node,
            regcmd,
            a,
            b,
            c,
        }
    }

    fn task(&self) -> Task {
        Task {
            kind: MatmulKind::Int8Int32,
            m: 4,
            n: 32,
            k: 64,
            banks: Banks {
                data: 1,
                weight: 11,
            },
            data_reuse: false,
            weight_reuse: false,
            a: self.a.dma_address as u32,
            b: self.b.dma_address as u32,
            c: self.c.dma_address as u32,
        }
    }

    fn job(&self, task: &Task, emit: Emit) -> JobArgs {
        let words = command::encode(&task.commands(emit));
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        write(&self.node, &self.regcmd, &bytes);
        JobArgs {
            tasks: vec![TaskArgs {
                regcmd: self.regcmd.dma_address as u32,
                regcmd_count: words.len() as u32,
            }],
            in_handles: vec![self.a.handle, self.b.handle, self.regcmd.handle],
            out_handles: vec![self.c.handle],
        }
    }

    /// The output after waiting; releases the object afterwards.
    fn output(&self) -> Vec<u8> {
        self.node.prep_bo(self.c.handle, FAR).unwrap();
        let mut out = Vec::new();
        self.node
            .access(&self.c, &mut |bytes| out = bytes[..512].to_vec())
            .unwrap();
        self.node.fini_bo(self.c.handle).unwrap();
        out
    }
}

#[test]
fn a_task_runs_and_addresses_begin_at_zero() {
    let bench = Bench::new(&board(BoardMode::Faithful));
    assert_eq!(bench.regcmd.dma_address, 0);
    assert_eq!(bench.a.dma_address, 4096);
    let job = bench.job(&bench.task(), Emit::MILLRACE);
    bench.node.submit(&[job]).unwrap();
    let expected: Vec<u8> = [128i32; 128].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(bench.output(), expected);
}

/// Faulty jobs, each with a word that the log has for it.
fn bad_jobs(bench: &Bench) -> Vec<(JobArgs, &'static str)> {
    let task = bench.task();
    let good = bench.job(&task, Emit::MILLRACE);
    let no_commands = JobArgs {
        tasks: vec![TaskArgs {
            regcmd: 0,
            regcmd_count: 0,
        }],
        ..good.clone()
    };
    let bad_handle = JobArgs {
        in_handles: vec![99],
        ..good
    };
    vec![
        (no_commands, "needs tasks"),
        (bad_handle, "no buffer object has handle 99"),
    ]
}

#[test]
fn submit_succeeds_for_jobs_that_it_ignores() {
    let bench = Bench::new(&board(BoardMode::Faithful));
    for (job, words) in bad_jobs(&bench) {
        assert_eq!(bench.node.submit(&[job]), Ok(()));
        assert_eq!(bench.output(), [0xee; 512]);
        let log = bench.node.log().join("\n");
        assert!(log.contains(words), "{log}");
    }
    let bench = Bench::new(&board(BoardMode::Strict));
    for (job, _) in bad_jobs(&bench) {
        assert_eq!(bench.node.submit(&[job]), Err(Errno::INVAL));
    }
}

/// Makes a job for a bench.
type Make = fn(&Bench) -> JobArgs;

#[test]
fn a_reset_job_is_waited_for_with_success_and_leaves_the_output() {
    // The vendor's form without DPU_RDMA; an address of no object; commands of no object.
    let cases: [(&str, Make); 3] = [
        ("RK102", |bench| bench.job(&bench.task(), Emit::MTX512)),
        ("IOMMU fault", |bench| {
            let c = bench.c.dma_address as u32 + 4096;
            bench.job(&Task { c, ..bench.task() }, Emit::MILLRACE)
        }),
        ("fetching commands", |bench| {
            let mut job = bench.job(&bench.task(), Emit::MILLRACE);
            job.tasks[0].regcmd = 0x8000_0000;
            job
        }),
    ];
    for (words, make) in cases {
        let bench = Bench::new(&board(BoardMode::Faithful));
        let job = make(&bench);
        let before = bench.node.now_ns();
        bench.node.submit(&[job]).unwrap();
        assert_eq!(bench.output(), [0xee; 512], "{words}");
        let took = bench.node.now_ns() - before;
        assert!((500_000_000..501_000_000).contains(&took), "{took}");
        let log = bench.node.log().join("\n");
        assert!(log.contains(words), "{log}");
        // The next job runs.
        let job = bench.job(&bench.task(), Emit::MILLRACE);
        bench.node.submit(&[job]).unwrap();
        assert_ne!(bench.output(), [0xee; 512]);
        let strict = Bench::new(&board(BoardMode::Strict));
        let job = make(&strict);
        assert_eq!(strict.node.submit(&[job]), Err(Errno::INVAL), "{words}");
    }
}

#[test]
fn deadlines_are_absolute_and_only_outputs_wait() {
    let bench = Bench::new(&board(BoardMode::Faithful));
    let job = bench.job(&bench.task(), Emit::MILLRACE);
    bench.node.submit(&[job]).unwrap();
    let now = bench.node.now_ns();
    assert_eq!(bench.node.prep_bo(bench.c.handle, 0), Err(Errno::BUSY));
    assert_eq!(bench.node.now_ns(), now);
    // A deadline that a relative reading would put far ahead is already over.
    assert_eq!(
        bench.node.prep_bo(bench.c.handle, now + 1000),
        Err(Errno::TIMEDOUT)
    );
    assert_eq!(bench.node.now_ns(), now + 1000);
    // Inputs have no fence: this succeeds while the job runs.
    assert!(bench.node.prep_bo(bench.a.handle, 0).is_ok());
    bench.node.fini_bo(bench.a.handle).unwrap();
    assert!(bench.node.now_ns() < now + 44_000);
    assert_ne!(bench.output(), [0xee; 512]);
}

#[test]
fn waiting_answers_in_both_styles() {
    for (time_left, positive) in [(true, true), (false, false)] {
        let board = Board::new(BoardOptions {
            prep_answers_time_left: time_left,
            ..BoardOptions::default()
        });
        let bench = Bench::new(&board);
        let answer = bench.node.prep_bo(bench.c.handle, FAR).unwrap();
        assert_eq!(answer > 0, positive);
    }
}

#[test]
fn objects_belong_to_one_file_and_one_side_at_a_time() {
    let board = board(BoardMode::Faithful);
    let (bench, other) = (Bench::new(&board), board.open(PATH).unwrap());
    assert_eq!(other.prep_bo(bench.c.handle, FAR), Err(Errno::INVAL));
    assert_eq!(other.close_bo(bench.c.handle), Err(Errno::INVAL));
    let touched = bench.node.access(&bench.c, &mut |_| {});
    assert_eq!(touched, Err(Errno::ACCESS));
    // A job on memory that the host holds.
    let job = bench.job(&bench.task(), Emit::MILLRACE);
    bench.node.prep_bo(bench.a.handle, FAR).unwrap();
    bench.node.submit(&[job]).unwrap();
    assert_eq!(bench.output(), [0xee; 512]);
    let log = bench.node.log().join("\n");
    assert!(log.contains("before FINI_BO"), "{log}");
}

#[test]
fn addresses_are_given_again_and_end() {
    let node = board(BoardMode::Faithful).open(PATH).unwrap();
    let first = node.create_bo(5000).unwrap();
    let second = node.create_bo(1).unwrap();
    assert_eq!((first.dma_address, second.dma_address), (0, 8192));
    node.close_bo(first.handle).unwrap();
    assert_eq!(node.create_bo(8192).unwrap().dma_address, 0);
    assert_eq!(node.create_bo(0), Err(Errno::INVAL));
    // 4 GiB in all, whose memory is not touched here.
    let size = 0xc000_0000;
    assert!(node.create_bo(size).is_ok());
    assert_eq!(node.create_bo(size), Err(Errno::NOSPC));
}

#[test]
fn stale_tiles_give_garbage() {
    let bench = Bench::new(&board(BoardMode::Faithful));
    let task = Task {
        data_reuse: true,
        ..bench.task()
    };
    let job = bench.job(&task, Emit::MILLRACE);
    bench.node.submit(&[job]).unwrap();
    let found = bench.output();
    let expected: Vec<u8> = [128i32; 128].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert!(found != expected && found != [0xee; 512]);
}
