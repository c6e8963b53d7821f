//! The kernel's end: a machine in QEMU.

use super::{Contact, Done, Op, Outcome, PATIENCE, Request};
use crate::peers;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Debian's kernels that the guests have.
pub const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// How long a guest may take to come up, in emulation on a busy machine.
const BOOT: Duration = Duration::from_secs(90);

/// Where the guests are: the folder that `SOFTROCE_RXE_VM` names, which `tests/interop/build.sh` filled.
/// `None`, with a line that says so, if there is none or no QEMU.
///
/// # Panics
///
/// If it is missing and `SOFTROCE_REQUIRE_PEERS` is `1`, or it is named and has no guests.
pub fn find() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("SOFTROCE_RXE_VM") else {
        peers::missing(
            "a folder with guests (SOFTROCE_RXE_VM, filled by tests/interop/build.sh) is not named",
        );
        return None;
    };
    peers::find("qemu-system-x86_64")?;
    Some(folder.into())
}

/// A machine with `kernel` out of `folder` and this file system, its network card on `netdev`, a network
/// called `net`. Its first serial line is standard input and output.
///
/// # Errors
///
/// If there is no such kernel or file system.
pub fn machine(folder: &Path, kernel: &str, initrd: &Path, netdev: &str) -> Outcome<Command> {
    let vmlinuz = folder.join(format!("vmlinuz-{kernel}"));
    for file in [&vmlinuz, initrd] {
        if !file.is_file() {
            return Err(format!("{} is not there", file.display()));
        }
    }
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-M", "pc,accel=tcg", "-cpu", "max", "-m", "384"])
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none"])
        .arg("-kernel")
        .arg(vmlinuz)
        .arg("-initrd")
        .arg(initrd)
        .args([
            "-append",
            "console=ttyS1 panic=-1 quiet mitigations=off nokaslr random.trust_cpu=on tsc=reliable \
             audit=0",
        ])
        .args(["-netdev", netdev])
        .args(["-device", "virtio-net-pci,netdev=net,mac=52:54:00:66:00:01"])
        .args(["-chardev", "stdio,id=agent,signal=off"])
        .args(["-serial", "chardev:agent", "-serial", "null"]);
    Ok(qemu)
}

/// An end that has to work while the guest is waited for.
pub(super) trait Work {
    /// Works for at most `time`, or until something was done.
    fn work(&mut self, time: Duration) -> Outcome;
}

/// A guest that is up, with the agent waiting for commands. It is ended when it is dropped.
pub struct Guest {
    qemu: Child,
    to: ChildStdin,
    from: Receiver<String>,
    /// UDP ports of the cable: ours and the guest's.
    ports: [u16; 2],
}

/// An answer of the agent: words `key=value`.
#[derive(Clone, Debug)]
pub struct Answer(BTreeMap<String, String>);

impl Answer {
    /// A number in it.
    ///
    /// # Errors
    ///
    /// If it is not there.
    pub fn get(&self, key: &str) -> Outcome<u64> {
        let value = self.0.get(key).and_then(|v| v.parse().ok());
        value.ok_or_else(|| format!("Kernel: no number {key} in {self:?}"))
    }

    /// How a program has ended; `None` if it has not.
    pub(super) fn ended(&self) -> Outcome<Option<Ended>> {
        if self.0.contains_key("running") {
            return Ok(None);
        }
        let text = self.0.get("text").map_or("", String::as_str);
        Ok(Some(Ended {
            code: self.get("code")?,
            text: unescape(text),
        }))
    }

    /// As a completion.
    pub(super) fn completion(&self) -> Outcome<Option<Done>> {
        if self.0.contains_key("none") {
            return Ok(None);
        }
        let (id, status) = (self.get("id")?, self.get("status")? as u8);
        if status != 0 {
            return Ok(Some(Done {
                id,
                status,
                ..Done::default()
            }));
        }
        let flags = self.get("flags")?;
        // IBV_WC_RECV, IBV_WC_WITH_IMM
        let receive = self.get("opcode")? & 128 != 0;
        let imm = self.get("imm")? as u32;
        let inv = self.get("inv")? as u32;
        Ok(Some(Done {
            id,
            status,
            receive,
            bytes: self.get("bytes")? as u32,
            imm: (receive && flags & 2 != 0).then_some(imm),
            // No key is 0.
            inv: (inv != 0).then_some(inv),
            src: self.get("src")? as u32,
        }))
    }
}

