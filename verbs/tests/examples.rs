//! The programs in `examples/`: server and client as two processes of this machine, and both in a scenario's
//! network, twice the same.

use softroce_tests::programs::{PAIRS, build, fits};
use std::process::{Command, Output};

/// Lines of what a process that must have ended well has printed.
fn lines(what: &str, output: &Output) -> Vec<String> {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}: {error}",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_string).collect()
}

fn check(what: &str, lines: &[String], patterns: &[&str]) {
    assert_eq!(lines.len(), patterns.len(), "{what}: {lines:?}");
    for pattern in patterns {
        assert!(
            lines.iter().any(|line| fits(line, pattern)),
            "{what}: {lines:?}; {pattern:?} expected"
        );
    }
}

/// A TCP port that was free a moment ago, and is not given out again so soon.
#[cfg(target_os = "linux")]
fn free_port() -> String {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().port().to_string()
}

#[cfg(target_os = "linux")]
fn two_processes(name: &str, program: &std::path::Path, server: &[&str], client: &[&str]) {
    use std::process::Stdio;
    let port = free_port();
    let start = |arguments: &[&str]| {
        Command::new(program)
            .args(["--device", "softroce0", "--port", &port])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes = [start(&[]), start(&["127.0.0.1"])];
    let [served, called] = processes.map(|p| p.wait_with_output().unwrap());
    check(name, &lines(name, &served), server);
    check(name, &lines(name, &called), client);
}

/// One test for all, so that they are built once and do not take each other's time.
#[test]
fn the_examples_run_between_processes_and_in_virtual_time() {
    let built = build(&[]);
    for (name, server, client) in PAIRS {
        let program = &built[name];
        #[cfg(target_os = "linux")]
        two_processes(name, program, server, client);
        let simulate = |device: &str| {
            let mut command = Command::new(program);
            command.args(["--device", device]).output().unwrap()
        };
        let once = simulate("sim:two-hosts");
        let all: Vec<_> = server.iter().chain(client).copied().collect();
        check(name, &lines(name, &once), &all);
        assert_eq!(simulate("sim:two-hosts"), once, "{name}");
        // What it tells of the network stands behind it.
        let network = String::from_utf8_lossy(&once.stderr);
        assert!(network.starts_with("virtual time "), "{name}: {network}");
        let nobody = simulate("sim:no-such-scenario");
        assert_eq!(nobody.status.code(), Some(2), "{name}");
    }
}
