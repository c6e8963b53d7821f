//! A parameter server: in each round every worker hands over its gradients and gets new parameters.
//!
//! Workers push by WRITE with immediate or by SEND, all when they are ready, or the server pulls by READ
//! from those that have said that they are, so many at a time as it likes. When it has heard from all, it
//! sends each its parameters, which begins the next round: a barrier.

use super::{Event, Orders, Rhythm};
use crate::time::{Span, Time};
use std::collections::VecDeque;

/// A worker. It sends on its flow 0 (its gradients, or nothing but that they are ready) and receives
/// parameters on its flow 0.
#[derive(Clone, Debug)]
pub struct Worker {
    pub(super) rhythm: Rhythm,
}

impl Worker {
    /// Takes `compute` before each of its `rounds`.
    pub fn new(rounds: u64, compute: Span) -> Worker {
        Worker {
            rhythm: Rhythm::new(rounds, compute),
        }
    }

    pub(super) fn on(&mut self, now: Time, event: Event, orders: &mut Orders) {
        let launched = match event {
            Event::Wake => self.rhythm.wake(now, orders),
            Event::Received(_) => {
                self.rhythm.end(now);
                self.rhythm.next(now, orders)
            }
            Event::Sent(_) => false,
        };
        if launched {
            orders.grants.push((0, 1));
        }
    }
}

/// The server of so many workers. It sends parameters to worker `n` on its flow `n`, reads from it on
/// its flow `workers + n`, and hears from it on the flow `n` that it receives.
#[derive(Clone, Debug)]
pub struct Server {
    workers: usize,
    /// READs at the same time; `None` if the workers push.
    parallel: Option<usize>,
    ready: VecDeque<usize>,
    reading: usize,
    /// Workers whose gradients are there.
    done: usize,
}

impl Server {
    /// The server of `workers` that push.
    pub fn push(workers: usize) -> Server {
        Server {
            workers,
            parallel: None,
            ready: VecDeque::with_capacity(workers),
            reading: 0,
            done: 0,
        }
    }

    /// The server of `workers`, which it reads from, at most `parallel` at a time.
    pub fn pull(workers: usize, parallel: usize) -> Server {
        Server {
            parallel: Some(parallel.max(1)),
            ..Server::push(workers)
        }
    }

    pub(super) fn on(&mut self, event: Event, orders: &mut Orders) {
        match (event, self.parallel) {
            (Event::Received(_), None) => self.done += 1,
            (Event::Received(worker), Some(_)) => self.ready.push_back(worker),
            (Event::Sent(flow), Some(_)) if flow >= self.workers => {
                self.reading -= 1;
                self.done += 1;
            }
            (Event::Sent(_) | Event::Wake, _) => {}
        }
        while let Some(parallel) = self.parallel
            && self.reading < parallel
            && let Some(worker) = self.ready.pop_front()
        {
            self.reading += 1;
            orders.grants.push((self.workers + worker, 1));
        }
        if self.done == self.workers {
            self.done = 0;
            orders.grants.extend((0..self.workers).map(|w| (w, 1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(server: &mut Server, event: Event) -> Vec<(usize, u64)> {
        let mut orders = Orders::default();
        server.on(event, &mut orders);
        orders.grants
    }

    #[test]
    fn parameters_go_out_when_all_have_pushed() {
        let mut s = Server::push(3);
        for _ in 0..2 {
            assert_eq!(on(&mut s, Event::Wake), []);
            assert_eq!(on(&mut s, Event::Received(1)), []);
            assert_eq!(on(&mut s, Event::Received(0)), []);
            assert_eq!(on(&mut s, Event::Received(2)), [(0, 1), (1, 1), (2, 1)]);
            assert_eq!(on(&mut s, Event::Sent(0)), []);
        }
    }

    #[test]
    fn a_server_reads_from_so_many_at_a_time() {
        let mut s = Server::pull(3, 2);
        for _ in 0..2 {
            assert_eq!(on(&mut s, Event::Received(2)), [(5, 1)]);
            assert_eq!(on(&mut s, Event::Received(0)), [(3, 1)]);
            assert_eq!(on(&mut s, Event::Received(1)), []);
            assert_eq!(on(&mut s, Event::Sent(5)), [(4, 1)]);
            assert_eq!(on(&mut s, Event::Sent(3)), []);
            assert_eq!(on(&mut s, Event::Sent(4)), [(0, 1), (1, 1), (2, 1)]);
            assert_eq!(on(&mut s, Event::Sent(1)), []);
        }
    }

    #[test]
    fn a_worker_computes_pushes_and_waits_for_its_parameters() {
        let mut w = Worker::new(2, Span::from_ps(50));
        let mut go = |now, event| {
            let mut orders = Orders::default();
            w.on(Time::from_ps(now), event, &mut orders);
            (orders.grants.len(), orders.wake.map(Time::as_ps))
        };
        assert_eq!(go(10, Event::Wake), (0, Some(60)));
        assert_eq!(go(60, Event::Wake), (1, None));
        assert_eq!(go(70, Event::Sent(0)), (0, None));
        assert_eq!(go(80, Event::Received(0)), (0, Some(130)));
        assert_eq!(go(130, Event::Wake), (1, None));
        assert_eq!(go(150, Event::Received(0)), (0, None));
        let rounds: Vec<_> = w.rhythm.rounds.iter().map(|r| r.end.as_ps()).collect();
        assert_eq!(rounds, [80, 150]);
    }
}
