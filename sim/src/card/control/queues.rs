//! Completion queues and shared receive queues.

use super::{CreateError, MAX_CQE, MAX_SGE, MAX_WR, within};
use crate::card::program::{CompletionQueue, SharedReceiveQueue, work_queue};
use crate::card::qp::Srq;
use crate::card::queue::ring;
use crate::card::work::{CqId, SrqId};
use crate::card::{AsyncEvent, Card, Cq, Notify};
use crate::memory::Pd;
use crate::places::MAX_PLACES;

impl Card {
    /// A completion queue for `entries` completions.
    pub fn create_cq(&mut self, entries: u32) -> Result<CompletionQueue, CreateError> {
        within("cqe", entries, 1, MAX_CQE)?;
        let (writer, reader) = ring(entries);
        let place = self.desk.cqs.insert(Cq {
            ring: writer,
            overrun: false,
            armed: None,
            users: 0,
            special: false,
        });
        let id = CqId(place.ok_or(CreateError::full("completion queues", MAX_PLACES))?);
        Ok(CompletionQueue { id, ring: reader })
    }

    /// Makes a completion queue hold `entries` completions; those in it stay (`ibv_resize_cq`).
    pub fn resize_cq(&mut self, cq: &mut CompletionQueue, entries: u32) -> Result<(), CreateError> {
        within("cqe", entries, 1, MAX_CQE)?;
        let queue = self.cq(cq.id)?;
        let waiting = (cq.ring.tail() - cq.ring.head()) as u32;
        within("cqe", entries, waiting.max(1), MAX_CQE)?;
        let (mut writer, reader) = ring(entries);
        while let Some(c) = cq.ring.pop() {
            // Fits: the new ring holds at least as many as wait.
            let _ = writer.push(c);
        }
        (queue.ring, cq.ring) = (writer, reader);
        Ok(())
    }

    pub(super) fn cq(&mut self, id: CqId) -> Result<&mut Cq, CreateError> {
        let queue = self.desk.cqs.get_mut(id.0);
        queue.ok_or(CreateError::UnknownCq(id))
    }

    /// Asks for a notification, once (`ibv_req_notify_cq`). One that is armed for any completion stays so.
    pub fn request_notify(&mut self, cq: CqId, which: Notify) -> Result<(), CreateError> {
        let queue = self.cq(cq)?;
        let before = queue.armed;
        if before != Some(Notify::Next) {
            queue.armed = Some(which);
        }
        self.desk.armed += u32::from(before.is_none());
        Ok(())
    }

    /// Takes a request for a notification back. One that was given stays.
    pub fn cancel_notify(&mut self, cq: CqId) -> Result<(), CreateError> {
        let was = self.cq(cq)?.armed.take();
        self.desk.armed -= u32::from(was.is_some());
        Ok(())
    }

    /// Completions so far: it has moved if a program has something to poll.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.desk.completed
    }

    /// Completion queues that are armed: their programs are, or will be, asleep.
    #[inline]
    pub fn armed(&self) -> u32 {
        self.desk.armed
    }

    /// A completion queue that was armed and has a completion now.
    pub fn next_notification(&mut self) -> Option<CqId> {
        self.desk.notifications.pop_front()
    }

    /// True if there is a notification or an event that nobody took.
    pub fn has_news(&self) -> bool {
        !self.desk.notifications.is_empty() || !self.desk.events.is_empty()
    }

    /// A shared receive queue for `max_wr` requests of `max_sge` elements.
    pub fn create_srq(
        &mut self,
        pd: Pd,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue, CreateError> {
        within("max_wr", max_wr, 1, MAX_WR)?;
        within("max_sge", max_sge, 1, MAX_SGE)?;
        if !self.desk.memory.has_pd(pd) {
            return Err(CreateError::UnknownPd(pd));
        }
        let (writer, queue) = work_queue(max_wr, max_sge);
        let place = self.desk.srqs.insert(Srq {
            queue,
            pd,
            limit: 0,
            users: 0,
        });
        let id = SrqId(place.ok_or(CreateError::full("shared receive queues", MAX_PLACES))?);
        Ok(SharedReceiveQueue { id, queue: writer })
    }

    /// Sets the number of waiting requests below which the program is told, once; zero for never
    /// (`ibv_modify_srq`).
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), CreateError> {
        let queue = self.srq(srq)?;
        within("srq_limit", limit, 0, queue.queue.entries.capacity())?;
        queue.limit = limit;
        Ok(())
    }

    pub(super) fn srq(&mut self, id: SrqId) -> Result<&mut Srq, CreateError> {
        let queue = self.desk.srqs.get_mut(id.0);
        queue.ok_or(CreateError::UnknownSrq(id))
    }

    /// Destroys a shared receive queue that no queue pair takes from. What waits in it, or is posted from here
    /// on, vanishes.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), CreateError> {
        let users = self.srq(srq)?.users;
        if users > 0 {
            let what = "the shared receive queue";
            return Err(CreateError::InUse { what, users });
        }
        self.desk.srqs.remove(srq.0);
        let of_it = AsyncEvent::SrqLimitReached(srq);
        self.desk.events.retain(|&event| event != of_it);
        Ok(())
    }

    /// Destroys a completion queue that no queue pair uses (C11-17).
    pub fn destroy_cq(
        &mut self,
        cq: CompletionQueue,
    ) -> Result<(), (CreateError, CompletionQueue)> {
        match self.cq(cq.id) {
            Err(error) => return Err((error, cq)),
            Ok(&mut Cq { users: 0, .. }) => {}
            Ok(&mut Cq { users, .. }) => {
                let what = "the completion queue";
                return Err((CreateError::InUse { what, users }, cq));
            }
        }
        let gone = self.desk.cqs.remove(cq.id.0);
        let was_armed = gone.is_some_and(|queue| queue.armed.is_some());
        self.desk.armed -= u32::from(was_armed);
        self.desk.notifications.retain(|&id| id != cq.id);
        let of_it = AsyncEvent::CqError(cq.id);
        self.desk.events.retain(|&event| event != of_it);
        Ok(())
    }
}
