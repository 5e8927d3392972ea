//! A manifest with any one value replaced: the program ends with an exit code of its own, whatever
//! it reads. Files stay as they are, so that what the manifest says of them is all that is wrong.

mod bundle;

use bundle::{bundle, driver};
use std::fs;
use std::ops::Range;
use std::process::Command;

/// What takes the place of a value: of other types, at the ends of theirs, or of another meaning.
const VALUES: [&str; 16] = [
    "null",
    "true",
    "-1",
    "0",
    "4294967295",
    "9007199254740992",
    "1e999",
    "0.5",
    "\"\"",
    "\"rows\"",
    "\"cols * cols * cols * cols * cols * cols\"",
    "\"sm_99999999999\"",
    "\"../manifest.json\"",
    "\"float32\"",
    "[]",
    "{}",
];

/// Where the values are that are neither lists nor objects.
fn places(text: &str) -> Vec<Range<usize>> {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        if bytes[at] == b'"' {
            at += 1 + text[at + 1..].find('"').unwrap() + 1; // no manifest escapes a quote
            if bytes.get(at) != Some(&b':') {
                found.push(start..at);
            }
        } else if bytes[at].is_ascii_alphanumeric() || bytes[at] == b'-' {
            let end = text[at..].find([',', '}', ']', '\n']).unwrap();
            at += end;
            found.push(start..at);
        } else {
            at += 1;
        }
    }
    found
}

#[test]
fn no_value_brings_the_program_down() {
    let folder =
        std::env::temp_dir().join(format!("rooftile-host-{}-tampered", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    for part in ["", "golden"] {
        fs::create_dir_all(folder.join(part)).unwrap();
        for entry in fs::read_dir(bundle().join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, folder.join(part).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    let manifest = folder.join("manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    let places = places(&whole);
    assert!(places.len() > 1000, "{}", places.len());
    // every 17th value, each by another replacement: over the kernels all fields come up
    for (turn, place) in places.iter().step_by(17).enumerate() {
        let value = VALUES[turn % VALUES.len()];
        let text = [&whole[..place.start], value, &whole[place.end..]].concat();
        fs::write(&manifest, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rooftile-host"))
            .args(["run", "softmax", "--rows", "2", "--cols", "4096", "--launches", "1"])
            .args(["--bundle", folder.to_str().unwrap(), "--driver", &driver()])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        let known = code.is_some_and(|code| code == 0 || (5..=10).contains(&code));
        let was = &whole[place.start.saturating_sub(40)..place.end];
        assert!(known && !words.contains("panicked"), "{was} -> {value}: {code:?} {words}");
        let lines = words.trim_end().lines().count();
        assert!(lines <= 1, "{was} -> {value}: {words}");
    }
    fs::remove_dir_all(folder).unwrap();
}
