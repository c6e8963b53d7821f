//! The command line, and what it asks for.

use crate::arguments;
use crate::device::{DeviceArgs, Where};
use clap::ValueEnum;
use softroce_verbs::{Mtu, QpType};
use std::time::Duration;

/// Measure bandwidth or latency between two programs, as perftest's tools do: `softroce perf write-bw`
/// is `ib_write_bw`.
///
/// Without SERVER it waits for a client; with it, it is the client. Both ends need the same options. On
/// sim:SCENARIO both run, in virtual time. Exit status: 0 if all went well, 1 if it failed on the way, 2 if
/// it could not begin.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
MB are 1048576 bytes, as in perftest. Latencies of SEND and WRITE are half a round trip, those of READ and \
atomics a whole one.")]
pub struct Options {
    /// What to measure
    #[arg(value_enum, value_name = "TEST")]
    pub test: Test,

    /// Where, and in which role
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Bytes of a message [default: 65536 for bandwidth, 2 for latency]; atomics have 8
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub size: Option<u32>,

    /// Messages of each queue pair [default: 5000 for bandwidth, 1000 for latency]
    #[arg(short = 'n', long, value_name = "N", value_parser = iterations)]
    pub iters: Option<u64>,

    /// All sizes from 2 to 8388608 bytes, in powers of two; with UD up to the MTU
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,

    /// Go on for so many seconds instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub duration: Option<u32>,

    /// Queue pairs, for bandwidth
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qp: u32,

    /// Requests outstanding on a queue pair [default: 128 for bandwidth, 16 for latency]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub tx_depth: Option<u32>,

    /// Receive requests posted to a queue pair
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub rx_depth: u32,

    /// Requests posted at a time, as a list with one doorbell, for bandwidth
    #[arg(short = 'l', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub post_list: u32,

    /// One completion for so many requests [default: 100, or 1 for messages of more than 8192 bytes; of lists, one
    /// for each]
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub cq_mod: Option<u32>,

    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the smaller of both ports']
    #[arg(short, long, value_name = "BYTES", value_parser = arguments::mtu)]
    pub mtu: Option<Mtu>,

    /// Both ends send, for bandwidth
    #[arg(short, long)]
    pub bidirectional: bool,

    /// Messages of at most so many bytes go inline with their request
    #[arg(
        short = 'I',
        long = "inline_size",
        value_name = "BYTES",
        default_value_t = 0
    )]
    pub inline: u32,

    /// Transport service
    #[arg(
        short,
        long,
        value_enum,
        value_name = "TYPE",
        default_value = "RC",
        ignore_case = true
    )]
    pub connection: Service,

    /// READs and atomics outstanding on a queue pair [default: 16, or as many as both devices can]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub outs: Option<u8>,

    /// Local ACK timeout: 4.096 us times 2^N; 0 waits for ever
    #[arg(short = 'u', long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    pub qp_timeout: u8,

    /// Place in the GID table that packets come from
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub gid_index: Option<u8>,

    /// Which atomic operation
    #[arg(
        long = "atomic_type",
        value_enum,
        value_name = "TYPE",
        default_value = "FETCH_AND_ADD",
        ignore_case = true
    )]
    pub atomic: Atomic,

    /// Bandwidth in Gb/s instead of MB/s
    #[arg(long = "report_gbits")]
    pub report_gbits: bool,

    /// For perftest's command lines; the CPU's frequency is never looked at
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_freq: bool,

    /// Write a pattern into each message and compare it at the other end. A queue pair has at most so many
    /// requests outstanding then as fit in 64 MiB together
    #[arg(long)]
    pub verify: bool,

    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Test {
    SendBw,
    SendLat,
    WriteBw,
    WriteLat,
    ReadBw,
    ReadLat,
    AtomicBw,
    AtomicLat,
}

/// Transport services, as perftest names them.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "UPPER")]
#[allow(missing_docs)]
pub enum Service {
    Rc,
    Uc,
    Ud,
}

/// Atomic operations, as perftest names them.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum Atomic {
    FetchAndAdd,
    CmpAndSwap,
}

fn iterations(text: &str) -> Result<u64, String> {
    arguments::integer(text, 1, 1 << 32)
}

