//! Peers of `softroce pingpong`.

use super::*;

/// What comes in the place of an address, or of the line of details behind it.
#[test]
fn garbage_ends_pingpong_with_a_word() {
    let good = "softroce 1 size 4096 mtu 1024 iters 1000 chk 0 addr 0x7f12a4c0f000 rkey 0x1a2b len 24576\n";
    let spoil = |from: &str, to: &str| {
        assert!(good.contains(from));
        [ADDRESS, &good.replace(from, to)].concat().into_bytes()
    };
    let huge = "9".repeat(3000);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "closed the connection"),
        (b"0000:0000".to_vec(), "closed the connection"),
        (vec![b'x'; 52], "not LID:QPN:PSN:GID"),
        (vec![0xff; 52], "not LID:QPN:PSN:GID"),
        (
            ADDRESS.replace("000011", "-00011").into_bytes(),
            "not LID:QPN:PSN:GID",
        ),
        (
            ADDRESS.replace("000011", "+00011").into_bytes(),
            "not LID:QPN:PSN:GID",
        ),
        (
            ADDRESS.replace("ffff7f00", "ffff:f00").into_bytes(),
            "not LID:QPN:PSN:GID",
        ),
        (ADDRESS.into(), "closed the connection"),
        (
            [ADDRESS, "softroce 1 si"].concat().into(),
            "closed the connection",
        ),
        (
            [ADDRESS, &"x".repeat(5000)].concat().into(),
            "not a line of details",
        ),
        (
            [ADDRESS.as_bytes(), b"\xff\xfe\n"].concat(),
            "not a line of details",
        ),
        ([ADDRESS, "\n"].concat().into(), "not a line of details"),
        (spoil("size 4096", "size -1"), "not a line of details"),
        (
            spoil("size 4096", &format!("size {huge}")),
            "not a line of details",
        ),
        (spoil("iters 1000", ""), "not a line of details"),
        (
            spoil("rkey 0x1a2b", "rkey 0x1a2b00000000"),
            "not a line of details",
        ),
        (
            spoil("size 4096", "size 18446744073709551615"),
            "--size 4096",
        ),
        (spoil("len 24576", "len 0"), "too little memory"),
        (spoil("len 24576", "len 24575"), "too little memory"),
        (
            spoil("len 24576", "len 18446744073709551615"),
            "beyond the last address",
        ),
        (
            spoil("0x7f12a4c0f000", "0xffffffffffffffff"),
            "beyond the last address",
        ),
    ];
    for end in ENDS {
        for (said, named) in &cases {
            let mut victim = Victim::start(end, &["pingpong"]);
            let _ = victim.tcp.write_all(said);
            let _ = victim.tcp.shutdown(std::net::Shutdown::Write);
            let what = format!("{end:?} {}", String::from_utf8_lossy(said));
            let what: String = what.chars().take(200).collect();
            let told = victim.fails(&what);
            assert!(told.contains(named), "{what}: {told}");
        }
    }
}
