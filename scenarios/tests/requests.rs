//! Services, operations, rights and mistakes of loads, run by the built program.

mod common;

use common::{file, run, softroce, text};
use serde_json::Value;

/// A scenario of one load with these keys between two hosts.
fn load(keys: &str) -> String {
    format!(
        "[topology]\nkind = \"back-to-back\"\n[card]\nmin-rnr-timer = 1\n[[traffic]]\nname = \"load\"\n\
         from = \"h0\"\nto = \"h1\"\n{keys}\n"
    )
}

/// Its first run, with settings.
#[track_caller]
fn run_with(keys: &str, settings: &[&str]) -> Value {
    run(&load(keys), settings)
}

/// What became of the load: its requests and its receives by status.
#[track_caller]
fn ends(keys: &str) -> [Vec<(String, u64)>; 2] {
    let run = run_with(keys, &[]);
    let load = &run["traffic"][0];
    assert_eq!(load["damaged"], 0, "{keys}");
    ["completions", "receives"].map(|key| {
        let all = load[key].as_object().unwrap().iter();
        all.map(|(status, n)| (status.clone(), n.as_u64().unwrap()))
            .collect()
    })
}

/// Holds the statuses against `"2 success, 1 flushed"`, in the order of the alphabet.
#[track_caller]
fn end_as(keys: &str, requests: &str, receives: &str) {
    let shown = ends(keys).map(|all| {
        let each: Vec<_> = all.iter().map(|(s, n)| format!("{n} {s}")).collect();
        each.join(", ")
    });
    assert_eq!(shown, [requests, receives], "{keys}");
}

#[track_caller]
fn complaint(keys: &str) -> String {
    let (_dir, path) = file(load(keys));
    let out = softroce(&["check", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2), "{keys}");
    assert_eq!(text(&out.stdout), "");
    text(&out.stderr).to_string()
}

fn size(operation: &str) -> &'static str {
    match operation {
        "compare-swap" | "fetch-add" | "atomic-write" => "",
        _ => "size = \"1000B\"\n",
    }
}

/// What each service has, by the manual page of `ibv_post_send` and, for ATOMIC WRITE, that of `ibv_wr_post`.
const SERVICES: [(&str, &[&str]); 3] = [
    (
        "rc",
        &[
            "send",
            "send-imm",
            "send-inv",
            "write",
            "write-imm",
            "read",
            "compare-swap",
            "fetch-add",
            "atomic-write",
            "bind",
        ],
    ),
    ("uc", &["send", "send-imm", "write", "write-imm", "bind"]),
    ("ud", &["send", "send-imm"]),
];
const ALL: &[&str] = SERVICES[0].1;

#[test]
fn each_service_carries_out_its_operations_and_refuses_the_others() {
    for (transport, has) in SERVICES {
        for &operation in ALL {
            let keys = format!(
                "operation = \"{operation}\"\ntransport = \"{transport}\"\ncount = 6\ndepth = 2\n{}",
                size(operation)
            );
            if !has.contains(&operation) {
                let told = complaint(&keys);
                let what = format!(
                    "transport = \"{transport}\" in [[traffic]] \"load\" has no \"{operation}\""
                );
                assert!(told.contains(&what), "{told}");
                let list: Vec<_> = has.iter().map(|o| format!("\"{o}\"")).collect();
                assert!(told.contains(&list.join(", ")), "{told}");
                continue;
            }
            let receives = operation.starts_with("send") || operation == "write-imm";
            end_as(&keys, "6 success", if receives { "6 success" } else { "" });
        }
    }
}

#[test]
fn what_an_unreliable_service_loses_is_not_received_and_nobody_is_told() {
    for (transport, operation) in [("uc", "send"), ("uc", "write-imm"), ("ud", "send-imm")] {
        let keys = format!(
            "operation = \"{operation}\"\ntransport = \"{transport}\"\nsize = 1000\ncount = 1000\ndepth = 8\n\
             [[fault]]\nlink = \"h0->h1\"\nkind = \"every\"\nevery = 10\n\
             [[expect]]\nmetric = \"completions.success\"\nequals = 1000\n\
             [[expect]]\nmetric = \"drops.fault\"\nequals = 100\n\
             [[expect]]\nmetric = \"receives.success\"\nequals = 900\n\
             [[expect]]\nmetric = \"acks\"\nequals = 0\n\
             [[expect]]\nmetric = \"retransmissions\"\nequals = 0\n"
        );
        let run = run_with(&keys, &[]);
        assert_eq!(run["traffic"][0]["transport"], transport);
    }
}

