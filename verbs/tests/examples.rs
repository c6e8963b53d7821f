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

/// What server and client came to.
#[cfg(target_os = "linux")]
fn both(program: &std::path::Path, options: &[&str]) -> [Output; 2] {
    use std::process::Stdio;
    let port = free_port();
    let start = |arguments: &[&str]| {
        Command::new(program)
            .args(["--device", "softroce0", "--port", &port])
            .args(options)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes = [start(&[]), start(&["127.0.0.1"])];
    processes.map(|p| p.wait_with_output().unwrap())
}

#[cfg(target_os = "linux")]
fn two_processes(name: &str, program: &std::path::Path, server: &[&str], client: &[&str]) {
    let [served, called] = both(program, &[]);
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
        what_cannot_be_is_told_in_a_line(name, program);
    }
    datagrams_that_are_lost_are_counted(&built["ud_multicast"]);
}

/// On each way something is lost, and whatever comes is as it was sent.
fn datagrams_that_are_lost_are_counted(program: &std::path::Path) {
    let lost = |lines: &[String]| -> u32 {
        let lost = lines.iter().filter_map(|line| {
            let (said, lost) = line.split_once("; ")?;
            let lost: u32 = lost.strip_suffix(" of 50 were lost")?.parse().ok()?;
            let (_, got) = said.split_once("got ")?;
            let got: u32 = got.split(' ').next()?.parse().ok()?;
            assert_eq!(got + lost, 50, "{line}");
            Some(lost)
        });
        lost.sum()
    };
    let run = |arguments: &[&str]| Command::new(program).args(arguments).output().unwrap();
    let simulated = [
        "--device",
        "sim:two-hosts",
        "--set",
        "link.loss=0.2",
        "--seed",
        "3",
    ];
    let output = lines("lossy", &run(&simulated));
    // Two members of 50 datagrams each at 20%.
    assert!((1..50).contains(&lost(&output)), "{output:?}");
    #[cfg(target_os = "linux")]
    {
        let lossy = ["--loss", "20%", "--seed", "3"];
        let [served, called] = both(program, &lossy);
        let (served, called) = (lines("lossy", &served), lines("lossy", &called));
        assert!(lost(&served) > 0, "{served:?} {called:?}");
    }
}

/// A number that is none, and a server that does not come.
fn what_cannot_be_is_told_in_a_line(name: &str, program: &std::path::Path) {
    let run = |arguments: &[&str]| Command::new(program).args(arguments).output().unwrap();
    for (option, value) in [
        ("--port", "-1"),
        ("--seed", "-1"),
        ("--wait", "-5"),
        ("--loss", "-1%"),
    ] {
        let refused = run(&[option, value]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{name}: {error}");
        let told = format!("invalid value '{value}' for '{option} <");
        assert!(error.contains(&told), "{name}: {error}");
    }
    #[cfg(target_os = "linux")]
    {
        let start = std::time::Instant::now();
        let port = free_port();
        let alone = run(&["--port", &port, "--wait", "1", "127.0.0.1"]);
        assert!(
            start.elapsed().as_secs() < 5,
            "{name}: {:?}",
            start.elapsed()
        );
        let error = String::from_utf8_lossy(&alone.stderr);
        let error: Vec<&str> = error.lines().collect();
        assert_eq!(alone.status.code(), Some(1), "{name}: {error:?}");
        let told = [
            format!("waiting for a server at 127.0.0.1:{port} for at most 1 s (--wait)"),
            format!(
                "error: client: connecting to 127.0.0.1:{port}: nobody listened there for 1 s: "
            ),
        ];
        assert!(
            error.len() == 2 && error[0] == told[0] && error[1].starts_with(&told[1]),
            "{name}: {error:?}"
        );
    }
}
