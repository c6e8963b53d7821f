//! Our end with a communication manager, as programs of rdma_cm have it.

use super::cable::Cable;
use super::guest::Work as _;
use super::guest::{self, Guest};
use super::local::{Port, open, rights, text};
use super::{Outcome, PATIENCE};
use softroce_sim::card::{
    AddressVector, Card, Completion, CompletionKind, CompletionQueue, Datagram, Mtu, QpAttributes,
    QpInit, QpType, QueuePair, RecvRequest, Remote, SendRequest, Sge, State, Status, Work,
};
use softroce_sim::cm::{
    Accept, AcceptDatagrams, Agent, CmConfig, Connect, Endpoint, Event, Phase, Resolve,
};
use softroce_sim::memory::{Buffer, MemoryRegion, Pd};
use softroce_sim::port::seed;
use softroce_sim::wire::cm::{CommId, RejectReason, ServiceId};
use softroce_sim::wire::{Gid, Psn, QpNumber};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bytes of memory.
const ROOM: usize = 1 << 20;
const DEPTH: u32 = 64;
/// This end's port, as peers are told.
const SOURCE_PORT: u16 = 40_000;

/// Q_Key of the datagram services of rdma_cm.
pub const DATAGRAM_QKEY: u32 = 0x0123_4567;

/// A queue pair of a [`Station`].
pub type Link = usize;

/// A card on an Ethernet port with a communication manager, and queue pairs of any number.
pub struct Station {
    port: Port,
    card: Card,
    agent: Agent,
    cq: CompletionQueue,
    pd: Pd,
    memory: Buffer,
    region: MemoryRegion,
    links: Vec<(QueuePair, Option<CommId>)>,
}

/// The way to an address; the port finds out the Ethernet address.
fn way(to: Gid) -> AddressVector {
    AddressVector::new(to)
}

impl guest::Work for Station {
    fn work(&mut self, time: Duration) -> Outcome {
        self.turn()?;
        let now = self.port.now();
        let left = self.agent.next_timeout().since(now).into();
        self.port
            .run_once(&mut self.card, time.min(left))
            .map_err(text)?;
        self.turn()
    }
}

impl Station {
    /// At the other end of the guest's cable, with a manager that is like `config`.
    pub(super) fn open(
        guest: &Guest,
        cable: &Cable,
        own: IpAddr,
        config: impl FnOnce(&mut CmConfig),
    ) -> Outcome<Station> {
        let (port, mut card) = open(guest, cable, own)?;
        let mut manager = CmConfig::new(card.config().gid, card.config().mac);
        config(&mut manager);
        let agent =
            Agent::new(&mut card, port.now(), manager, seed().map_err(text)?).map_err(text)?;
        let cq = card.create_cq(16 * DEPTH).map_err(text)?;
        let pd = card.alloc_pd();
        let memory = Buffer::new(ROOM);
        let region = card.register(pd, memory.clone(), rights()).map_err(text)?;
        Ok(Station {
            port,
            card,
            agent,
            cq,
            pd,
            memory,
            region,
            links: Vec::new(),
        })
    }

    /// The manager takes what has come and says what it has to say.
    fn turn(&mut self) -> Outcome {
        let now = self.port.now();
        if self.agent.turn(&mut self.card, now, |to| Some(way(to))) {
            self.port.poll(&mut self.card).map_err(text)?;
        }
        Ok(())
    }

    /// Its memory.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// Its memory as peers see it.
    pub fn remote(&self, at: usize) -> Remote {
        Remote {
            addr: self.region.addr + at as u64,
            rkey: self.region.rkey,
        }
    }

    /// Requests for `service` come as events.
    ///
    /// # Errors
    ///
    /// If someone listens there.
    pub fn listen(&mut self, service: ServiceId) -> Outcome {
        self.agent.cm().listen(service).map_err(text)
    }

    /// A queue pair in INIT; one for datagrams is in RTS at once.
    ///
    /// # Errors
    ///
    /// If the card has none left.
    pub fn link(&mut self, qp_type: QpType) -> Outcome<Link> {
        let init = QpInit::new(qp_type, self.pd, self.cq.id(), DEPTH);
        let qp = self.card.create_qp(&init).map_err(text)?;
        let number = qp.number();
        self.links.push((qp, None));
        if qp_type != QpType::Ud {
            self.modify(number, &QpAttributes::to_init(rights()))?;
        } else {
            for step in [
                QpAttributes::to_init_datagrams(DATAGRAM_QKEY),
                QpAttributes::to(State::Rtr),
                QpAttributes::to_rts(Psn::new(0), None),
            ] {
                self.modify(number, &step)?;
            }
        }
        Ok(self.links.len() - 1)
    }

