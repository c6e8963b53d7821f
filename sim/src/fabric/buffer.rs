//! The memory of a switch: who may put how much in it.
//!
//! What waits is counted by where it came in: the port, that is the channel that ends there, and the
//! priority. Each such count first uses its reserve, then the shared pool, and, if its priority is
//! lossless, its headroom after that. A packet whose count is not above its threshold is taken into the
//! pool if the pool has room, so that a count may pass its threshold by less than one frame.

use super::counters::DropCause;
use super::pfc::Threshold;
use super::switch::{Ratio, SwitchError, SwitchSpec};
use crate::card::PriorityMask;

/// The shared memory of one switch.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Bytes that all may use.
    pool: u64,
    used: u64,
    reserved: u64,
    /// The threshold, beyond the reserve: so many times what is free in the pool, over `divisor`, ...
    times: u64,
    divisor: u64,
    /// ... and so many bytes.
    fixed: u64,
    resume: u64,
    lossy_share: Option<Ratio>,
    lossless: PriorityMask,
}

/// What came in by one channel and waits, and whom its end has paused for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ingress {
    /// What each lossless priority may have in headroom.
    limit: u64,
    /// Priorities that are paused.
    pub(super) off: PriorityMask,
    /// Those of them that are because a frame found no room, not because too much waits.
    pub(super) refused: PriorityMask,
    /// By priority.
    counts: [Count; 8],
}

/// Bytes that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    /// In reserve and pool.
    shared: u64,
    headroom: u64,
}

impl Ingress {
    pub(super) fn new(limit: u64) -> Ingress {
        Ingress {
            limit,
            ..Ingress::default()
        }
    }

    /// Bytes that wait in a priority.
    pub(super) fn waiting(&self, priority: u8) -> u64 {
        let count = &self.counts[usize::from(priority & 7)];
        count.shared + count.headroom
    }
}

impl Buffer {
    /// The memory of a switch whose ports have so many bytes of headroom for each lossless priority.
    pub(super) fn new(
        spec: &SwitchSpec,
        headroom: impl Iterator<Item = u64>,
    ) -> Result<Buffer, SwitchError> {
        let lossless = spec.lossless();
        let pool = spec.left(headroom)?;
        let threshold = spec.pfc.map_or(Threshold::Static(0), |pfc| pfc.threshold);
        let (times, divisor, fixed) = match threshold {
            Threshold::Static(bytes) => (0, 1, bytes),
            Threshold::Dynamic(alpha) => (alpha.numerator(), alpha.denominator(), 0),
        };
        Ok(Buffer {
            pool: pool.min(Ratio::MOST),
            used: 0,
            reserved: spec.reserved,
            times,
            divisor,
            fixed,
            resume: spec.pfc.map_or(0, |pfc| pfc.resume),
            lossy_share: spec.lossy_share,
            lossless,
        })
    }

    /// The lossless priorities.
    #[inline]
    pub(super) fn lossless(&self) -> PriorityMask {
        self.lossless
    }

    /// True if a threshold rises when others leave the pool.
    #[inline]
    pub(super) fn is_dynamic(&self) -> bool {
        self.times != 0
    }

    /// Bytes of the pool in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// True if a count, beyond its reserve, is not above what it may be before its sender is paused, with so
    /// much of the pool in use.
    #[inline]
    fn is_below(&self, count: u64, used: u64) -> bool {
        // No division: count <= floor(free * times / divisor).
        let threshold = (self.pool - used) * self.times + self.fixed;
        count.saturating_mul(self.divisor) <= threshold
    }

    /// What of a count is in the pool.
    #[inline]
    fn pooled(&self, count: u64) -> u64 {
        count.saturating_sub(self.reserved)
    }

    /// True if a lossy queue that has `queued` bytes may take `len` more.
    #[inline]
    pub(super) fn shares(&self, queued: u64, len: u16) -> bool {
        match self.lossy_share {
            Some(alpha) => queued + u64::from(len) <= alpha.of(self.pool - self.used),
            None => true,
        }
    }