/// The operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Send,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Send => "Send",
            Operation::Write => "RDMA_Write",
            Operation::Read => "RDMA_Read",
            Operation::FetchAdd => "Atomic FETCH_AND_ADD",
            Operation::CompareSwap => "Atomic CMP_AND_SWAP",
        }
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }

    /// True if it brings something from the other end: a READ or an atomic.
    pub(super) fn is_fetch(self) -> bool {
        !self.is_answered()
    }

    /// True if the other end answers with a message of its own when latency is measured.
    pub(super) fn is_answered(self) -> bool {
        matches!(self, Operation::Send | Operation::Write)
    }
}

/// How long it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Messages of each queue pair.
    After(u64),
    /// Time.
    At(Duration),
}

/// What is asked for, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) operation: Operation,
    /// Bandwidth, not latency.
    pub(super) bandwidth: bool,
    pub(super) service: QpType,
    /// Sizes, or powers of two up to the last that goes.
    pub(super) size: Option<u32>,
    pub(super) stop: Stop,
    pub(super) qps: u32,
    pub(super) tx_depth: u32,
    pub(super) rx_depth: u32,
    pub(super) cq_mod: Option<u32>,
    pub(super) post_list: u32,
    pub(super) mtu: Option<Mtu>,
    pub(super) both: bool,
    pub(super) inline: u32,
    pub(super) outs: Option<u8>,
    pub(super) timeout: u8,
    pub(super) verify: bool,
    pub(super) wait: Duration,
}

/// Messages of each queue pair, if nothing is said.
const BANDWIDTH_ITERS: u64 = 5000;
/// Largest size of `--all`.
const LARGEST: u32 = 8 << 20;

impl Config {
    /// # Errors
    ///
    /// What does not go together.
    pub(super) fn new(o: &Options) -> Result<Config, String> {
        let bandwidth = matches!(
            o.test,
            Test::SendBw | Test::WriteBw | Test::ReadBw | Test::AtomicBw
        );
        let operation = match (o.test, o.atomic) {
            (Test::SendBw | Test::SendLat, _) => Operation::Send,
            (Test::WriteBw | Test::WriteLat, _) => Operation::Write,
            (Test::ReadBw | Test::ReadLat, _) => Operation::Read,
            (_, Atomic::FetchAndAdd) => Operation::FetchAdd,
            (_, Atomic::CmpAndSwap) => Operation::CompareSwap,
        };
        let service = match o.connection {
            Service::Rc => QpType::Rc,
            Service::Uc => QpType::Uc,
            Service::Ud => QpType::Ud,
        };
        let name = operation.name();
        let goes = match operation {
            Operation::Send => true,
            Operation::Write => service != QpType::Ud,
            _ => service == QpType::Rc,
        };
        if !goes {
            return Err(format!("--connection {:?} has no {name}", o.connection));
        }
        if !bandwidth {
            if o.qp > 1 {
                return Err(format!("--qp {}: latency is that of one queue pair", o.qp));
            }
            if o.bidirectional {
                return Err("--bidirectional is for bandwidth".into());
            }
        }
        if operation.is_atomic() {
            if o.all {
                return Err("--all: an atomic operation has 8 bytes".into());
            }
            if let Some(size) = o.size.filter(|&s| s != 8) {
                return Err(format!("--size {size}: an atomic operation has 8 bytes"));
            }
        }
        if o.inline > 0 && !operation.is_answered() {
            return Err(format!("--inline_size {}: {name} sends no data", o.inline));
        }
        let size = match (o.all, operation.is_atomic(), bandwidth) {
            (true, _, _) => None,
            (_, true, _) => Some(8),
            (_, _, true) => Some(o.size.unwrap_or(65536)),
            (_, _, false) => Some(o.size.unwrap_or(2)),
        };
        if o.verify && operation == Operation::Send && service != QpType::Rc {
            let smallest = size.unwrap_or(2);
            if smallest < 8 {
                return Err(format!(
                    "--verify: messages that may be lost need at least 8 bytes to be told apart, not {smallest}"
                ));
            }
        }
        let tx_depth = o.tx_depth.unwrap_or(if bandwidth { 128 } else { 16 });
        if let Some(n) = o.cq_mod.filter(|&n| n > tx_depth) {
            return Err(format!(
                "--cq-mod {n}: with --tx-depth {tx_depth} no request would ever complete"
            ));
        }
        check_list(o, bandwidth, tx_depth)?;
        let place = o.device.place();
        if let Some(index) = o.gid_index {
            if place != Where::Ibverbs && index != 0 {
                return Err(format!(
                    "--gid-index {index}: {} has one GID, at index 0",
                    o.device.device
                ));
            }
            if place == Where::Ibverbs && o.device.device.contains('@') {
                return Err(format!(
                    "--gid-index {index}: the device {} names one already",
                    o.device.device
                ));
            }
        }
        Ok(Config {
            operation,
            bandwidth,
            service,
            size,
            stop: match (o.duration, o.iters, bandwidth) {
                (Some(seconds), _, _) => Stop::At(Duration::from_secs(seconds.into())),
                (None, Some(n), _) => Stop::After(n),
                (None, None, true) => Stop::After(BANDWIDTH_ITERS),
                (None, None, false) => Stop::After(1000),
            },
            qps: o.qp,
            tx_depth,
            rx_depth: o.rx_depth,
            // As perftest has it.
            cq_mod: o.cq_mod.or((o.post_list > 1).then_some(o.post_list)),
            post_list: o.post_list,
            mtu: o.mtu,
            both: o.bidirectional,
            inline: o.inline,
            outs: o.outs,
            timeout: o.qp_timeout,
            verify: o.verify,
            wait: o.device.wait(),
        })
    }