    /// Number of a queue pair.
    pub fn number(&self, link: Link) -> QpNumber {
        self.links[link].0.number()
    }

    /// The queue pair of a connection.
    pub fn link_of(&self, id: CommId) -> Option<Link> {
        self.links.iter().position(|&(_, of)| of == Some(id))
    }

    /// How far a connection is; `None` if it is gone.
    pub fn phase(&mut self, id: CommId) -> Option<Phase> {
        self.agent.cm().phase(id)
    }

    fn modify(&mut self, number: QpNumber, attributes: &QpAttributes) -> Outcome {
        let now = self.port.now();
        self.card.modify_qp(now, number, attributes).map_err(text)
    }

    fn end(&mut self, link: Link) -> Endpoint {
        Endpoint::new(self.number(link), self.card.draw_psn())
    }

    /// Asks for a connection.
    ///
    /// # Errors
    ///
    /// If the manager cannot ask.
    pub fn connect(&mut self, link: Link, to: IpAddr, service: ServiceId) -> Outcome<CommId> {
        let end = self.end(link);
        let connect = Connect {
            service,
            src_port: SOURCE_PORT,
            address: way(to.into()),
            qp_type: QpType::Rc,
            path_mtu: Mtu::M1024,
            retry_count: 7,
            end,
            private_data: b"from the card",
        };
        let now = self.port.now();
        let id = self.agent.cm().connect(now, &connect).map_err(text)?;
        self.links[link].1 = Some(id);
        self.turn()?;
        Ok(id)
    }

    /// Asks for a datagram service's queue pair.
    ///
    /// # Errors
    ///
    /// If the manager cannot ask.
    pub fn resolve(&mut self, to: IpAddr, service: ServiceId) -> Outcome<CommId> {
        let resolve = Resolve {
            service,
            src_port: SOURCE_PORT,
            peer: to.into(),
            private_data: &[],
        };
        let now = self.port.now();
        let id = self.agent.cm().resolve(now, &resolve).map_err(text)?;
        self.turn()?;
        Ok(id)
    }

    fn bring_up(&mut self, link: Link, id: CommId) -> Outcome {
        let Some(attributes) = self.agent.cm().attributes(id) else {
            return Err(format!("Card: {id:?} has no attributes"));
        };
        self.modify(self.number(link), &attributes.rtr)?;
        self.modify(self.number(link), &attributes.rts)
    }

    /// Accepts a request from `peer` with a queue pair in INIT.
    ///
    /// # Errors
    ///
    /// If the request has gone, or the queue pair cannot be brought up.
    pub fn accept(&mut self, link: Link, id: CommId, peer: Gid) -> Outcome {
        let end = self.end(link);
        let accept = Accept {
            address: way(peer),
            end,
            private_data: &[],
        };
        let now = self.port.now();
        self.agent.cm().accept(now, id, &accept).map_err(text)?;
        self.links[link].1 = Some(id);
        self.bring_up(link, id)?;
        self.turn()
    }

    /// Names a queue pair to who asks for a datagram service.
    ///
    /// # Errors
    ///
    /// If the request has gone.
    pub fn accept_datagrams(&mut self, link: Link, id: CommId) -> Outcome {
        let accept = AcceptDatagrams {
            qp: self.number(link),
            qkey: DATAGRAM_QKEY,
            private_data: &[],
        };
        let now = self.port.now();
        let cm = self.agent.cm();
        cm.accept_datagrams(now, id, &accept).map_err(text)?;
        self.turn()
    }

    /// Says no.
    ///
    /// # Errors
    ///
    /// If the request has gone.
    pub fn reject(&mut self, id: CommId, private_data: &[u8]) -> Outcome {
        let now = self.port.now();
        let cm = self.agent.cm();
        cm.reject(now, id, RejectReason::CONSUMER, private_data)
            .map_err(text)?;
        self.turn()
    }

