//! The command line.

use crate::device::DeviceArgs;
use softroce_sim::card::Mtu;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Exchange messages between two programs: over software cards on loopback, over what libibverbs lists, or in a
/// scenario's network.
///
/// Without SERVER it waits for a client; with it, it is the client. On sim:SCENARIO both run, in virtual time.
/// Option letters are those of ibv_rc_pingpong.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where, and in which role
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Size of a message in bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(0..=MAX_SIZE as i64))]
    pub size: u32,

    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = crate::arguments::mtu)]
    pub mtu: Mtu,

    /// Receive requests posted at a time
    #[arg(short, long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub rx_depth: u32,

    /// Messages sent back and forth
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Service level
    #[arg(short = 'l', long, value_name = "SL", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=7))]
    pub sl: u8,

    /// Place in the GID table of a device of libibverbs' [default: the first address of RoCEv2 over IPv4]
    #[arg(short, long, value_name = "INDEX")]
    pub gid_idx: Option<u8>,

    /// Compare the data of every message of the ping-pong too
    #[arg(short, long)]
    pub chk: bool,

    /// Address of the software card; without it the first of 127.0.0.2 to 127.0.0.254 that is free. Each end needs
    /// an address of its own: over IPv6, which has ::1 alone on loopback, the second end needs one that
    /// was added to the machine
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,

    /// Local ACK timeout exponent: 4.096 us times 2^N; 0 waits for ever
    #[arg(long, value_name = "N", default_value_t = 14,
          value_parser = clap::value_parser!(u8).range(0..=31))]
    pub timeout: u8,

    /// Retries before a request fails
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u8).range(0..=7))]
    pub retry_cnt: u8,

    /// Write the frames that a software card sends and receives to a pcapng file
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Largest message: each end keeps six of them in memory.
pub(super) const MAX_SIZE: u32 = 256 << 20;

impl Options {
    pub(super) fn idle_limit(&self) -> Duration {
        self.device.wait()
    }
}
