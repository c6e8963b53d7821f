//! What the README at the top shows is what its commands print.

use std::path::Path;
use std::process::Command;

/// The commands shown with their output: a block that begins with `$ softroce`, and what follows.
fn shown(readme: &str) -> Vec<(Vec<&str>, Vec<&str>)> {
    let blocks = readme.split("```text\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("\n```").next());
    blocks
        .filter_map(|block| {
            let mut lines = block.lines();
            let command = lines.next()?.strip_prefix("$ softroce ")?;
            // Two shells side by side show what to type alone.
            let one = !command.contains('$');
            one.then(|| (command.split_whitespace().collect(), lines.collect()))
        })
        .collect()
}

/// Says where `printed` is not as `shown`, in which a line of dots stands for any lines, and a line that ends in
/// dots for any that begins so.
fn difference(shown: &[&str], printed: &[&str]) -> Option<String> {
    let mut printed = printed.iter();
    let mut any = false;
    for &want in shown {
        if want == "..." {
            any = true;
            continue;
        }
        let is = |line: &&&str| match want.strip_suffix(" ...") {
            Some(start) => line.starts_with(start),
            None => line.trim_end() == want.trim_end(),
        };
        let found = if std::mem::take(&mut any) {
            printed.any(|line| is(&line))
        } else {
            printed.next().is_some_and(|line| is(&line))
        };
        if !found {
            return Some(format!("not printed there: {want}"));
        }
    }
    match printed.next() {
        Some(more) if !any => Some(format!("printed, and not shown: {more}")),
        _ => None,
    }
}

#[test]
fn commands_print_what_the_readme_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let all = shown(&readme);
    assert!(all.len() >= 4, "{all:?}");
    for (arguments, lines) in all {
        let output = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(&arguments)
            .current_dir(&root)
            .output()
            .unwrap();
        let printed =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
        let printed: Vec<&str> = printed.lines().collect();
        if let Some(what) = difference(&lines, &printed) {
            panic!(
                "README.md, softroce {}: {what}\nit prints\n{}",
                arguments.join(" "),
                printed.join("\n")
            );
        }
    }
}

#[test]
fn dots_stand_for_what_is_left_out() {
    let printed = ["a", "b", "c 1 2"];
    for shown in [
        &["a", "b", "c 1 2"][..],
        &["a", "...", "c 1 2"],
        &["a", "..."],
        &["...", "c ..."],
    ] {
        assert_eq!(difference(shown, &printed), None, "{shown:?}");
    }
    for shown in [
        &["a", "b"][..],
        &["b", "..."],
        &["...", "d"],
        &["a", "c 1 2"],
    ] {
        assert!(difference(shown, &printed).is_some(), "{shown:?}");
    }
}
