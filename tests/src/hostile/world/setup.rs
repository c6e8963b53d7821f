//! The cards, queue pairs and memory of an attack.

use super::*;

fn timing(slow: bool) -> Timing {
    if !slow {
        return Timing::default();
    }
    Timing {
        doorbell: Span::from_ns(300),
        ack: Span::from_ns(700),
        nak: Span::from_ns(900),
        retransmit: Span::from_us(2),
    }
}
impl World {
    pub(super) fn new(attack: Attack) -> World {
        let table = RouteTable::new();
        let count = if attack.forging { 3 } else { 2 };
        let mut cards: Vec<Card> = (0..count)
            .map(|i| {
                let mut config =
                    CardConfig::new(format!("card {i}"), gid(i, attack.forging), mac(i));
                if i == VICTIM {
                    if attack.rxe {
                        config = config.with_profile(&profile::RXE);
                    }
                    if attack.go_back_0 {
                        config.recovery = recovery::GO_BACK_0;
                    }
                    config.timing = timing(attack.slow);
                }
                Card::new(config, attack.seed, table.clone())
            })
            .collect();
        let cqs: Vec<CompletionQueue> = cards
            .iter_mut()
            .map(|card| card.create_cq(8192).unwrap())
            .collect();
        let route = Route {
            encapsulation: Encapsulation::RoceV2,
            src_mac: mac(MARK),
            dst_mac: mac(VICTIM),
            src: gid(MARK, attack.forging),
            dst: gid(VICTIM, attack.forging),
            udp_src: 0xc000,
            vlan: None,
            dscp: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let group: Gid = Ipv4Addr::new(239, 1, 2, 3).into();
        let route_id = table.intern(route);
        let pds: Vec<Vec<Pd>> = cards
            .iter_mut()
            .map(|card| vec![card.alloc_pd(), card.alloc_pd()])
            .collect();
        let (secrets, closed, helper) = secrets(&mut cards[VICTIM], &pds[VICTIM], &cqs, attack);
        let mut world = World {
            attack,
            cards,
            cqs,
            wires: Default::default(),
            table,
            routes: Vec::new(),
            pool: Pool::default(),
            links: Vec::new(),
            queues: Vec::new(),
            secrets,
            _helper: helper,
            forger: Forger::new(attack.seed, route, route_id, group),
            now: Time::ZERO,
            s: Stream::new(attack.seed, "world"),
            tally: Tally::default(),
            struck: 0,
            handed: 0,
            pulled: 0,
            delivered: Vec::new(),
            drought: 0,
        };
        world.forger.closed = closed;
        for peer in [BYSTANDER, MARK] {
            let mut shared = [None; 3];
            for (service, srq) in [
                (QpType::Rc, false),
                (QpType::Rc, true),
                (QpType::Rc, true),
                (QpType::Uc, false),
                (QpType::Ud, false),
            ] {
                world.make(peer, service, srq.then_some(&mut shared), &pds);
            }
        }
        let datagrams: Vec<QpNumber> = world
            .links
            .iter()
            .filter(|l| l.service == QpType::Ud)
            .map(|l| l.sides[0].qp.number())
            .collect();
        for number in datagrams {
            world.cards[VICTIM].attach_mcast(number, group).unwrap();
        }
        world
    }

    /// A link of the victim with `peer`.
    pub(super) fn make(
        &mut self,
        peer: usize,
        service: QpType,
        mut shared: Option<&mut [Option<usize>; 3]>,
        pds: &[Vec<Pd>],
    ) {
        let number = self.links.len();
        let strict = peer == BYSTANDER;
        let mut sides = Vec::new();
        let ends = [VICTIM, peer];
        let there = self.cards.len();
        for (i, &at) in ends.iter().filter(|&&c| c < there).enumerate() {
            let card = &mut self.cards[at];
            // At the victim the two peers' queue pairs are in domains of their own.
            let pd = pds[at][usize::from(at == VICTIM && strict)];
            let known = shared.as_ref().and_then(|s| s[at]);
            let (queue, srq) = match known {
                Some(queue) => (queue, self.queues[queue].srq.as_ref().map(|q| q.id())),
                None => {
                    let srq = shared
                        .as_ref()
                        .map(|_| card.create_srq(pd, RECEIVES as u32, 2));
                    let srq = srq.map(Result::unwrap);
                    let id = srq.as_ref().map(|q| q.id());
                    self.queues.push(Queue {
                        slots: Slots::private(card, pd, RECEIVES),
                        posted: vec![None; RECEIVES],
                        next: 0,
                        srq,
                        last: None,
                    });
                    (self.queues.len() - 1, id)
                }
            };
            if let Some(shared) = &mut shared {
                shared[at] = Some(queue);
            }
            let qp = card
                .create_qp(&QpInit {
                    max_recv_sge: 2,
                    max_recv_wr: RECEIVES as u32,
                    max_inline: 64,
                    srq,
                    ..QpInit::new(service, pd, self.cqs[at].id(), WINDOW as u32)
                })
                .unwrap();
            let open = Slots::new(card, pd, all_rights(), WINDOW + 2, 0x40, 0x40);
            let mut library = [0; SLOT];
            pattern(number, i, u64::MAX, &mut library);
            open.write(LIBRARY, &library);
            let rights = Access::LOCAL_WRITE | Access::MW_BIND;
            let vault = Slots::new(card, pd, rights, 3, SECRET, SECRET);
            vault.write(OPEN_SLOT, &[0x40; SLOT]);
            let address = address_of(gid(ends[1 - i], self.attack.forging), mac(ends[1 - i]));
            let ah = (service == QpType::Ud).then(|| card.create_ah(pd, &address).unwrap());
            sides.push(Side {
                card: at,
                qp,
                pd,
                own: Slots::private(card, pd, WINDOW),
                open,
                vault,
                window: Window::default(),
                queue,
                ah,
                lane: Lane::default(),
            });
        }
        let peer_qp = match sides.get(1) {
            Some(side) => side.qp.number(),
            None => QpNumber::new(0x77 + number as u32),
        };
        let qkey = if strict { 0x5566_7788 } else { 0x1122_3344 };
        let victim = &sides[0];
        self.forger.targets.push(Target {
            qp: victim.qp.number(),
            service,
            mtu: MTU.bytes(),
            reachable: !strict,
            expected: Psn::default(),
            sent: Psn::default(),
            qkey: if strict { !qkey } else { qkey },
            message: None,
            window: None,
            waits: false,
            asked: None,
        });
        let place = |slots: &Slots| Place {
            at: slots.remote(0),
            len: slots.mr.len - Slots::offset(0) as u64,
        };
        let (open, own, vault) = (
            place(&victim.open),
            place(&victim.own),
            place(&victim.vault),
        );
        self.forger.closed.extend([own, vault]);
        let window = Place {
            at: victim.vault.remote(OPEN_SLOT),
            len: SLOT as u64,
        };
        let forger = &mut self.forger;
        let window = if strict {
            forger.closed.extend([open, window]);
            None
        } else {
            forger.open.push(open);
            (service != QpType::Ud).then(|| {
                forger.windows.push(window);
                forger.windows.len() - 1
            })
        };
        if let Some(target) = self.forger.targets.last_mut() {
            target.window = window;
        }
        self.delivered.push(0);
        self.links.push(Link {
            service,
            strict,
            sides,
            peer_qp,
            qkey,
            rests: 0,
            failures: 0,
        });
    }
}

/// Memory and keys of the victim's that open nothing to the hostile peer.
fn secrets(
    card: &mut Card,
    pds: &[Pd],
    cqs: &[CompletionQueue],
    attack: Attack,
) -> (Vec<Secret>, Vec<Place>, QueuePair) {
    let local = Access::LOCAL_WRITE | Access::MW_BIND;
    let mut secrets = Vec::new();
    let mut closed = Vec::new();
    for (name, pd, access, fill) in [
        ("a region without remote rights", pds[0], local, SECRET),
        (
            "a region to be written",
            pds[0],
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            SECRET,
        ),
        (
            "a region to be read",
            pds[0],
            Access::REMOTE_READ,
            HOSTILE_BELOW - 1,
        ),
        ("a region of another domain", pds[1], all_rights(), SECRET),
        ("a region that has ended", pds[0], all_rights(), SECRET),
        (
            "a region with a window of another queue pair",
            pds[0],
            local,
            SECRET,
        ),
        (
            "a region with a window that is invalidated",
            pds[0],
            local,
            SECRET,
        ),
        (
            "a region with a window that is unbound",
            pds[0],
            local,
            SECRET,
        ),
        (
            "a region with a window to read the second slot",
            pds[0],
            local,
            SECRET,
        ),
    ] {
        let slots = Slots::new(card, pd, access, 3, fill, fill);
        closed.push(Place {
            at: slots.remote(0),
            len: slots.mr.len,
        });
        secrets.push(Secret {
            writable: name == "a region to be written",
            expected: slots.buffer.to_vec(),
            slots,
            name,
        });
    }
    card.deregister(secrets[4].slots.mr.lkey).unwrap();
    // The helper's peer is another than the hostile one, so only it can use the window.
    let mut helper = card
        .create_qp(&QpInit::new(QpType::Rc, pds[0], cqs[VICTIM].id(), 8))
        .unwrap();
    let number = helper.number();
    let to = |state| QpAttributes {
        state: Some(state),
        ..Default::default()
    };
    for step in [
        QpAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(all_rights()),
            ..to(State::Init)
        },
        QpAttributes {
            address: Some(address_of(gid(BYSTANDER, attack.forging), mac(BYSTANDER))),
            path_mtu: Some(MTU),
            dest_qp: Some(QpNumber::new(0x99)),
            rq_psn: Some(Psn::new(5)),
            max_dest_rd_atomic: Some(READS),
            min_rnr_timer: Some(1),
            ..to(State::Rtr)
        },
        QpAttributes {
            sq_psn: Some(Psn::new(5)),
            timeout: Some(14),
            retry_cnt: Some(3),
            rnr_retry: Some(3),
            max_rd_atomic: Some(READS),
            ..to(State::Rts)
        },
    ] {
        card.modify_qp(Time::ZERO, number, &step).unwrap();
    }
    let whole = |slots: &Slots, access| Binding {
        lkey: slots.mr.lkey,
        addr: slots.mr.addr,
        len: slots.mr.len,
        access,
        zero_based: false,
    };
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    for at in [5, 6] {
        let key = RemoteKey(card.alloc_mw(pds[0], WindowType::Type2).unwrap().0 ^ 1);
        let binding = whole(&secrets[at].slots, rights);
        let work = Work::BindWindow { key, binding };
        helper
            .post_send(&SendRequest::new(HELPER, work, &[]))
            .unwrap();
        if at == 6 {
            let work = Work::LocalInvalidate(key);
            let request = SendRequest {
                signaled: false,
                ..SendRequest::new(HELPER, work, &[])
            };
            helper.post_send(&request).unwrap();
        }
        closed[at].at.rkey = key;
    }
    card.doorbell(Time::ZERO, number);
    let nothing = card.next_packet(Time::ZERO, PriorityMask::ALL, &mut Pool::default());
    assert_eq!(nothing, None);
    // Windows of type 1: one that was bound and is not, and one to a part.
    let key = card.alloc_mw(pds[0], WindowType::Type1).unwrap();
    let was = card
        .bind_mw(number, key, whole(&secrets[7].slots, rights))
        .unwrap();
    let nothing = Binding {
        len: 0,
        ..whole(&secrets[7].slots, rights)
    };
    card.bind_mw(number, was, nothing).unwrap();
    closed[7].at.rkey = was;
    let slots = &mut secrets[8];
    slots.slots.write(1, &[HOSTILE_BELOW - 1; SLOT]);
    slots.expected = slots.slots.buffer.to_vec();
    let key = card.alloc_mw(pds[0], WindowType::Type1).unwrap();
    let part = Binding {
        addr: slots.slots.remote(1).addr,
        len: SLOT as u64,
        ..whole(&slots.slots, Access::REMOTE_READ)
    };
    closed[8].at.rkey = card.bind_mw(number, key, part).unwrap();
    (secrets, closed, helper)
}
