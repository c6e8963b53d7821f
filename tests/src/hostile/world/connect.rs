//! How links are connected, fail, and are connected again.

use super::*;

impl World {
    /// The attributes that bring a side of a link up, in order.
    pub(super) fn steps(&self, link: usize, side: usize, psns: [Psn; 2]) -> [QpAttributes; 3] {
        let l = &self.links[link];
        let (rc, connected) = (l.service == QpType::Rc, l.service != QpType::Ud);
        let other = if side == 0 && l.strict {
            BYSTANDER
        } else if side == 0 {
            MARK
        } else {
            VICTIM
        };
        let peer_qp = if side == 0 {
            l.peer_qp
        } else {
            l.sides[0].qp.number()
        };
        let to = |state| QpAttributes {
            state: Some(state),
            ..Default::default()
        };
        [
            QpAttributes {
                pkey_index: Some(0),
                port: Some(1),
                access: connected.then(all_rights),
                qkey: (!connected).then_some(l.qkey),
                ..to(State::Init)
            },
            QpAttributes {
                address: connected.then(|| address_of(gid(other, self.attack.forging), mac(other))),
                path_mtu: connected.then_some(MTU),
                dest_qp: connected.then_some(peer_qp),
                rq_psn: connected.then_some(psns[1 - side]),
                max_dest_rd_atomic: rc.then_some(READS),
                min_rnr_timer: rc.then_some(1),
                ..to(State::Rtr)
            },
            QpAttributes {
                sq_psn: Some(psns[side]),
                // What nobody disturbs never waits so long; the others are to give up soon.
                timeout: rc.then_some(if l.strict { 14 } else { 6 }),
                retry_cnt: rc.then_some(3),
                rnr_retry: rc.then_some(3),
                max_rd_atomic: rc.then_some(READS),
                ..to(State::Rts)
            },
        ]
    }

    /// Connects a link anew, with other PSNs, near the wrap now and then.
    pub(super) fn connect(&mut self, link: usize) {
        let psns = [0, 1].map(|_| match self.s.below(3) {
            0 => Psn::new(0u32.wrapping_sub(self.s.below(40) as u32)),
            _ => Psn::new(self.s.bits() as u32),
        });
        self.links[link].restart();
        // A request that a message has taken from a shared queue would vanish: it is flushed first.
        for side in &self.links[link].sides {
            let error = QpAttributes {
                state: Some(State::Error),
                ..Default::default()
            };
            let number = side.qp.number();
            self.cards[side.card]
                .modify_qp(self.now, number, &error)
                .unwrap();
        }
        self.poll();
        for side in 0..self.links[link].sides.len() {
            let steps = self.steps(link, side, psns);
            let l = &mut self.links[link];
            let s = &mut l.sides[side];
            let number = s.qp.number();
            let card = &mut self.cards[s.card];
            let reset = QpAttributes {
                state: Some(State::Reset),
                ..Default::default()
            };
            card.modify_qp(self.now, number, &reset).unwrap();
            card.modify_qp(self.now, number, &steps[0]).unwrap();
            if l.service != QpType::Ud {
                // The binding that did not complete was carried out, or not.
                let keys = [s.window.next, Some(s.window.key)];
                for key in keys.into_iter().flatten() {
                    let _ = card.dealloc_mw(key);
                }
                s.window = Window {
                    key: card.alloc_mw(s.pd, WindowType::Type2).unwrap(),
                    ..Default::default()
                };
            }
            for slot in 0..RECEIVES {
                self.post_receive(link, side, slot);
            }
            let s = &self.links[link].sides[side];
            let card = &mut self.cards[s.card];
            for step in &steps[1..] {
                card.modify_qp(self.now, number, step).unwrap();
            }
        }
        self.forger.targets[link].restart(psns[1], psns[0]);
        self.show_window(link);
    }

    /// Lets the forger know the window's key.
    pub(super) fn show_window(&mut self, link: usize) {
        let l = &self.links[link];
        let (key, vault) = (l.sides[0].window.key, &l.sides[0].vault);
        if let Some(i) = self.forger.targets[link].window {
            let at = &mut self.forger.windows[i].at;
            at.rkey = key;
            at.addr = match l.zero_based(key) {
                true => 0,
                false => vault.remote(OPEN_SLOT).addr,
            };
        }
    }

    pub(super) fn post_receive(&mut self, link: usize, side: usize, slot: usize) {
        let s = &mut self.links[link].sides[side];
        let number = (s.queue as u64) << 48;
        let queue = &mut self.queues[s.queue];
        if queue.posted[slot].is_some() {
            return;
        }
        let whole = queue.slots.sge(slot, SLOT);
        let mut sges = [whole, whole];
        sges[0].len = 300;
        sges[1].addr += 300;
        sges[1].len -= 300;
        let wr_id = queue.next << 8 | slot as u64;
        let request = RecvRequest {
            wr_id: RECEIVE | number | wr_id,
            sges: &sges,
        };
        match &mut queue.srq {
            Some(srq) => srq.post_recv(&request).unwrap(),
            None => {
                s.qp.post_recv(&request).unwrap();
                let number = s.qp.number();
                self.cards[s.card].doorbell(self.now, number);
            }
        }
        queue.posted[slot] = Some(wr_id);
        queue.next += 1;
    }

    /// Connections that have failed are taken down, lie there for a while in some state, and begin anew.
    pub(super) fn mend(&mut self) {
        for link in 0..self.links.len() {
            let l = &mut self.links[link];
            if l.rests > 0 {
                l.rests -= 1;
                if l.rests == 0 {
                    self.connect(link);
                }
                continue;
            }
            let broken = |s: &Side| matches!(s.qp.state(), State::Error | State::Sqe);
            if l.sides.iter().any(broken) {
                assert!(!l.strict, "link {link} has failed");
                self.take_down(link);
            }
        }
    }

    pub(super) fn take_down(&mut self, link: usize) {
        let to = |state| QpAttributes {
            state: Some(state),
            ..Default::default()
        };
        for side in 0..self.links[link].sides.len() {
            let s = &self.links[link].sides[side];
            let number = s.qp.number();
            self.cards[s.card]
                .modify_qp(self.now, number, &to(State::Error))
                .unwrap();
        }
        self.poll();
        for side in &self.links[link].sides {
            assert!(
                side.lane.pending.is_empty(),
                "link {link}: not everything has completed"
            );
            let queue = &self.queues[side.queue];
            let posted = queue.posted.iter().flatten().count();
            assert!(
                queue.srq.is_some() || posted == 0,
                "link {link}: {posted} receives"
            );
        }
        let l = &mut self.links[link];
        l.failures += 1;
        l.rests = 1 + self.s.below(6);
        let psns = [Psn::new(self.s.bits() as u32); 2];
        // In ERROR, RESET, INIT or RTR.
        let depth = self.s.below(4);
        let steps = self.steps(link, 0, psns);
        let number = self.links[link].sides[0].qp.number();
        let card = &mut self.cards[VICTIM];
        if depth > 0 {
            card.modify_qp(self.now, number, &to(State::Reset)).unwrap();
        }
        for step in steps.iter().take((depth as usize).saturating_sub(1)) {
            card.modify_qp(self.now, number, step).unwrap();
        }
        self.forger.targets[link].restart(psns[1], psns[0]);
    }
}
