//! Our end.

use super::cable::{Cable, Cabled};
use super::guest::{self, Guest, Work as _};
use super::{CARD_MAC, Contact, Done, Op, Outcome, Request, Service, Setup, VLAN};
use softroce_sim::card::{
    AddressHandle, AddressVector, Card, Completion, CompletionKind, CompletionQueue, Datagram,
    Peer, QpAttributes, QpInit, QpType, QueuePair, RecvRequest, Reliability, Remote, SendRequest,
    Sge, State, Work,
};
use softroce_sim::memory::{Access, Binding, Buffer, MemoryRegion, Pd, WindowType};
use softroce_sim::port::{DatagramDevice, EthernetConfig, EthernetPort, seed};
use softroce_sim::wire::{Immediate, MacAddr, Psn, QpNumber, RemoteKey, Vlan};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Bytes of memory, as many as the agent has.
const ROOM: usize = 1 << 20;
const DEPTH: u32 = 64;
const QKEY: u32 = 0x1111_1111;

/// The other end of a guest's cable.
pub(super) type Port = EthernetPort<Cabled<DatagramDevice>>;

/// A card on an Ethernet port with one queue pair.
pub(super) struct Local {
    port: Port,
    card: Card,
    cq: CompletionQueue,
    pd: Pd,
    qp: QueuePair,
    memory: Buffer,
    region: MemoryRegion,
    /// Where datagrams go.
    handle: Option<AddressHandle>,
}

pub(super) fn text(e: impl Display) -> String {
    format!("Card: {e}")
}

/// A card on a port at the other end of the guest's cable.
pub(super) fn open(guest: &Guest, cable: &Cable, own: IpAddr) -> Outcome<(Port, Card)> {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let [ours, theirs] = guest.ports();
    let device = Cabled {
        device: DatagramDevice::open(at(ours), at(theirs)).map_err(text)?,
        cable: cable.clone(),
        arrived: Default::default(),
    };
    let port = EthernetPort::open(device, &EthernetConfig::new(own, CARD_MAC)).map_err(text)?;
    let config = port.card_config("card");
    let card = Card::new(config, seed().map_err(text)?, port.routes());
    Ok((port, card))
}

impl guest::Work for Local {
    fn work(&mut self, time: Duration) -> Outcome {
        self.port
            .run_once(&mut self.card, time)
            .map(|_| ())
            .map_err(text)
    }
}

impl Local {
    /// A queue pair in RESET, at the other end of the guest's cable.
    pub(super) fn open(
        guest: &Guest,
        cable: &Cable,
        own: IpAddr,
        service: Service,
    ) -> Outcome<Local> {
        let (port, mut card) = open(guest, cable, own)?;
        let cq = card.create_cq(4 * DEPTH).map_err(text)?;
        let pd = card.alloc_pd();
        let memory = Buffer::new(ROOM);
        let region = card
            .register(pd, memory.clone(), rights() | Access::MW_BIND)
            .map_err(text)?;
        let qp_type = match service {
            Service::Rc => QpType::Rc,
            Service::Uc => QpType::Uc,
            Service::Ud => QpType::Ud,
        };
        let init = QpInit::new(qp_type, pd, cq.id(), DEPTH);
        let qp = card.create_qp(&init).map_err(text)?;
        Ok(Local {
            port,
            card,
            cq,
            pd,
            qp,
            memory,
            region,
            handle: None,
        })
    }

    pub(super) fn contact(&self) -> Contact {
        Contact {
            qpn: self.qp.number().get(),
            rkey: self.region.rkey.0,
            addr: self.region.addr,
        }
    }

    pub(super) fn memory(&self) -> &Buffer {
        &self.memory
    }

    pub(super) fn connect(&mut self, setup: &Setup, peer: IpAddr, theirs: Contact) -> Outcome {
        let address = AddressVector {
            dgid: peer.into(),
            // To be found out.
            dmac: MacAddr::default(),
            sl: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_src: None,
            vlan: setup.vlan.then_some(Vlan { id: VLAN }),
        };
        let reliability = Reliability {
            timeout: setup.timeout,
            retry_cnt: setup.retry,
            rnr_retry: setup.rnr_retry,
            min_rnr_timer: 12,
            max_rd_atomic: setup.rd_atomic,
            max_dest_rd_atomic: setup.rd_atomic,
        };
        let reliability = (setup.service == Service::Rc).then_some(&reliability);
        let psn = Psn::new(setup.psn);
        let peer = Peer {
            address,
            path_mtu: setup.mtu,
            qp: QpNumber::new(theirs.qpn),
            psn,
        };
        let steps = match setup.service {
            Service::Ud => [
                QpAttributes::to_init_datagrams(QKEY),
                QpAttributes::to(State::Rtr),
                QpAttributes::to_rts(psn, None),
            ],
            _ => [
                QpAttributes::to_init(rights()),
                QpAttributes::to_rtr(&peer, reliability),
                QpAttributes::to_rts(psn, reliability),
            ],
        };
        for step in &steps {
            let now = self.port.now();
            self.card
                .modify_qp(now, self.qp.number(), step)
                .map_err(text)?;
        }
        if setup.service == Service::Ud {
            self.handle = Some(self.card.create_ah(self.pd, &address).map_err(text)?);
        }
        Ok(())
    }