    /// Takes in a packet, or says why not.
    #[inline]
    pub(super) fn admit(
        &mut self,
        from: &mut Ingress,
        priority: u8,
        len: u16,
        lossless: bool,
    ) -> Result<(), DropCause> {
        let p = usize::from(priority & 7);
        let len = u64::from(len);
        let count = from.counts[p].shared;
        let pooled = self.pooled(count);
        let more = self.pooled(count + len) - pooled;
        let fits = more <= self.pool - self.used;
        if fits && (!lossless || self.is_below(pooled, self.used)) {
            from.counts[p].shared = count + len;
            self.used += more;
            return Ok(());
        }
        if !lossless {
            return Err(DropCause::BufferFull);
        }
        if from.counts[p].headroom + len > from.limit {
            return Err(DropCause::HeadroomFull);
        }
        from.counts[p].headroom += len;
        Ok(())
    }

    /// Gives back the room of a packet, headroom first.
    #[inline]
    pub(super) fn release(&mut self, from: &mut Ingress, priority: u8, len: u16) {
        let p = usize::from(priority & 7);
        let len = u64::from(len);
        let over = len.min(from.counts[p].headroom);
        from.counts[p].headroom -= over;
        let count = from.counts[p].shared;
        let left = count - (len - over);
        from.counts[p].shared = left;
        self.used -= self.pooled(count) - self.pooled(left);
    }

    /// True if who found no room would find some with `waiting` bytes of its own left and `used` bytes of the
    /// pool in use: as much of the pool as a count must be below its threshold, or all that it can ever find.
    fn has_room(&self, waiting: u64, used: u64) -> bool {
        let all = waiting == 0 && used == 0;
        all || self.pool - used >= self.resume.max(1)
    }

    /// True if something of a count is in the pool.
    pub(super) fn is_in_pool(&self, from: &Ingress, priority: u8) -> bool {
        self.pooled(from.counts[usize::from(priority & 7)].shared) > 0
    }

    /// Bytes of the pool that are free once `gone` bytes of what came in are gone, headroom first.
    pub(super) fn frees(&self, from: &Ingress, priority: u8, gone: u64) -> u64 {
        let Count { shared, headroom } = from.counts[usize::from(priority & 7)];
        let left = shared.saturating_sub(gone.saturating_sub(headroom));
        self.pooled(shared) - self.pooled(left)
    }

    /// True if the sender of what came in is to be paused.
    #[inline]
    pub(super) fn is_over(&self, from: &Ingress, priority: u8) -> bool {
        let p = usize::from(priority & 7);
        from.counts[p].headroom > 0 || !self.is_below(self.pooled(from.counts[p].shared), self.used)
    }

    /// True if the sender of what came in may be let go. Then what is in headroom moves into the pool.
    #[inline]
    pub(super) fn relieves(&mut self, from: &mut Ingress, priority: u8) -> bool {
        if !self.is_relieved_by(from, priority, 0, 0) {
            return false;
        }
        let p = usize::from(priority & 7);
        let moved = std::mem::take(&mut from.counts[p].headroom);
        let count = from.counts[p].shared;
        from.counts[p].shared = count + moved;
        self.used += self.pooled(count + moved) - self.pooled(count);
        true
    }