#[test]
fn the_other_end_allows_what_the_file_says() {
    // Which right each needs; ATOMIC WRITE needs that of a WRITE.
    let needs = [
        ("write", "write"),
        ("write-imm", "write"),
        ("read", "read"),
        ("compare-swap", "atomic"),
        ("fetch-add", "atomic"),
        ("atomic-write", "write"),
    ];
    for (operation, right) in needs {
        for (key, refused) in [
            ("mr-access", "remote-access"),
            ("qp-access", "remote-invalid-request"),
        ] {
            let keys = format!("operation = \"{operation}\"\n{}{key} = ", size(operation));
            let others: Vec<_> = ["write", "read", "atomic"]
                .into_iter()
                .filter(|r| *r != right)
                .map(|r| format!("\"{r}\""))
                .collect();
            for granted in [format!("\"{right}\""), format!("[\"{right}\"]")] {
                let [requests, _] = ends(&format!("{keys}{granted}"));
                assert_eq!(requests, [("success".to_string(), 1)], "{keys}{granted}");
            }
            for granted in ["[]".to_string(), format!("[{}]", others.join(", "))] {
                let [requests, _] = ends(&format!("{keys}{granted}"));
                assert_eq!(requests, [(refused.to_string(), 1)], "{keys}{granted}");
            }
        }
    }
}

#[test]
fn receives_have_the_size_that_the_file_says() {
    for operation in ["send", "send-imm", "send-inv"] {
        let keys =
            format!("operation = \"{operation}\"\nsize = 1000\nrecv-depth = 1\nrecv-size = ");
        end_as(&format!("{keys}1000"), "1 success", "1 success");
        end_as(&format!("{keys}\"4KiB\""), "1 success", "1 success");
        end_as(
            &format!("{keys}999"),
            "1 remote-invalid-request",
            "1 local-length",
        );
    }
    // A datagram that does not fit is dropped, and the receive waits.
    let ud = "transport = \"ud\"\noperation = \"send\"\nsize = 1000\nrecv-depth = 1\nrecv-size = ";
    end_as(&format!("{ud}1000"), "1 success", "1 success");
    end_as(&format!("{ud}999"), "1 success", "");
}

#[test]
fn a_mistake_is_made_from_the_request_on_that_the_file_says() {
    for (operation, mistake, status) in [
        ("write", "rkey", "remote-access"),
        ("read", "stale-key", "remote-access"),
        ("write", "domain", "remote-access"),
        ("read", "address", "remote-access"),
        ("fetch-add", "alignment", "remote-invalid-request"),
        ("write", "lkey", "local-protection"),
        ("send", "recv-lkey", "remote-operation"),
        ("bind", "binding", "window-bind"),
    ] {
        let keys = format!(
            "operation = \"{operation}\"\n{}count = 9\nrecv-depth = 1\nmistake = \"{mistake}\"\n",
            size(operation)
        );
        let keys = match operation.starts_with("send") {
            true => keys,
            false => keys.replace("recv-depth = 1\n", ""),
        };
        let [requests, _] = ends(&format!("{keys}mistake-from = 5\n"));
        let mut expected = vec![(status.to_string(), 1), ("success".to_string(), 4)];
        expected.sort();
        assert_eq!(requests, expected, "{keys}");
        let [requests, _] = ends(&keys);
        assert_eq!(requests, [(status.to_string(), 1)], "{keys}");
    }
}

