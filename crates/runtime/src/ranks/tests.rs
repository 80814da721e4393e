use super::*;

/// Ranks with scripted parts: all but this rank's own are given in advance.
struct ScriptRanks {
    place: RankPlace,
    parts: Vec<Vec<f32>>,
}

impl Ranks for ScriptRanks {
    fn place(&self) -> RankPlace {
        self.place
    }

    fn all_gather(
        &mut self,
        own: &[f32],
        lens: &[usize],
        out: &mut [f32],
    ) -> Result<(), RankError> {
        self.parts[self.place.rank] = own.to_vec();
        assert!(self.parts.iter().map(Vec::len).eq(lens.iter().copied()));
        out.copy_from_slice(&self.parts.concat());
        Ok(())
    }

    fn broadcast(&mut self, _message: &mut Vec<u8>) -> Result<(), RankError> {
        let reason = "it ended".to_owned();
        Err(RankError::Lost { rank: 1, reason })
    }
}

fn communicator(rank: usize, parts: &[&[f32]]) -> Communicator {
    Communicator::new(Box::new(ScriptRanks {
        place: RankPlace { rank, n_ranks: 2 },
        parts: parts.iter().map(|part| part.to_vec()).collect(),
    }))
}

#[test]
fn parts_come_into_rows_and_pieces_in_the_order_of_ranks() {
    // Two rows of two pieces; rank 0 has one element of a piece, rank 1 two, and it contributes both.
    let op = AllGather {
        rank: 1,
        n_pieces: 2,
        lens: vec![1, 2],
        first: 0,
    };
    let mut ranks = communicator(1, &[&[1.0, 2.0, 3.0, 4.0], &[]]);
    let own = [10.0, 11.0, 20.0, 21.0, 30.0, 31.0, 40.0, 41.0];
    let mut out = [0.0; 12];
    ranks.gather(&op, 2, &own, &mut out).unwrap();
    let expected = [
        1.0, 10.0, 11.0, 2.0, 20.0, 21.0, 3.0, 30.0, 31.0, 4.0, 40.0, 41.0,
    ];
    assert_eq!(out, expected);
    let traffic = ranks.traffic();
    assert_eq!((traffic.n_gathers, traffic.sent_bytes), (1, 32));
    assert_eq!(traffic.received_bytes, 16);
}

#[test]
fn shared_elements_are_left_out() {
    // Rank 0 has all four elements. Rank 1 has the last two as well, and contributes only the last.
    let op = AllGather {
        rank: 1,
        n_pieces: 1,
        lens: vec![3, 1],
        first: 1,
    };
    let mut ranks = communicator(1, &[&[1.0, 2.0, 3.0], &[]]);
    let mut out = [0.0; 4];
    ranks.gather(&op, 1, &[3.0, 4.0], &mut out).unwrap();
    assert_eq!(out, [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn after_a_failure_nothing_is_asked_again() {
    let mut ranks = communicator(0, &[&[], &[2.0]]);
    let lost = ranks.broadcast(&mut Vec::new()).unwrap_err();
    assert_eq!(
        lost.to_string(),
        "rank 1 is lost: it ended; start all ranks again"
    );
    let op = AllGather {
        rank: 0,
        n_pieces: 1,
        lens: vec![1, 1],
        first: 0,
    };
    assert_eq!(ranks.gather(&op, 1, &[1.0], &mut [0.0; 2]), Err(lost));
}

/// A rank that misses another's part may end before this one sends its own: the other is named all the same.
#[test]
fn the_rank_that_gave_no_part_is_the_lost_one() {
    let mut ranks = local_ranks(3, std::time::Duration::from_secs(60));
    drop(ranks.pop());
    let gather = |mut ranks: LocalRanks| {
        let mut out = [0.0; 3];
        ranks.all_gather(&[1.0], &[1, 1, 1], &mut out).unwrap_err()
    };
    let follower = ranks.pop().unwrap();
    let follower = std::thread::spawn(move || gather(follower));
    // If it does not wait for this rank's part, it ends first.
    for _ in 0..20 {
        if follower.is_finished() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let own = gather(ranks.pop().unwrap());
    for lost in [own, follower.join().unwrap()] {
        assert!(matches!(lost, RankError::Lost { rank: 2, .. }), "{lost}");
    }
}
