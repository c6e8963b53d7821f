//! Two workers of a training job add up their gradients: each WRITEs its own into the other's memory, with
//! the number of the chunk as immediate data, and adds what arrives; no worker asks whether data is there,
//! the completion of a receive says so.

use softroce_verbs::{
    Access, CompletionKind, Connection, Context, Error, Immediate, Mtu, Psn, QpType, RecvRequest,
    Result, Role, SendRequest, Status, Work,
};
use std::process::ExitCode;
use std::time::Duration;

/// Parameters of the model.
const PARAMETERS: usize = 1 << 16;
/// Parameters that go in one WRITE.
const CHUNK: usize = 1 << 12;
const CHUNKS: usize = PARAMETERS / CHUNK;
const STEPS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    softroce::device::main(train)
}

fn train(context: Context, role: Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(4 * CHUNKS as u32, None)?;
    let mut qp = pd
        .create_qp(QpType::Rc)
        .cq(&cq)
        .max_send_wr(CHUNKS as u32)
        .max_recv_wr(2 * CHUNKS as u32)
        .build()?;
    let bytes = 4 * PARAMETERS;
    let own = pd.reg_new(bytes, Access::LOCAL_READ)?;
    let theirs = pd.reg_new(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;

    let mut partner = context.exchange(&role)?;
    let psn = Psn::new(7);
    let peer = partner.swap(&qp.endpoint(psn)?)?;
    let (inbox, _) = partner.swap_memory(theirs.remote(0), bytes as u64)?;
    let connection = Connection {
        path_mtu: Mtu::M4096,
        ..Connection::default()
    };
    qp.connect(psn, &peer, &connection)?;

    let rank = u32::from(role.is_server());
    let mut weights = vec![0f32; PARAMETERS];
    let start = context.now();
    for step in 0..STEPS {
        for _ in 0..CHUNKS {
            qp.post_recv(&RecvRequest {
                wr_id: 0,
                sges: &[],
            })?;
        }
        own.memory().write_at(0, &gradient(rank, step));
        // Nobody writes before the other has posted its receives and added the last step's gradient.
        partner.barrier()?;
        for chunk in 0..CHUNKS {
            let at = softroce_verbs::Remote {
                addr: inbox.addr + (4 * CHUNK * chunk) as u64,
                ..inbox
            };
            let work = Work::WriteImmediate(at, Immediate::from_be(chunk as u32));
            let sge = [own.sge((4 * CHUNK * chunk) as u64, 4 * CHUNK as u32)];
            qp.post_send(&SendRequest::new(chunk as u64, work, &sge))?;
        }
        let (mut arrived, mut written) = (0, 0);
        while arrived < CHUNKS || written < CHUNKS {
            let completion = cq.wait(PATIENCE)?;
            if completion.status != Status::Success {
                return Err(Error::Protocol(format!(
                    "step {step}: request {} ended with {}",
                    completion.wr_id, completion.status
                )));
            }
            match (completion.kind, completion.immediate) {
                (CompletionKind::ReceiveWithImmediate, Some(chunk)) => {
                    let first = CHUNK * chunk.get() as usize;
                    let place = weights.get_mut(first..first + CHUNK);
                    let place = place.ok_or_else(|| {
                        Error::Protocol(format!("there is no chunk {}", chunk.get()))
                    })?;
                    add(place, own.memory(), 4 * first);
                    add(place, theirs.memory(), 4 * first);
                    arrived += 1;
                }
                _ => written += 1,
            }
        }
    }
    let time = context.now() - start;
    partner.barrier()?;

    let expected: f32 = (0..STEPS).map(|s| value(0, s, 1) + value(1, s, 1)).sum();
    if weights[1] != expected {
        return Err(Error::Protocol(format!(
            "parameter 1 is {}, not {expected}",
            weights[1]
        )));
    }
    println!(
        "worker {rank}: {STEPS} steps of {PARAMETERS} parameters in {:.3} ms; parameter 1 is {}",
        time.as_secs_f64() * 1e3,
        weights[1]
    );
    Ok(())
}

/// A parameter of a worker's gradient: a whole number, so that the order of additions does not show.
fn value(rank: u32, step: u32, parameter: u32) -> f32 {
    ((parameter * 7 + step * 3 + rank) % 101) as f32
}

fn gradient(rank: u32, step: u32) -> Vec<u8> {
    (0..PARAMETERS as u32)
        .flat_map(|i| value(rank, step, i).to_ne_bytes())
        .collect()
}

/// Adds what is in `memory` from `offset` on.
fn add(place: &mut [f32], memory: &softroce_verbs::Buffer, offset: usize) {
    let mut bytes = vec![0; 4 * place.len()];
    memory.read_at(offset, &mut bytes);
    for (sum, word) in place.iter_mut().zip(bytes.chunks_exact(4)) {
        let mut raw = [0; 4];
        raw.copy_from_slice(word);
        *sum += f32::from_ne_bytes(raw);
    }
}