    /// One completion for so many requests of this size.
    pub(super) fn cq_mod(&self, size: u32, depth: u32) -> u32 {
        let given = match (self.cq_mod, self.bandwidth, self.stop) {
            // The end comes at any request, or behind any list.
            (_, _, Stop::At(_)) if self.post_list == 1 => 1,
            (Some(n), true, _) => n,
            (None, true, _) if size <= 8192 => 100,
            _ => 1,
        };
        given.min(depth)
    }

    /// What must be the same at both ends, by name.
    pub(super) fn common(&self) -> Vec<(String, String)> {
        let size = self.size.map_or("all".into(), |s| s.to_string());
        let iters = match self.stop {
            Stop::After(n) => n.to_string(),
            Stop::At(time) => format!("{} s", time.as_secs()),
        };
        let mtu = self
            .mtu
            .map_or("the ports'".into(), |m| m.bytes().to_string());
        let kind = if self.bandwidth { "BW" } else { "Latency" };
        let pair = |name: &str, value: String| (name.to_string(), value);
        vec![
            pair("test", format!("{} {kind}", self.operation.name())),
            pair("--connection", format!("{:?}", self.service)),
            pair("--size", size),
            pair("--iters or --duration", iters),
            pair("--qp", self.qps.to_string()),
            pair("--tx-depth", self.tx_depth.to_string()),
            pair("--rx-depth", self.rx_depth.to_string()),
            pair("--mtu", mtu),
            pair("--bidirectional", self.both.to_string()),
            pair("--verify", self.verify.to_string()),
        ]
    }

    /// The sizes, with this path MTU.
    pub(super) fn sizes(&self, mtu: Mtu) -> Vec<u32> {
        match self.size {
            Some(size) => vec![size],
            None => {
                let largest = match self.service {
                    QpType::Ud => mtu.bytes().into(),
                    _ => LARGEST,
                };
                let doubled = std::iter::successors(Some(2), |s| Some(s * 2));
                doubled.take_while(|&s: &u32| s <= largest).collect()
            }
        }
    }
}

/// That lists of requests go on as they begin, by perftest's rules.
fn check_list(o: &Options, bandwidth: bool, tx_depth: u32) -> Result<(), String> {
    let n = o.post_list;
    if n == 1 {
        return Ok(());
    }
    if !bandwidth {
        return Err(format!("--post-list {n} is for bandwidth"));
    }
    if n > tx_depth {
        return Err(format!(
            "--post-list {n}: with --tx-depth {tx_depth} there would never be room for a list"
        ));
    }
    if let Some(cq_mod) = o.cq_mod.filter(|&m| !n.is_multiple_of(m)) {
        return Err(format!(
            "--post-list {n}: must be a multiple of --cq-mod {cq_mod}, for the last request of a list to complete"
        ));
    }
    let iters = o.iters.unwrap_or(BANDWIDTH_ITERS);
    if o.duration.is_none() && !iters.is_multiple_of(n.into()) {
        return Err(format!(
            "--post-list {n}: --iters {iters} is no multiple of it"
        ));
    }
    Ok(())
}
