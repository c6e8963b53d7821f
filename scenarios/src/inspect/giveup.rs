//! Requests that are tried again and again, and what a capture tells of their end.
//!
//! A requester says nothing when it gives up: a capture shows the tries, what was answered, and silence. So
//! the oldest request that was sent again, or that a NAK asked for, is followed; what is left of it when the
//! connection or the capture ends is told as it was last seen.

use super::copy::since;
use super::finding::{Found, Rule, psns, put, put_at, span};
use super::requests::{Nak, Request, Requests};
use super::responses::Response;
use serde::Serialize;
use softroce_sim::wire::capture::Stamp;
use softroce_sim::wire::{NakCode, Psn};
use std::collections::VecDeque;
use std::fmt;

/// Tries that are remembered.
const TRIES: usize = 16;

/// A request without an answer that did not go on, as it was last seen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GivenUp {
    /// Opcode of the packet that was tried.
    pub opcode: String,
    /// Its PSN.
    pub psn: u32,
    /// The message that it is of, as far as it was seen: its first and last PSN.
    pub message: Option<(u32, u32)>,
    /// Tries that were seen, oldest first; of more than 16 the last ones.
    pub tries: Vec<SeenTry>,
    /// Tries seen before those.
    pub earlier_tries: u64,
    /// The first transmission is not in the capture.
    pub first_unseen: bool,
    /// RNR NAKs for it.
    pub rnr_naks: u64,
    /// Sequence NAKs for it.
    pub sequence_naks: u64,
    /// The last of these NAKs.
    pub last_nak: Option<SeenNak>,
    /// The last packet that acknowledged it or carried data for it, before it was tried once more.
    pub answered_by: Option<u64>,
    /// The NAK that ended the connection.
    pub fatal: Option<FatalNak>,
    /// Seconds from the last try, or the NAK behind it, to the end of the capture.
    pub silence: Option<f64>,
}

/// A transmission of a request.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SeenTry {
    /// Number of the packet.
    pub packet: u64,
    /// Seconds since the try before it.
    pub after: Option<f64>,
    /// Why it was sent: `first`, `rnr-nak` or `sequence-nak`; `timeout` if nothing in the capture asked for it.
    pub why: &'static str,
    /// As `after`, in picoseconds.
    #[serde(skip)]
    gap: Option<i128>,
}

/// A NAK that asks for a try.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SeenNak {
    /// Number of the packet.
    pub packet: u64,
    /// The wait that an RNR NAK asks for, in seconds.
    pub wait: Option<f64>,
    /// As `wait`, in picoseconds.
    #[serde(skip)]
    wait_ps: Option<i128>,
}

/// A NAK that ends the connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FatalNak {
    /// Number of the packet.
    pub packet: u64,
    /// Its syndrome byte.
    pub syndrome: u8,
    /// What it says: `remote access error`.
    pub meaning: String,
}

/// The request that is being tried.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    psn: Psn,
    opcode: String,
    tries: VecDeque<SeenTry>,
    earlier: u64,
    first_unseen: bool,
    rnr_naks: u64,
    sequence_naks: u64,
    nak: Option<SeenNak>,
    answer: Option<u64>,
    /// Time of the last try, and of the last try or NAK.
    tried: Option<Stamp>,
    last: Option<Stamp>,
}

fn seconds(ps: i128) -> f64 {
    ps as f64 / 1e12
}

impl Stall {
    fn new(psn: Psn) -> Stall {
        Stall {
            psn,
            opcode: String::new(),
            tries: VecDeque::new(),
            earlier: 0,
            first_unseen: false,
            rnr_naks: 0,
            sequence_naks: 0,
            nak: None,
            answer: None,
            tried: None,
            last: None,
        }
    }

