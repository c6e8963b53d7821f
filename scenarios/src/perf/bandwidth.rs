//! As many messages as the queues hold at a time, until all are done.

use super::error::Result;
use super::lanes::{Done, Lanes};
use super::options::{Config, Operation, Stop};
use super::report::Bandwidth;
use super::session::{Checked, Note, Sent, Session};
use softroce_verbs::{Completion, Context, QpType};
use std::time::Duration;

/// Batches of requests up to which the best stretch is looked for; that takes the square of them.
const PEAK: u64 = 8192;
/// Nothing has come for so long: what is not there of an unreliable service is lost.
const LOST: Duration = Duration::from_millis(50);

/// Requests that share a completion.
#[derive(Clone, Copy, Debug)]
struct Batch {
    messages: u64,
    posted: Duration,
    completed: Duration,
}

/// When requests were posted and completed.
struct Clock {
    /// By queue pair: when the first request after the last completion asked for was posted, of each
    /// completion that is still to come.
    posted: Vec<std::collections::VecDeque<Duration>>,
    batches: Vec<Batch>,
    keeps: bool,
    first: Option<Duration>,
    last: Duration,
}

impl Clock {
    fn completed(&mut self, qp: usize, messages: u64, now: Duration) {
        self.last = now;
        if let Some(posted) = self.posted[qp].pop_front()
            && self.keeps
        {
            self.batches.push(Batch {
                messages,
                posted,
                completed: now,
            });
        }
    }

    fn bandwidth(&self, size: u32, messages: u64) -> Bandwidth {
        let time = self.last.saturating_sub(self.first.unwrap_or(self.last));
        let seconds = time.as_secs_f64().max(1e-9);
        let bytes = messages as f64 * f64::from(size);
        Bandwidth {
            peak_bytes_per_second: self.peak() * f64::from(size),
            average_bytes_per_second: bytes / seconds,
            messages_per_second: messages as f64 / seconds,
            seconds,
        }
    }

    /// Messages a second of the best stretch, from the first request of one batch to the completion of
    /// another, as perftest has it.
    fn peak(&self) -> f64 {
        let mut best: f64 = 0.0;
        for (i, first) in self.batches.iter().enumerate() {
            let mut messages = 0;
            for last in &self.batches[i..] {
                messages += last.messages;
                let time = last.completed.saturating_sub(first.posted);
                best = best.max(messages as f64 / time.as_secs_f64().max(1e-9));
            }
        }
        best
    }
}

/// Measures, or is what is measured against.
pub(super) fn measure(
    context: &Context,
    session: &mut Session,
    lanes: &mut Lanes,
    config: &Config,
    is_server: bool,
) -> Result<(Sent, Checked)> {
    let sends = !is_server || config.both;
    let receives = config.operation == Operation::Send && (is_server || config.both);
    session.begin()?;
    let own = if sends || receives {
        exchange(context, session, lanes, config, (sends, receives))?
    } else {
        None
    };
    // The one-sided operations of the peer need nobody here.
    let theirs = match is_server || config.both {
        true => Some(session.await_sent()?),
        false => None,
    };
    if let Some(theirs) = &theirs {
        if config.verify && config.service != QpType::Rc {
            // What has completed there may still be on its way.
            context.sleep(LOST)?;
        }
        lanes.check_left(&theirs.messages)?;
    }
    let (found, most) = lanes.found(theirs.as_ref().map_or(0, Sent::total));
    let both = session.conclude(found, &most)?;
    let mut all = match (own, theirs) {
        (Some(mut own), Some(theirs)) => {
            if let (Some(own), Some(theirs)) = (&mut own.bandwidth, theirs.bandwidth) {
                *own += theirs;
            }
            own
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => Sent {
            messages: Vec::new(),
            bandwidth: None,
            latency: None,
        },
    };
    if all.messages.is_empty() {
        all.messages = vec![0; lanes.progress.len()];
    }
    Ok((all, both))
}

/// Sends and receives until all is done.
fn exchange(
    context: &Context,
    session: &mut Session,
    lanes: &mut Lanes,
    config: &Config,
    (sends, receives): (bool, bool),
) -> Result<Option<Sent>> {
    let target = match config.stop {
        Stop::After(n) => n,
        Stop::At(_) => u64::MAX,
    };
    let batches = target.saturating_mul(config.qps.into()) / lanes.cq_mod;
    let mut clock = Clock {
        posted: vec![Default::default(); config.qps as usize],
        batches: Vec::new(),
        keeps: batches <= PEAK,
        first: None,
        last: Duration::ZERO,
    };
    let mut completions = vec![Completion::BLANK; 64];
    let mut stopped = false;
    let mut said = None;
    let mut last_received = context.now();
    session.is_moving = sends;
    loop {
        if sends && !stopped {
            for qp in lanes.numbers() {
                post(context, lanes, qp, target, &mut clock)?;
            }
        }
        let n = lanes.cq.poll_into(&mut completions)?;
        let now = if n > 0 { context.now() } else { clock.last };
        for completion in &completions[..n] {
            let (qp, before) = match lanes.take(completion)? {
                Done::Sent { qp, before } => (qp, before),
                Done::Received => {
                    last_received = now;
                    continue;
                }
            };
            let messages = before - (before - 1) / lanes.cq_mod * lanes.cq_mod;
            clock.completed(qp, messages, now);
        }
        session.round(n > 0, lanes)?;
        if let Stop::At(time) = config.stop
            && n > 0
            && clock.first.is_some_and(|first| now - first >= time)
        {
            stopped = true;
        }
        let is_done =
            |p: &super::lanes::Progress| p.completed == p.posted && (stopped || p.posted == target);
        if sends && said.is_none() && lanes.progress.iter().all(is_done) {
            let messages: Vec<u64> = lanes.progress.iter().map(|p| p.posted).collect();
            let sent = Sent {
                bandwidth: Some(clock.bandwidth(lanes.size, messages.iter().sum())),
                messages,
                latency: None,
            };
            session.say(&Note::Sent(sent.clone()))?;
            session.is_moving = false;
            said = Some(sent);
        }
        if sends && said.is_none() {
            continue;
        }
        if !receives {
            return Ok(said);
        }
        let Some(theirs) = &session.sent else {
            continue;
        };
        let received: u64 = lanes.progress.iter().map(|p| p.received).sum();
        let is_lost =
            config.service != QpType::Rc && context.now().saturating_sub(last_received) > LOST;
        if received >= theirs.total() || is_lost {
            return Ok(said);
        }
    }
}

/// Posts what the queue pair has room for.
fn post(
    context: &Context,
    lanes: &mut Lanes,
    qp: usize,
    target: u64,
    clock: &mut Clock,
) -> Result<()> {
    loop {
        let progress = lanes.progress[qp];
        let posted = progress.posted + lanes.list;
        let room = posted - progress.completed <= lanes.depth;
        if !room || posted > target {
            return Ok(());
        }
        let completions = progress.posted.div_ceil(lanes.cq_mod)..posted.div_ceil(lanes.cq_mod);
        if !completions.is_empty() {
            let now = context.now();
            clock.first.get_or_insert(now);
            clock.posted[qp].extend(completions.map(|_| now));
        }
        lanes.post_list(qp, posted == target)?;
    }
}
