//! `softroce perf`: bandwidth and latency between two verbs programs, as perftest measures them.
//!
//! | file | what |
//! |---|---|
//! | `options` | the command line, and what it asks for |
//! | `session` | what the ends tell each other, and how one notices that the other has gone |
//! | `heard` | what the peer says, held against what was agreed |
//! | `lanes` | queue pairs and memory; patterns written and compared |
//! | `layout` | where messages are in memory, and what is in them |
//! | `bandwidth` | as much as the queues hold |
//! | `latency` | one message at a time |
//! | `report` | text and JSON |
//! | `error` | what can go wrong on the way |

mod bandwidth;
mod error;
mod heard;
mod lanes;
mod latency;
mod layout;
mod options;
mod report;
mod session;

pub use options::Options;

use crate::device::{self, DeviceArgs, Where};
use error::{PerfError, Result};
use lanes::Lanes;
use options::{Config, Operation};
use report::{CardCounters, Ran, Row};
use session::{Hello, Note, Session, unexpected};
use softroce_verbs::{Context, Mtu, QpType, Role};

/// READs and atomics outstanding, if nothing is said.
const OUTSTANDING: u8 = 16;

/// What the command has come to.
#[derive(Debug)]
pub struct Finished {
    /// For standard output.
    pub output: String,
    /// Lines for standard error.
    pub complaints: Vec<String>,
    /// Exit status.
    pub code: u8,
}

/// Measures.
///
/// # Errors
///
/// Why it could not begin.
pub fn run(options: &Options) -> std::result::Result<Finished, String> {
    let config = Config::new(options)?;
    let device = DeviceArgs {
        device: match (options.gid_index, options.device.place()) {
            (Some(index), Where::Ibverbs) => format!("{}@{index}", options.device.device),
            _ => options.device.device.clone(),
        },
        ..options.device.clone()
    };
    let program = config.clone();
    let launched = device::launch(&device, move |context, role| {
        measure(&context, &role, &program)
    });
    let launched = launched.map_err(|e| e.to_string())?;
    let network = launched.network.as_ref();
    let counters = CardCounters::all(&options.device.device, launched.card.as_ref(), network);
    let mut complaints = Vec::new();
    let mut output = String::new();
    for (n, outcome) in launched.outcomes.iter().enumerate() {
        if let Some(error) = &outcome.value.error {
            complaints.push(format!("perf: {}: {error}", outcome.role));
        }
        if n > 0 {
            // The server's table is the client's.
            continue;
        }
        output = match options.json {
            true => report::json(
                options,
                &config,
                outcome.role,
                &outcome.value,
                counters.clone(),
                network,
            ),
            // Where nothing was measured there is no table.
            false if outcome.value.rows.is_empty() => String::new(),
            false => report::text(options, &config, &outcome.value),
        };
    }
    let code = u8::from(!complaints.is_empty());
    if !options.json && launched.outcomes.iter().any(|o| o.value.met) {
        complaints.extend(counters.iter().map(CardCounters::line));
    }
    Ok(Finished {
        output,
        complaints,
        code,
    })
}

/// One end of a measurement.
fn measure(context: &Context, role: &Role, config: &Config) -> Ran {
    let mut ran = Ran {
        mtu: None,
        rows: Vec::new(),
        met: false,
        error: None,
    };
    // What the device cannot do is told before anybody is waited for.
    let session = fits(context, config).and_then(|_| Session::meet(context, role, config));
    ran.met = session.is_ok();
    if let Err(e) =
        session.and_then(|mut session| in_session(context, &mut session, role, config, &mut ran))
    {
        ran.error = Some(e.to_string());
    }
    ran
}

fn in_session(
    context: &Context,
    session: &mut Session,
    role: &Role,
    config: &Config,
    ran: &mut Ran,
) -> Result<()> {
    let outcome = sizes(context, session, role.is_server(), config, ran);
    if let Err(e) = &outcome
        && !e.is_the_peers()
    {
        // If it has gone, it needs no reason.
        let _ = session.say(&Note::Failed(e.to_string()));
    }
    outcome
}

fn sizes(
    context: &Context,
    session: &mut Session,
    is_server: bool,
    config: &Config,
    ran: &mut Ran,
) -> Result<()> {
    let (mtu, outs) = agree(context, session, config)?;
    ran.mtu = Some(mtu);
    for size in config.sizes(mtu) {
        let mut lanes = Lanes::new(context, session, config, (mtu, outs), size, is_server)?;
        let (sent, checked) = match config.bandwidth {
            true => bandwidth::measure(context, session, &mut lanes, config, is_server)?,
            false => latency::measure(context, session, &mut lanes, config, is_server)?,
        };
        let messages = sent.total();
        let ways = match config.both || !config.bandwidth {
            true => 2,
            false => 1,
        };
        let is_counted = config.operation == Operation::Send && config.service != QpType::Rc;
        ran.rows.push(Row {
            bytes: size,
            iterations: messages,
            bandwidth: sent.bandwidth,
            latency: sent.latency,
            lost: match is_counted {
                true => messages
                    .saturating_mul(ways)
                    .saturating_sub(checked.received),
                false => 0,
            },
            verified: config.verify.then_some(checked.compared),
        });
    }
    Ok(())
}

/// What this end tells of itself, if its device can do what is asked for.
fn fits(context: &Context, config: &Config) -> Result<Hello> {
    let device = context.query_device()?;
    let port = context.query_port(1)?;
    let most = device.max_qp_rd_atom.min(device.max_qp_init_rd_atom);
    let most = u8::try_from(most).unwrap_or(u8::MAX);
    let own = Hello {
        options: config.common(),
        mtu: port.active_mtu.bytes(),
        outs: config.outs.unwrap_or(OUTSTANDING.min(most)),
    };
    let mtu = config.mtu.map_or(own.mtu, Mtu::bytes);
    for (option, value, limit) in [
        ("outs", own.outs.into(), most.into()),
        ("mtu", mtu.into(), own.mtu.into()),
        ("tx-depth", config.tx_depth, device.max_qp_wr),
        ("rx-depth", config.rx_depth, device.max_qp_wr),
    ] {
        if value > limit {
            return Err(PerfError::Limit {
                option,
                value: value.into(),
                limit: limit.into(),
            });
        }
    }
    Ok(own)
}

/// That both ends were started alike; path MTU, and READs and atomics outstanding.
fn agree(context: &Context, session: &mut Session, config: &Config) -> Result<(Mtu, u8)> {
    let own = fits(context, config)?;
    session.say(&Note::Hello(own.clone()))?;
    let theirs = match session.hear()? {
        Note::Hello(hello) => hello,
        other => return Err(unexpected(&other)),
    };
    let ports = theirs.check(&own, config.operation.is_fetch())?;
    Ok((config.mtu.unwrap_or(ports), own.outs.min(theirs.outs)))
}