    /// True if the sender could be let go once `gone` bytes of what it sent were gone, and `freed` of
    /// the pool: if all that is left, headroom included, fits in the pool and is below the threshold there,
    /// and leaves room if a frame found none.
    pub(super) fn is_relieved_by(
        &self,
        from: &Ingress,
        priority: u8,
        gone: u64,
        freed: u64,
    ) -> bool {
        let p = usize::from(priority & 7);
        let now = self.pooled(from.counts[p].shared);
        let waiting = from.waiting(priority).saturating_sub(gone);
        let left = self.pooled(waiting);
        // What moves out of headroom takes room in the pool.
        let used = self.used.saturating_sub(freed) + left.saturating_sub(now);
        used <= self.pool
            && (left == 0 || self.is_below(left.saturating_add(self.resume), used))
            && (!from.refused.contains(priority) || self.has_room(waiting, used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::pfc::{Headroom, PfcSpec};
    use proptest::prelude::*;

    /// The switch of DCQCN's section 4: 32 ports, 12 MB, eight priorities, 22.4 KB of headroom.
    fn trident(threshold: Threshold) -> SwitchSpec {
        SwitchSpec {
            buffer: 12_000_000,
            pfc: Some(PfcSpec {
                headroom: Headroom::Bytes(22_400),
                resume: 3_000,
                ..PfcSpec::new(PriorityMask::ALL, threshold)
            }),
            ..SwitchSpec::default()
        }
    }

    fn alpha(n: u16, d: u16) -> Threshold {
        Threshold::Dynamic(Ratio::new(n, d).unwrap())
    }

    #[test]
    fn the_thresholds_of_dcqcn_are_those_of_its_arithmetic() {
        let new = |spec: &SwitchSpec| Buffer::new(spec, [22_400; 32].into_iter()).unwrap();
        // All headroom set aside, each of 256 queues may have 24.47 KB and not a byte more.
        let pool = new(&trident(Threshold::Static(0))).pool;
        assert_eq!(pool, 12_000_000 - 8 * 32 * 22_400);
        assert_eq!(pool / 256, 24_475);
        // An ECN threshold for each of the port's queues below a 32nd of that is less than one MTU.
        assert!(pool / 256 / 32 < 1500);
        // With the dynamic threshold of beta = 8, which there is a multiple of free / 8, one port that
        // fills its eight priorities alike is paused at beta P / 8 (beta + 1): spread over the queues of
        // 32 ports, these have 21.75 KB.
        let mut buffer = new(&trident(alpha(1, 1)));
        let mut port = Ingress::new(22_400);
        let paused_at = 'full: loop {
            for p in 0..8 {
                buffer.admit(&mut port, p, 1, true).unwrap();
                if buffer.is_over(&port, p) {
                    break 'full port.waiting(p);
                }
            }
        };
        assert_eq!(paused_at, 8 * pool / 8 / 9 + 1);
        assert_eq!(paused_at / 32, 21_755);
    }

    #[test]
    fn an_alpha_of_an_eighth_gives_one_queue_a_ninth() {
        let spec = SwitchSpec {
            buffer: 9_000_000,
            ..trident(alpha(1, 8))
        };
        let mut buffer = Buffer::new(&spec, [].into_iter()).unwrap();
        let mut port = Ingress::new(0);
        while !buffer.is_over(&port, 3) {
            buffer.admit(&mut port, 3, 100, true).unwrap();
        }
        assert_eq!(port.waiting(3), 1_000_100);
    }

    #[test]
    fn above_the_threshold_bytes_go_to_headroom_and_leave_it_first() {
        let spec = trident(Threshold::Static(10_000));
        let mut buffer = Buffer::new(&spec, [22_400; 2].into_iter()).unwrap();
        let mut port = Ingress::new(22_400);
        // Ten make the count 10,000, which is not above the threshold; the eleventh is.
        for n in 1..=11 {
            buffer.admit(&mut port, 3, 1000, true).unwrap();
            assert_eq!(buffer.is_over(&port, 3), n == 11);
        }
        assert_eq!(port.counts[3].headroom, 0);
        for _ in 0..22 {
            buffer.admit(&mut port, 3, 1000, true).unwrap();
        }
        let (shared, headroom) = (11_000, 22_000);
        assert_eq!(port.counts[3], Count { shared, headroom });
        let full = buffer.admit(&mut port, 3, 401, true);
        assert_eq!(full, Err(DropCause::HeadroomFull));
        buffer.admit(&mut port, 3, 400, true).unwrap();
        // Relieved 3000 below the threshold, when the headroom has long been empty.
        let mut relieved = None;
        for n in 0..33 {
            buffer.release(&mut port, 3, 1000);
            if relieved.is_none() && buffer.relieves(&mut port, 3) {
                relieved = Some((n, port.waiting(3)));
            }
        }
        assert_eq!(relieved, Some((26, 6_400)));
        assert_eq!((port.waiting(3), buffer.used()), (400, 400));
        // What one queue has in headroom, no other can use.
        assert_eq!(port.counts.map(|c| c.headroom), [0; 8]);
    }

    #[test]
    fn reserves_are_there_when_the_pool_is_used_up() {
        let spec = SwitchSpec {
            buffer: 8 * 2 * 2_000 + 5_000,
            reserved: 2_000,
            ..SwitchSpec::default()
        };
        let mut buffer = Buffer::new(&spec, [0; 2].into_iter()).unwrap();
        let (mut greedy, mut other) = (Ingress::new(0), Ingress::new(0));
        let mut taken = 0;
        while buffer.admit(&mut greedy, 0, 1000, false).is_ok() {
            taken += 1000;
        }
        assert_eq!(taken, 7_000);
        assert!(buffer.admit(&mut other, 0, 1000, false).is_ok());
        assert!(buffer.admit(&mut other, 0, 1000, false).is_ok());
        let full = buffer.admit(&mut other, 0, 1000, false);
        assert_eq!(full, Err(DropCause::BufferFull));
    }

    #[test]
    fn more_headroom_than_buffer_is_refused() {
        let spec = SwitchSpec {
            buffer: 1_000_000,
            ..trident(Threshold::Static(0))
        };
        assert_eq!(
            Buffer::new(&spec, [22_400; 32].into_iter())
                .unwrap_err()
                .to_string(),
            "reserves and headroom of its ports take 5734400 bytes, the buffer has 1000000"
        );
    }

    proptest! {
        /// Whatever comes and goes, the counts are those of what is there, and fit in the buffer.
        #[test]
        fn every_byte_is_counted_back(
            dynamic: bool,
            reserved in 0u64..3_000,
            script in prop::collection::vec((0usize..3, 0u8..8, 64u16..9000, any::<bool>()), 1..300),
        ) {
            let spec = SwitchSpec {
                buffer: 400_000,
                reserved,
                pfc: Some(PfcSpec {
                    headroom: Headroom::Bytes(20_000),
                    ..PfcSpec::new(
                        PriorityMask(0x18),
                        if dynamic { alpha(1, 4) } else { Threshold::Static(30_000) },
                    )
                }),
                ..SwitchSpec::default()
            };
            let mut buffer = Buffer::new(&spec, [20_000; 3].into_iter()).unwrap();
            let mut ports = [Ingress::new(20_000); 3];
            let mut inside = Vec::new();
            for (port, priority, len, out) in script {
                if out && !inside.is_empty() {
                    let (port, priority, len): (usize, u8, u16) = inside.remove(0);
                    buffer.release(&mut ports[port], priority, len);
                } else {
                    let lossless = buffer.lossless().contains(priority);
                    if buffer.admit(&mut ports[port], priority, len, lossless).is_ok() {
                        inside.push((port, priority, len));
                    }
                }
                for (p, ingress) in ports.iter().enumerate() {
                    for q in 0..8 {
                        let there = inside.iter().filter(|i| (i.0, i.1) == (p, q));
                        let sum: u64 = there.map(|i| u64::from(i.2)).sum();
                        prop_assert_eq!(ingress.waiting(q), sum);
                        let lossless = buffer.lossless().contains(q);
                        prop_assert!(lossless || ingress.counts[usize::from(q)].headroom == 0);
                    }
                }
                let all: u64 = inside.iter().map(|i| u64::from(i.2)).sum();
                prop_assert!(all <= 400_000);
                prop_assert!(buffer.used() <= buffer.pool);
            }
            for (port, priority, len) in inside {
                buffer.release(&mut ports[port], priority, len);
            }
            prop_assert_eq!(ports, [Ingress::new(20_000); 3]);
            prop_assert_eq!(buffer.used(), 0);
        }
    }
}