    fn tried(&mut self, packet: u64, time: Option<Stamp>, why: &'static str) {
        let gap = since(time, self.tried).filter(|_| !self.tries.is_empty());
        if self.tries.len() == TRIES {
            self.tries.pop_front();
            self.earlier += 1;
        }
        self.tries.push_back(SeenTry {
            packet,
            after: gap.map(seconds),
            why,
            gap,
        });
        (self.tried, self.last) = (time, time);
    }

    fn last_packet(&self) -> u64 {
        let tried = self.tries.back().map_or(0, |t| t.packet);
        tried.max(self.nak.map_or(0, |n| n.packet))
    }

    /// It was tried or asked for again, and nothing has come of that.
    fn is_open(&self) -> bool {
        let tries = self.earlier + self.tries.len() as u64 + u64::from(self.first_unseen);
        let asked = self.rnr_naks + self.sequence_naks > 0;
        self.answer.is_none_or(|a| a < self.last_packet()) && (tries > 1 || asked)
    }
}

impl Requests {
    /// Follows `psn`, from its first transmission on if that was seen.
    fn stalled(&mut self, psn: Psn) -> &mut Stall {
        if self.stall.as_ref().is_none_or(|s| s.psn != psn) {
            let mut stall = Stall::new(psn);
            match self.find(psn) {
                Some(first) => {
                    stall.tried(first.number, first.time, "first");
                    stall.opcode = first.opcode.to_string();
                }
                None => stall.first_unseen = true,
            }
            self.stall = Some(stall);
        }
        self.stall.get_or_insert_with(|| Stall::new(psn))
    }

    /// A try begins with this request; `nak` is what asked for it.
    pub(super) fn try_again(&mut self, r: &Request, nak: Option<Nak>) {
        let why = match nak {
            Some(nak) if nak.wait.is_some() => "rnr-nak",
            Some(_) => "sequence-nak",
            None => "timeout",
        };
        let stall = self.stalled(r.piece.psn);
        stall.opcode = r.piece.opcode.to_string();
        stall.tried(r.copy.number, r.copy.time, why);
    }

    /// A NAK asks for a try.
    pub(super) fn asked_again(&mut self, nak: &Nak) {
        let stall = self.stalled(nak.psn);
        match nak.wait {
            Some(_) => stall.rnr_naks += 1,
            None => stall.sequence_naks += 1,
        }
        stall.nak = Some(SeenNak {
            packet: nak.number,
            wait: nak.wait.map(seconds),
            wait_ps: nak.wait,
        });
        stall.last = nak.time;
    }

    /// An answer has come for everything up to `psn`.
    pub(super) fn answered(&mut self, psn: Psn, number: u64) {
        if let Some(stall) = &mut self.stall
            && psn.after(stall.psn) >= 0
        {
            stall.answer = Some(number);
        }
    }

    /// A NAK ends the connection: what it refused, and how often that had been tried.
    pub(super) fn refused(&mut self, r: &Response, code: NakCode, found: &mut Found) {
        self.stalled(r.psn);
        let fatal = FatalNak {
            packet: r.copy.number,
            syndrome: r.aeth.map_or(0, |a| a.syndrome.0),
            meaning: code.to_string(),
        };
        if let Some(stall) = self.stall.take() {
            let given_up = self.given_up(stall, Some(fatal), None);
            put(found, Rule::GivenUp, given_up.to_string());
            self.given_up = Some(given_up);
        }
    }

    /// The capture, or the connection, ends, the one before at `end`.
    pub(super) fn give_up(&mut self, end: Option<Stamp>, found: &mut Found) {
        if let Some(stall) = self.stall.take().filter(Stall::is_open) {
            let packet = stall.last_packet();
            let silence = since(end, stall.last);
            let given_up = self.given_up(stall, None, silence);
            put_at(found, packet, Rule::GivenUp, given_up.to_string());
            self.given_up = Some(given_up);
        }
    }

