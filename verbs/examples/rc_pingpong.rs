//! SENDs there and back over a reliable connection, as `ibv_rc_pingpong` does it.
//!
//! ```text
//! cargo run --release --example rc_pingpong                                   # a server
//! cargo run --release --example rc_pingpong 127.0.0.1                         # a client, in another shell
//! cargo run --release --example rc_pingpong -- --device sim:two-hosts         # both, in virtual time
//! rc_pingpong --device mlx5_0 server.example                                  # on hardware
//! ```

use softroce_verbs::{
    Access, CompletionKind, Connection, Context, Error, Mtu, Psn, QpType, RecvRequest, Result,
    Role, SendRequest, Status, Work,
};
use std::process::ExitCode;
use std::time::Duration;

const SIZE: u32 = 4096;
const ROUNDS: u32 = 1000;
const DEPTH: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    softroce::device::main(ping_pong)
}

fn ping_pong(context: Context, role: Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(2 * DEPTH, None)?;
    let mut qp = pd
        .create_qp(QpType::Rc)
        .cq(&cq)
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .build()?;
    let memory = pd.reg_new(2 * SIZE as usize, Access::LOCAL_WRITE)?;
    let out = [memory.sge(0, SIZE)];
    let into = [memory.sge(SIZE.into(), SIZE)];

    let mut partner = context.exchange(&role)?;
    let psn = Psn::new(0x1234);
    let peer = partner.swap(&qp.endpoint(psn)?)?;
    let connection = Connection {
        path_mtu: Mtu::M1024,
        ..Connection::default()
    };
    qp.connect(psn, &peer, &connection)?;
    let receive = RecvRequest {
        wr_id: 1,
        sges: &into,
    };
    for _ in 0..DEPTH {
        qp.post_recv(&receive)?;
    }
    partner.barrier()?;

    let start = context.now();
    let (mut received, mut sent) = (0u32, 0u32);
    let next = |round: u32, qp: &mut softroce_verbs::QueuePair| -> Result<()> {
        let text = message(round);
        memory.memory().write_at(0, &text);
        Ok(qp.post_send(&SendRequest::new(round.into(), Work::Send, &out))?)
    };
    if !role.is_server() {
        next(0, &mut qp)?;
    }
    while received < ROUNDS || sent < ROUNDS {
        let completion = cq.wait(PATIENCE)?;
        if completion.status != Status::Success {
            return Err(Error::Protocol(format!(
                "request {} ended with {}",
                completion.wr_id, completion.status
            )));
        }
        if completion.kind != CompletionKind::Receive {
            sent += 1;
            continue;
        }
        let mut found = vec![0; SIZE as usize];
        memory.memory().read_at(SIZE as usize, &mut found);
        if found != message(received) {
            return Err(Error::Protocol(format!(
                "message {received} is not what was sent"
            )));
        }
        qp.post_recv(&receive)?;
        received += 1;
        if role.is_server() {
            next(received - 1, &mut qp)?;
        } else if received < ROUNDS {
            next(received, &mut qp)?;
        }
    }
    let time = context.now() - start;
    partner.barrier()?;
    if !role.is_server() {
        let seconds = time.as_secs_f64();
        println!(
            "{} bytes in {:.6} seconds = {:.2} Mbit/sec",
            2 * u64::from(ROUNDS) * u64::from(SIZE),
            seconds,
            2.0 * f64::from(ROUNDS) * f64::from(SIZE) * 8.0 / seconds / 1e6
        );
        println!(
            "{ROUNDS} iters in {seconds:.6} seconds = {:.2} usec/iter",
            seconds * 1e6 / f64::from(ROUNDS)
        );
    }
    Ok(())
}

/// What is sent in a round, in both directions.
fn message(round: u32) -> Vec<u8> {
    (0..SIZE)
        .map(|i| (i.wrapping_mul(31) ^ round) as u8)
        .collect()
}
