//! Atomics over a network that loses, repeats and reorders: each is carried out exactly once and in order
//! with the WRITEs around it, and brings back what it found.

use proptest::prelude::*;
use softroce_sim::card::{
    Mtu, Peer, QpAttributes, QpInit, QpType, Reliability, Remote, SendRequest, Sge, Status, Work,
};
use softroce_sim::memory::Buffer;
use softroce_sim::random::Stream;
use softroce_sim::time::Time;
use softroce_sim::wire::Psn;
use softroce_tests::bench::all_rights;
use softroce_tests::link::{Faults, Link};

const WORDS: usize = 3;

/// Where an operation is, what it needs or brings, and what it makes of the words.
#[derive(Clone, Copy, Debug)]
struct Op {
    word: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Add(u64),
    Swap { compare: u64, swap: u64 },
    AtomicWrite(u64),
    Write(u64),
    Read,
}

/// The words before the first operation, and after each.
fn histories(ops: &[Op]) -> Vec<[u64; WORDS]> {
    let mut all = vec![[0u64; WORDS]];
    for op in ops {
        let mut words = *all.last().unwrap();
        let w: &mut u64 = &mut words[op.word];
        match op.kind {
            Kind::Add(n) => *w = w.wrapping_add(n),
            Kind::Swap { compare, swap } if *w == compare => *w = swap,
            Kind::AtomicWrite(n) | Kind::Write(n) => *w = n,
            Kind::Swap { .. } | Kind::Read => {}
        }
        all.push(words);
    }
    all
}

fn draw(s: &mut Stream, n: usize) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    for _ in 0..n {
        let word = s.below(WORDS as u64) as usize;
        let now = histories(&ops).last().unwrap()[word];
        let kind = match s.below(8) {
            0..3 => Kind::Add(s.bits()),
            3 => Kind::Swap {
                compare: now,
                swap: s.bits(),
            },
            4 => Kind::Swap {
                compare: now ^ 1 << s.below(64),
                swap: s.bits(),
            },
            5 => Kind::AtomicWrite(s.bits()),
            6 => Kind::Write(s.bits()),
            _ => Kind::Read,
        };
        ops.push(Op { word, kind });
    }
    ops
}

fn run(seed: u64, n: usize, depth: u8, retry_cnt: u8, faults: Faults) {
    let mut s = Stream::new(seed, "plan");
    let ops = draw(&mut s, n);
    let mut link = Link::new(seed, faults);
    let buffers = [0, 1].map(|_| Buffer::new(8 * (2 * n + WORDS)));
    let mut handles = Vec::new();
    for (card, buffer) in link.cards.iter_mut().zip(&buffers) {
        let pd = card.alloc_pd();
        let cq = card.create_cq(256).unwrap();
        let init = QpInit::new(QpType::Rc, pd, cq.id(), 64);
        let qp = card.create_qp(&init).unwrap();
        let mr = card.register(pd, buffer.clone(), all_rights()).unwrap();
        handles.push((qp, cq, mr));
    }
    for side in 0..2 {
        let (own, peer) = (handles[side].0.number(), handles[1 - side].0.number());
        let peer = Peer {
            address: Link::address(1 - side),
            path_mtu: Mtu::M256,
            qp: peer,
            psn: Psn::new(0xff_fffa),
        };
        let reliability = Reliability {
            timeout: 4,
            retry_cnt,
            min_rnr_timer: 1,
            max_rd_atomic: depth,
            max_dest_rd_atomic: depth,
            ..Reliability::default()
        };
        for a in [
            QpAttributes::to_init(all_rights()),
            QpAttributes::to_rtr(&peer, Some(&reliability)),
            QpAttributes::to_rts(Psn::new(0xff_fffa), Some(&reliability)),
        ] {
            link.cards[side].modify_qp(Time::ZERO, own, &a).unwrap();
        }
    }
    let remote = handles[1].2;
    let (qp, cq, mr) = &mut handles[0];
    for (i, op) in ops.iter().enumerate() {
        let at = Remote {
            addr: remote.addr + 8 * op.word as u64,
            rkey: remote.rkey,
        };
        // What goes out lies in front, what comes back behind it.
        let work = match op.kind {
            Kind::Add(add) => Work::FetchAdd { at, add },
            Kind::Swap { compare, swap } => Work::CompareSwap { at, compare, swap },
            Kind::AtomicWrite(v) | Kind::Write(v) => {
                buffers[0].write_at(8 * i, &v.to_ne_bytes());
                match op.kind {
                    Kind::Write(_) => Work::Write(at),
                    _ => Work::AtomicWrite(at),
                }
            }
            Kind::Read => Work::Read(at),
        };
        let place = if work.sends_data() { i } else { n + i };
        let sges = [Sge {
            addr: mr.addr + 8 * place as u64,
            len: 8,
            lkey: mr.lkey,
        }];
        let request = SendRequest {
            // A READ may be carried out after what follows it, unless that waits (10.8.3.3).
            fence: i > 0 && matches!(ops[i - 1].kind, Kind::Read),
            ..SendRequest::new(i as u64, work, &sges)
        };
        qp.post_send(&request).unwrap();
    }
    let sent = buffers[0].to_vec();
    link.cards[0].doorbell(Time::ZERO, qp.number());
    link.run();

    let completions: Vec<_> = std::iter::from_fn(|| cq.poll()).collect();
    let ids: Vec<_> = completions.iter().map(|c| c.wr_id as usize).collect();
    assert_eq!(ids, (0..n).collect::<Vec<_>>(), "each once and in order");
    let ok = |s: Status| s == Status::Success;
    let done = completions.iter().take_while(|c| ok(c.status)).count();
    let history = histories(&ops);
    let word = |b: &Buffer, i: usize| {
        let mut bytes = [0; 8];
        b.read_at(8 * i, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    for (i, op) in ops.iter().enumerate().take(done) {
        if !matches!(op.kind, Kind::AtomicWrite(_) | Kind::Write(_)) {
            assert_eq!(word(&buffers[0], n + i), history[i][op.word], "{i}: {op:?}");
        }
    }
    let words: [u64; WORDS] = std::array::from_fn(|i| word(&buffers[1], i));
    if done == n {
        assert_eq!(words, history[n]);
    } else {
        // It gave up: what was told is done, and perhaps some more, but nothing twice.
        assert_eq!(completions[done].status, Status::RetryExceeded);
        assert!(
            completions[done + 1..]
                .iter()
                .all(|c| c.status == Status::WorkRequestFlushed)
        );
        assert!(
            history[done..].contains(&words),
            "after no prefix of at least {done}"
        );
    }
    // No byte beside the words, and none of what was sent.
    assert!(buffers[1].to_vec()[8 * WORDS..].iter().all(|&b| b == 0));
    assert_eq!(buffers[0].to_vec()[..8 * n], sent[..8 * n]);
    if faults.lost + faults.twice + faults.late == 0 {
        assert_eq!(
            (done, link.cards[0].counters().retransmitted_packets),
            (n, 0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_atomic_is_carried_out_exactly_once(
        seed: u64,
        n in 1usize..20,
        depth in 1u8..5,
        retry_cnt in prop_oneof![4 => Just(7u8), 1 => Just(1u8)],
        lost in prop_oneof![Just(0u64), 0..200u64],
        twice in prop_oneof![Just(0u64), 0..200u64],
        late in prop_oneof![Just(0u64), 0..200u64],
    ) {
        run(seed, n, depth, retry_cnt, Faults { lost, twice, late });
    }
}