    fn given_up(&self, stall: Stall, fatal: Option<FatalNak>, silence: Option<i128>) -> GivenUp {
        GivenUp {
            opcode: stall.opcode,
            psn: stall.psn.get(),
            message: self.messages.bounds(stall.psn),
            tries: stall.tries.into(),
            earlier_tries: stall.earlier,
            first_unseen: stall.first_unseen,
            rnr_naks: stall.rnr_naks,
            sequence_naks: stall.sequence_naks,
            last_nak: stall.nak,
            answered_by: stall.answer,
            fatal,
            silence: silence.map(seconds),
        }
    }
}

/// `RC Send Only with PSN 6144, seen 3 times (packets 1, 2, 3; 67.638 ms, 67.146 ms apart): no answer in this
/// capture; ...`
impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcode = match self.opcode.as_str() {
            "" => "a request",
            opcode => opcode,
        };
        write!(f, "{opcode} with PSN {}", self.psn)?;
        if let Some((first, last)) = self.message.filter(|(first, last)| first != last) {
            let message = psns(Psn::new(first), Psn::new(last));
            write!(f, " (of the message {message})")?;
        }
        self.fmt_tries(f)?;
        if let Some(nak) = &self.fatal {
            return write!(
                f,
                ": packet {} refuses it for good, NAK {} (syndrome {:#04x})",
                nak.packet, nak.meaning, nak.syndrome
            );
        }
        self.fmt_answers(f)
    }
}

impl GivenUp {
    fn fmt_tries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.earlier_tries + self.tries.len() as u64;
        match seen {
            0 => return f.write_str(", not seen here"),
            1 => f.write_str(", seen once (")?,
            n => write!(f, ", seen {n} times (")?,
        }
        let packets: Vec<_> = self.tries.iter().map(|t| t.packet.to_string()).collect();
        let dots = if self.earlier_tries > 0 { "..., " } else { "" };
        let many = if seen == 1 { "" } else { "s" };
        write!(f, "packet{many} {dots}{}", packets.join(", "))?;
        let gaps = self.tries.iter().filter_map(|t| Some((t.gap?, t.why)));
        let gaps: Vec<_> = gaps
            .map(|(gap, why)| match why {
                "timeout" => span(gap),
                why => format!("{} ({why})", span(gap)),
            })
            .collect();
        if !gaps.is_empty() {
            write!(f, "; {} apart", gaps.join(", "))?;
        }
        f.write_str(")")?;
        if self.first_unseen {
            f.write_str(", not for the first time")?;
        }
        Ok(())
    }

    fn fmt_answers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut none = true;
        for (n, kind) in [
            (self.rnr_naks, "RNR NAK"),
            (self.sequence_naks, "sequence NAK"),
        ] {
            if n > 0 {
                let many = if n == 1 { "" } else { "s" };
                write!(f, "{} {n} {kind}{many}", if none { ":" } else { "," })?;
                none = false;
            }
        }
        let tried = self.tries.last().map_or(0, |t| t.packet);
        if let Some(nak) = self.last_nak {
            match nak.wait_ps {
                Some(wait) => write!(
                    f,
                    ", the last (packet {}) asks for {}",
                    nak.packet,
                    span(wait)
                )?,
                None => write!(f, ", the last is packet {}", nak.packet)?,
            }
        }
        if let Some(answer) = self.answered_by {
            write!(
                f,
                "{} packet {answer} answers an earlier try",
                if none { ":" } else { "," }
            )?;
            none = false;
        }
        match self.last_nak.is_some_and(|n| n.packet > tried) {
            true => f.write_str("; not seen again after it")?,
            false if none => f.write_str(": no answer in this capture")?,
            false => f.write_str("; no answer to the last try in this capture")?,
        }
        match self.silence {
            Some(0.0) => f.write_str("; with it the capture ends"),
            Some(silence) => {
                let ps = (silence * 1e12).round() as i128;
                write!(f, "; the capture ends {} later", span(ps))
            }
            None => Ok(()),
        }
    }
}