    fn sge(&self, at: usize, len: usize) -> Sge {
        Sge {
            addr: self.region.addr + at as u64,
            len: len as u32,
            lkey: self.region.lkey,
        }
    }

    pub(super) fn recv(&mut self, wr_id: u64, at: usize, len: usize) -> Outcome {
        let sges = &[self.sge(at, len)];
        self.qp
            .post_recv(&RecvRequest { wr_id, sges })
            .map_err(text)
    }

    pub(super) fn post(&mut self, request: &Request, peer: Contact) -> Outcome {
        let at = Remote {
            addr: peer.addr.wrapping_add(request.there),
            rkey: RemoteKey(request.rkey.unwrap_or(peer.rkey)),
        };
        let work = match request.op {
            Op::Send => Work::Send,
            Op::SendImm(imm) => Work::SendImmediate(Immediate::from_be(imm)),
            Op::SendInv(key) => Work::SendInvalidate(RemoteKey(key)),
            Op::Write => Work::Write(at),
            Op::WriteImm(imm) => Work::WriteImmediate(at, Immediate::from_be(imm)),
            Op::Read => Work::Read(at),
            Op::Cas { compare, swap } => Work::CompareSwap { at, compare, swap },
            Op::Faa(add) => Work::FetchAdd { at, add },
        };
        let sges = &[self.sge(request.at, request.len)];
        let to = self.handle.map(|address| Datagram {
            address,
            qp: QpNumber::new(peer.qpn),
            qkey: QKEY,
        });
        self.qp
            .post_send(&SendRequest {
                to,
                ..SendRequest::new(request.id, work, sges)
            })
            .map_err(text)?;
        self.card.doorbell(self.port.now(), self.qp.number());
        Ok(())
    }

    pub(super) fn bind(&mut self, wr_id: u64, len: usize) -> Outcome<u32> {
        let window = self
            .card
            .alloc_mw(self.pd, WindowType::Type2)
            .map_err(text)?;
        let key = RemoteKey(window.0 & !0xff | window.0.wrapping_add(1) & 0xff);
        let binding = Binding {
            lkey: self.region.lkey,
            addr: self.region.addr,
            len: len as u64,
            access: Access::REMOTE_WRITE,
            zero_based: false,
        };
        let work = Work::BindWindow { key, binding };
        self.qp
            .post_send(&SendRequest::new(wr_id, work, &[]))
            .map_err(text)?;
        self.card.doorbell(self.port.now(), self.qp.number());
        Ok(key.0)
    }

    /// Works for all of `time`.
    pub(super) fn idle(&mut self, time: Duration) -> Outcome {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.work(left.min(Duration::from_millis(10)))?;
        }
        Ok(())
    }

    pub(super) fn poll(&mut self, patience: Duration) -> Outcome<Option<Done>> {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.cq.poll() {
                return Ok(Some(done(&completion)));
            }
            if start.elapsed() >= patience {
                return Ok(None);
            }
            self.work(Duration::from_millis(5))?;
        }
    }

    pub(super) fn in_error(&self) -> bool {
        self.qp.state() == State::Error
    }

    pub(super) fn describe(&self) -> String {
        let recent = self.card.recent(self.qp.number());
        format!(
            "{:?}, {:?}, {recent:?}",
            self.port.counters(),
            self.card.counters()
        )
    }
}

pub(super) fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

fn done(c: &Completion) -> Done {
    let receive = matches!(
        c.kind,
        CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
    );
    Done {
        id: c.wr_id,
        status: c.status.number() as u8,
        receive,
        bytes: c.byte_len,
        imm: c.immediate.map(Immediate::get),
        inv: c.invalidated.map(|key| key.0),
        src: c.src_qp.get(),
    }
}
