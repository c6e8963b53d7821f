//! The verbs programs, as they are built here, on libibverbs and the Linux kernel's Soft-RoCE: server and client
//! in the guest that `tests/interop` has, on its `rxe0`.
//!
//! Without a guest (see `tests/README.md`) one line says so. To the guest's file system an archive is added with
//! the programs, the libraries they need, and the script `run`, which the guest then starts in place of the agent.
#![cfg(target_os = "linux")]

use softroce_tests::interop::guest::{self, KERNELS};
use softroce_tests::peers;
use softroce_tests::programs::{PAIRS, PINGPONG, build, fits, output};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Tests of package softroce-verbs that run on any device.
const TESTS: [&str; 1] = ["any_device"];

/// How long a guest may take from its start to its end, in emulation on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

/// An archive as the kernel reads it, with the programs, their libraries and the script.
fn archive(programs: &BTreeMap<String, PathBuf>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("programs")).unwrap();
    let mut libraries = BTreeSet::new();
    let names = PAIRS.iter().map(|p| p.0).chain(TESTS).chain(["softroce"]);
    for name in names {
        let file = &programs[name];
        let to = root.join("programs").join(name);
        // Without what is for debuggers, which is most of it and would fill the guest's memory.
        output(Command::new("strip").arg("-o").arg(&to).arg(file));
        for word in output(Command::new("ldd").arg(&to)).split_whitespace() {
            if word.starts_with('/') {
                libraries.insert(word.to_string());
            }
        }
    }
    // All of libc's parts, so that they fit each other whatever the guest was made with.
    for library in &libraries {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, &to).unwrap();
    }
    let list = |names: Vec<&str>| names.join("\n") + "\n";
    // A program of the program's.
    let to = root.join("programs").join(PINGPONG.0);
    let text = "#!/bin/busybox sh\nexec /programs/softroce pingpong \"$@\"\n";
    fs::write(&to, text).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    let pairs = list(PAIRS.iter().chain([&PINGPONG]).map(|p| p.0).collect());
    fs::write(root.join("programs/pairs"), pairs).unwrap();
    fs::write(root.join("programs/tests"), list(TESTS.to_vec())).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/run");
    fs::copy(script, root.join("programs/run")).unwrap();

    let mut cpio = Command::new("cpio")
        .args(["-o", "-H", "newc", "--quiet", "-R", "0:0"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut names = cpio.stdin.take().unwrap();
    let list = output(Command::new("find").arg(".").current_dir(root));
    let writer = std::thread::spawn(move || names.write_all(list.as_bytes()));
    let mut archive = Vec::new();
    let mut stdout = cpio.stdout.take().unwrap();
    stdout.read_to_end(&mut archive).unwrap();
    writer.join().unwrap().unwrap();
    assert!(cpio.wait().unwrap().success());
    archive
}

/// Boots the kernel with the archive behind its file system, and gives every line until the guest has ended.
fn boot(folder: &Path, kernel: &str, archive: &[u8]) -> Vec<String> {
    let mut image = fs::read(folder.join(format!("initrd-{kernel}"))).unwrap();
    // An archive begins at a multiple of four.
    image.resize(image.len().next_multiple_of(4), 0);
    image.extend(archive);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), image).unwrap();
    // A hub whose other port has nobody takes what is sent and drops it. One with a single port takes nothing: a
    // datagram that leaves for a group would wait on the guest's card for ever, and its queue pair with it, which
    // the driver destroys only 50 s later.
    let mut qemu = guest::machine(folder, kernel, file.path(), "hubport,id=net,hubid=0")
        .unwrap()
        .args(["-netdev", "hubport,id=nobody,hubid=0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let stdout = BufReader::new(qemu.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if sender.send(line.trim_end().to_string()).is_err() {
                break;
            }
        }
    });
    let end = Instant::now() + LIMIT;
    let mut all = Vec::new();
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        println!("{kernel}: {line}");
        all.push(line);
    }
    let _ = qemu.kill();
    let _ = qemu.wait();
    all
}

/// What is wrong with what a guest printed.
fn judge(lines: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |name: &str, who: &str, texts: &[&str]| {
        let end = format!("{name} {who} exit 0");
        let texts = texts.iter().map(|text| format!("{name} {who}: {text}"));
        for pattern in texts.chain([end]) {
            if !lines.iter().any(|line| fits(line, &pattern)) {
                wrong.push(format!("no line {pattern:?}"));
            }
        }
    };
    for (name, server, client) in PAIRS.into_iter().chain([PINGPONG]) {
        expect(name, "server", server);
        expect(name, "client", client);
    }
    for name in TESTS {
        expect(name, "alone", &[]);
    }
    wrong
}

#[test]
fn on_the_kernels_soft_roce() {
    let Some(folder) = guest::find() else { return };
    for program in ["cpio", "strip", "ldd"] {
        if peers::find(program).is_none() {
            return;
        }
    }
    let archive = archive(&build(&TESTS));
    let mut failures = Vec::new();
    for kernel in KERNELS {
        let start = Instant::now();
        let wrong = judge(&boot(&folder, kernel, &archive));
        println!("{kernel}: {:.1?}", start.elapsed());
        failures.extend(wrong.into_iter().map(|w| format!("{kernel}: {w}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
