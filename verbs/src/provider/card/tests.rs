//! Programs that come between each other.

use super::*;
use crate::QpType;
use softroce_sim::card::CardConfig;
use softroce_sim::wire::RouteTable;
use std::net::Ipv4Addr;

/// A seat at whose card somebody else is next, as soon as a call of it has ended.
struct Contended {
    card: Mutex<Card>,
    next: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Seat for Contended {
    fn with(&self, act: &mut dyn FnMut(&mut Card, Time)) -> Result<()> {
        act(&mut self.card.lock().unwrap(), Time::ZERO);
        let next = self.next.lock().unwrap().take();
        if let Some(next) = next {
            next();
        }
        Ok(())
    }

    fn neighbours(&self) -> Neighbours {
        Neighbours::default()
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn doorbell(&self, _: QpNumber) {}

    fn turn(&self) -> Result<()> {
        Ok(())
    }

    fn set_channel(&self, _: card::CqId, _: Option<Handle>) {}

    fn destroy_channel(&self, _: Handle) {}

    fn post_recv(
        &self,
        qp: &mut card::QueuePair,
        request: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        qp.post_recv(request)
    }

    fn next_notification(&self, _: Handle, _: Option<Duration>) -> Result<Option<card::CqId>> {
        Ok(None)
    }

    fn next_event(&self, _: Option<Duration>) -> Result<Option<card::AsyncEvent>> {
        Ok(None)
    }

    fn create_channel(&self) -> Result<Handle> {
        unreachable!("nobody asks")
    }

    fn sleep(&self, _: Duration) -> Result<()> {
        unreachable!("nobody asks")
    }

    fn spawn(&self, _: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        unreachable!("nobody asks")
    }

    fn exchange(&self, _: &Role, _: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>> {
        unreachable!("nobody asks")
    }
}

/// A device, and a queue pair on it.
fn device() -> (Arc<CardProvider<Contended>>, Handle) {
    let gid = Ipv4Addr::new(10, 0, 0, 1).into();
    let config = CardConfig::new("card", gid, MacAddr([2, 0, 0, 0, 0, 1]));
    let seat = Contended {
        card: Mutex::new(Card::new(config, 1, RouteTable::new())),
        next: Mutex::default(),
    };
    let provider = CardProvider::new("card".into(), seat);
    let pd = provider.alloc_pd().unwrap();
    let (cq, _reader) = provider.create_cq(16, None).unwrap();
    let spec = QpSpec {
        qp_type: QpType::Rc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
    };
    let (qp, _queue) = provider.create_qp(&spec).unwrap();
    (Arc::new(provider), qp)
}

/// Has another program change the queue pair right after the next look at the card.
fn let_in(provider: &Arc<CardProvider<Contended>>, qp: Handle, change: QpAttributes) {
    let other = provider.clone();
    let next = move || other.modify_qp(qp, &change).unwrap();
    *provider.common.seat.next.lock().unwrap() = Some(Box::new(next));
}

fn reading() -> QpAttributes {
    QpAttributes::to_init(Access::REMOTE_READ)
}

/// In RESET nothing is set; else the rights are those of the last change to INIT.
fn is_whole(told: &QpAttributes) {
    let expected = (told.state == Some(State::Init)).then_some(Access::REMOTE_READ);
    assert_eq!(told.access, expected, "{told:?}");
}

#[test]
fn what_a_queue_pair_is_said_to_be_like_is_what_it_was_set_to_last() {
    let reset = QpAttributes::to(State::Reset);
    for (first, then, state) in [
        (reading(), reset, State::Reset),
        (reset, reading(), State::Init),
    ] {
        let (provider, qp) = device();
        let_in(&provider, qp, then);
        provider.modify_qp(qp, &first).unwrap();
        let told = provider.query_qp(qp).unwrap();
        assert_eq!(told.state, Some(state));
        is_whole(&told);
    }
}

#[test]
fn what_is_told_of_a_queue_pair_is_of_one_moment() {
    let (provider, qp) = device();
    let reset = QpAttributes::to(State::Reset);
    for (change, state) in [
        (reading(), State::Reset),
        (reset, State::Init),
        (reading(), State::Reset),
    ] {
        let_in(&provider, qp, change);
        let told = provider.query_qp(qp).unwrap();
        assert_eq!(told.state, Some(state));
        is_whole(&told);
    }
}