/// How a program in the guest has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit code; above 128 it is a signal's.
    pub code: u64,
    /// What it has printed.
    pub text: String,
}

/// Text in which bytes are written as %XX.
fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.push(u8::from_str_radix(code, 16).unwrap_or(b'?'));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Two UDP ports of the loopback address that nobody has.
fn free_ports() -> Outcome<[u16; 2]> {
    let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string());
    let (a, b) = (socket()?, socket()?);
    let port = |s: &UdpSocket| s.local_addr().map(|a| a.port()).map_err(|e| e.to_string());
    Ok([port(&a)?, port(&b)?])
}

impl Guest {
    /// Starts the guest with `kernel` out of `folder`, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// If it does not start, or is not ready in time.
    pub fn start(folder: &Path, kernel: &str) -> Outcome<Guest> {
        let ports = free_ports()?;
        let end =
            |name: &str, port| format!("{name}.type=inet,{name}.host=127.0.0.1,{name}.port={port}");
        let [ours, theirs] = ports;
        let netdev = format!(
            "dgram,id=net,{},{}",
            end("local", theirs),
            end("remote", ours)
        );
        let initrd = folder.join(format!("initrd-{kernel}"));
        let mut qemu = machine(folder, kernel, &initrd, &netdev)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|e| format!("qemu-system-x86_64: {e}"))?;
        let (to, output) = match (qemu.stdin.take(), qemu.stdout.take()) {
            (Some(to), Some(output)) => (to, output),
            _ => return Err("QEMU without pipes".into()),
        };
        let (sender, from) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line.trim_end().to_string()).is_err() {
                    break;
                }
            }
        });
        let guest = Guest {
            qemu,
            to,
            from,
            ports,
        };
        match guest.from.recv_timeout(BOOT) {
            Ok(line) if line.contains("ready=1") => Ok(guest),
            Ok(line) => Err(format!("the guest says: {line}")),
            Err(_) => Err(format!("the guest is not ready after {BOOT:?}")),
        }
    }

    pub(super) fn ports(&self) -> [u16; 2] {
        self.ports
    }

    /// Gives the agent a command and waits for its answer, while our end works on.
    pub(super) fn ask(&mut self, end: &mut dyn Work, line: &str) -> Outcome<Answer> {
        let send = self.to.write_all(format!("{line}\n").as_bytes());
        send.and_then(|()| self.to.flush())
            .map_err(|e| format!("Kernel: {line}: {e}"))?;
        let limit = Instant::now() + 2 * PATIENCE;
        let answer = loop {
            match self.from.try_recv() {
                Ok(answer) => break answer,
                Err(mpsc::TryRecvError::Disconnected) => {
                    return Err(format!("Kernel: {line}: the guest is gone"));
                }
                Err(mpsc::TryRecvError::Empty) if Instant::now() > limit => {
                    return Err(format!("Kernel: {line}: no answer"));
                }
                Err(mpsc::TryRecvError::Empty) => end.work(Duration::from_micros(500))?,
            }
        };
        let Some(words) = answer.strip_prefix("ok") else {
            return Err(format!("Kernel: {line}: {answer}"));
        };
        let pairs = words.split_whitespace().filter_map(|w| w.split_once('='));
        Ok(Answer(
            pairs
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        ))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        // The thread that reads ends with the pipe.
        while !matches!(
            self.from.recv_timeout(Duration::from_secs(1)),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout)
        ) {}
    }
}

pub(super) fn post_line(request: &Request, peer: Contact) -> String {
    let Request {
        id,
        op,
        at,
        len,
        there,
        rkey,
    } = *request;
    let (name, extra) = match op {
        Op::Send => ("send", String::new()),
        Op::SendImm(imm) => ("send_imm", format!(" imm={imm}")),
        Op::SendInv(_) => ("send_inv", String::new()),
        Op::Write => ("write", String::new()),
        Op::WriteImm(imm) => ("write_imm", format!(" imm={imm}")),
        Op::Read => ("read", String::new()),
        Op::Cas { compare, swap } => ("cas", format!(" compare={compare} swap={swap}")),
        Op::Faa(add) => ("faa", format!(" add={add}")),
    };
    let key = match op {
        Op::SendInv(key) => key,
        _ => rkey.unwrap_or(peer.rkey),
    };
    let raddr = peer.addr.wrapping_add(there);
    let mut line = format!("post id={id} op={name} at={at} len={len} raddr={raddr} rkey={key}");
    let _ = write!(line, "{extra} qpn={}", peer.qpn);
    line
}