    /// Brings up the queue pair of a connection that the peer has accepted.
    ///
    /// # Errors
    ///
    /// If it cannot be.
    pub fn establish(&mut self, id: CommId) -> Outcome {
        let link = self.link_of(id).ok_or("Card: no queue pair")?;
        self.bring_up(link, id)?;
        self.agent.cm().establish(id, &[]).map_err(text)?;
        self.turn()
    }

    /// Ends a connection.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn disconnect(&mut self, id: CommId) -> Outcome {
        let now = self.port.now();
        self.agent.cm().disconnect(now, id).map_err(text)?;
        self.turn()
    }

    /// Lets go of a connection.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn abandon(&mut self, id: CommId) -> Outcome {
        let now = self.port.now();
        self.agent.cm().abandon(now, id).map_err(text)?;
        self.turn()
    }

    /// The next event, if one comes within `patience`. The queue pair of a connection that has ended goes
    /// into error.
    ///
    /// # Errors
    ///
    /// If the card is broken.
    pub fn poll_event(&mut self, patience: Duration) -> Outcome<Option<Event>> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.agent.cm().next_event() {
                if let Event::Disconnected { id } = event
                    && let Some(link) = self.link_of(id)
                {
                    self.modify(self.number(link), &QpAttributes::to(State::Error))?;
                }
                return Ok(Some(event));
            }
            if start.elapsed() >= patience {
                return Ok(None);
            }
            self.work(Duration::from_millis(5))?;
        }
    }

    /// The next event.
    ///
    /// # Errors
    ///
    /// If none comes.
    pub fn event(&mut self) -> Outcome<Event> {
        let event = self.poll_event(PATIENCE)?;
        event.ok_or_else(|| format!("Card: no event; {:?}", self.card.counters()))
    }

    fn sge(&self, at: usize, len: usize) -> Sge {
        Sge {
            addr: self.region.addr + at as u64,
            len: len as u32,
            lkey: self.region.lkey,
        }
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// If it is not taken.
    pub fn recv(&mut self, link: Link, wr_id: u64, at: usize, len: usize) -> Outcome {
        let sges = &[self.sge(at, len)];
        let qp = &mut self.links[link].0;
        qp.post_recv(&RecvRequest { wr_id, sges }).map_err(text)
    }

    /// Posts a send request.
    ///
    /// # Errors
    ///
    /// If it is not taken.
    pub fn post(&mut self, link: Link, wr_id: u64, work: Work, at: usize, len: usize) -> Outcome {
        self.post_to(link, wr_id, work, at, len, None)
    }

    /// Posts a datagram to queue pair `to` at an address.
    ///
    /// # Errors
    ///
    /// If it is not taken.
    pub fn post_to(
        &mut self,
        link: Link,
        wr_id: u64,
        work: Work,
        at: usize,
        len: usize,
        to: Option<(Gid, QpNumber, u32)>,
    ) -> Outcome {
        let to = match to {
            None => None,
            Some((gid, qp, qkey)) => Some(Datagram {
                address: self.card.create_ah(self.pd, &way(gid)).map_err(text)?,
                qp,
                qkey,
            }),
        };
        let sges = &[self.sge(at, len)];
        let qp = &mut self.links[link].0;
        qp.post_send(&SendRequest {
            to,
            ..SendRequest::new(wr_id, work, sges)
        })
        .map_err(text)?;
        let number = qp.number();
        self.card.doorbell(self.port.now(), number);
        Ok(())
    }

    /// The next completion that is not of a request flushed by the end of its connection.
    ///
    /// # Errors
    ///
    /// If none comes, or one tells of a failure.
    pub fn done(&mut self) -> Outcome<Completion> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.cq.poll() {
                Some(c) if c.status == Status::Success => return Ok(c),
                Some(c) if c.status == Status::WorkRequestFlushed => {}
                Some(c) => return Err(format!("Card: {c:?}")),
                None => self.work(Duration::from_millis(5))?,
            }
        }
        Err(format!("Card: no completion; {:?}", self.card.counters()))
    }

    /// The next completion, which must be of the request `wr_id`.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn done_of(&mut self, wr_id: u64) -> Outcome<Completion> {
        let c = self.done()?;
        match c.wr_id == wr_id {
            true => Ok(c),
            false => Err(format!("Card: of request {wr_id} expected, {c:?}")),
        }
    }
}

/// True if it is of a receive request.
pub fn is_receive(c: &Completion) -> bool {
    matches!(
        c.kind,
        CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
    )
}