#[test]
fn a_profile_brings_its_habits_and_a_key_prevails() {
    // 100 packets: an ACK for the last one and every 32nd, or as the kernel's card does every 66th.
    let keys = "operation = \"write\"\nsize = \"100KiB\"\n";
    for (settings, acks) in [
        (&["card.profile=spec"][..], 4),
        (&["card.profile=rxe"], 2),
        (&["card.profile=rxe", "card.ack-every=20"], 5),
        (&["card.h0.profile=rxe"], 2),
        (&["card.h1.profile=rxe"], 4),
    ] {
        let run = run_with(keys, settings);
        assert_eq!(run["traffic"][0]["counts"]["acks"], acks, "{settings:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (keys, message) in [
        (
            "operation = \"write\"\nsize = 1\nmistake = \"qkey\"\n",
            "mistake = \"qkey\" in [[traffic]] \"load\" cannot be made with \"write\" over \"rc\"; those \
             that can are \"lkey\", \"rkey\"",
        ),
        (
            "operation = \"write\"\nsize = 1\nmistake-from = 2\n",
            "means nothing without a \"mistake\"",
        ),
        (
            "operation = \"fetch-add\"\nsize = 4\n",
            "size = 4 in [[traffic]] \"load\" makes a message of 4B, but \"fetch-add\" works on 8 bytes",
        ),
        (
            "operation = \"bind\"\nsize = 0\n",
            "needs a window of at least 1 byte",
        ),
        (
            "operation = \"bind\"\nsize = 1\ncount = 2000000\n",
            "must be at most 1048576 with \"bind\"",
        ),
        (
            "operation = \"bind\"\nsize = 1\nduration = \"1us\"\n",
            "cannot end \"bind\", which takes no time",
        ),
        (
            "operation = \"send\"\ntransport = \"ud\"\nsize = 1025\n",
            "have a path MTU of 1024, but a datagram has 1025B",
        ),
        (
            "operation = \"send\"\nsize = 1\nmr-access = []\n",
            "\"mr-access\" in [[traffic]] \"load\" means nothing with operation = \"send\"",
        ),
        (
            "operation = \"write\"\nsize = 1\nmr-access = [\"write\", \"write\"]\n",
            "has \"write\" twice",
        ),
        (
            "operation = \"write\"\nsize = 1\nmr-access = [\"raed\"]\n",
            "did you mean \"read\"?",
        ),
        (
            "operation = \"write\"\nsize = 1\nrecv-size = 1\n",
            "\"recv-size\" in [[traffic]] \"load\" means nothing with operation = \"write\"",
        ),
        (
            "operation = \"send\"\nsize = 1\nrecv-size = \"512MiB\"\n",
            "register 1073741825B of memory",
        ),
        (
            "operation = \"send\"\n",
            "has no \"size\", which must be a size from 0B to 2GiB",
        ),
        (
            "operation = \"send\"\nsize = 1\ntransport = \"uc\"\n\
             [[expect]]\nmetric = \"goodput\"\nequals = { law = \"go-back-n\" }\n",
            "is for SEND and WRITE over \"rc\", but \"load\" is \"send\" over \"uc\"",
        ),
        (
            "operation = \"read\"\nsize = 1\n\
             [[expect]]\nmetric = \"goodput\"\nequals = { law = \"go-back-n\" }\n",
            "is for SEND and WRITE over \"rc\", but \"load\" is \"read\" over \"rc\"",
        ),
    ] {
        let told = complaint(keys);
        assert!(told.contains(message), "{told}");
        assert_eq!(told.matches("mine.toml:").count(), 1, "{told}");
    }
    // Flows of a file are held to the service too.
    let (dir, path) = file(load(
        "pattern = \"file\"\nflows = \"f.csv\"\noperation = \"send\"\ntransport = \"uc\"\n",
    ));
    std::fs::write(dir.path().join("f.csv"), "h0,h1,1,0\nh0,h1,1,0,read\n").unwrap();
    let content = std::fs::read_to_string(&path).unwrap();
    let content = content.replace("from = \"h0\"\nto = \"h1\"\n", "");
    std::fs::write(&path, content).unwrap();
    let out = softroce(&["check", path.to_str().unwrap()]);
    let told = text(&out.stderr);
    assert!(
        told.contains("transport = \"uc\" in [[traffic]] \"load\" has no \"read\""),
        "{told}"
    );
    assert_eq!(out.status.code(), Some(2));
}
