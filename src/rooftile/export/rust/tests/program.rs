//! The program on a bundle of softmax and RMS norm (bfloat16, 4096 columns, sm_80
//! and sm_90), with the stand-in driver. `ROOFTILE_TEST_BUNDLE` names the bundle.

mod bundle;

use bundle::{bundle, driver};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn program(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rooftile-host"))
        .args(arguments)
        .envs(settings.iter().copied())
        .output()
        .unwrap()
}

/// `run` of an op of 4096 columns with the stand-in driver: exit code and what it says.
fn run(op: &str, more: &[&str], settings: &[(&str, &str)]) -> (i32, String) {
    let (folder, driver) = (bundle(), driver());
    let mut arguments = vec!["run", op, "--bundle", folder.to_str().unwrap(), "--driver", &driver];
    arguments.extend(["--rows", "5", "--launches", "3"]);
    arguments.extend(more);
    let output = program(&arguments, settings);
    let words = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(words).unwrap())
}

/// A copy of the bundle that may be spoilt.
fn copy(name: &str) -> PathBuf {
    let to = std::env::temp_dir().join(format!("rooftile-host-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&to);
    for folder in ["", "golden"] {
        fs::create_dir_all(to.join(folder)).unwrap();
        for entry in fs::read_dir(bundle().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, to.join(folder).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    to
}

fn inspect(folder: &Path) -> (i32, String) {
    let output = program(&["inspect", folder.to_str().unwrap()], &[]);
    (
        output.status.code().unwrap(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

#[test]
fn ops_give_the_right_result() {
    for op in ["softmax", "rms_norm"] {
        let (code, words) = run(op, &["--cols", "4096"], &[]);
        assert_eq!(code, 0, "{words}");
        assert!(words.contains(&format!("{op}_fwd_bf16_n4096_sm90, loaded")), "{words}");
        assert!(
            words.contains("golden    largest error") && words.contains("check     largest error"),
            "{words}"
        );
    }
}

#[test]
fn an_odd_width_takes_the_form_without_assumptions() {
    let (code, words) = run("softmax", &["--cols", "4001"], &[]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("softmax_fwd_bf16_n4096_any_sm90, loaded"), "{words}");
}

#[test]
fn a_later_gpu_takes_the_portable_ptx() {
    let (code, words) = run("softmax", &["--cols", "4096"], &[("STANDIN_CAPABILITY", "120")]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("softmax_fwd_bf16_n4096_sm80, loaded"), "{words}");
}

#[test]
fn a_gpu_of_the_same_family_takes_the_binary() {
    // CUDA 12.0 reads no PTX 8.8, so only the CUBIN can have been loaded
    let settings = [("STANDIN_CAPABILITY", "86"), ("STANDIN_VERSION", "12000")];
    assert_eq!(run("softmax", &["--cols", "4096"], &settings).0, 0);
}

#[test]
fn every_fault_has_its_exit_code() {
    let cols = &["--cols", "4096"][..];
    let ptx = &["--cols", "4096", "--ptx"][..];
    let cases: [(&[&str], &[(&str, &str)], i32, &str); 13] = [
        (cols, &[("STANDIN_DEVICES", "0")], 4, "no GPU"),
        (
            cols,
            &[("STANDIN_CAPABILITY", "75")],
            5,
            "this GPU is sm_75; export it with --arch sm_75",
        ),
        (cols, &[("STANDIN_LOAD", "209")], 5, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"),
        (
            ptx,
            &[("STANDIN_VERSION", "12040")],
            6,
            "this one is for 12.4: export with --ptx-version",
        ),
        (cols, &[("STANDIN_LOAD", "222")], 6, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        (cols, &[("STANDIN_LOAD", "200")], 6, "CUDA_ERROR_INVALID_IMAGE (200)"),
        (&["--cols", "9000"], &[], 8, "takes cols 2064 to 4096 by 16"),
        (cols, &[("STANDIN_WRONG", "1")], 9, "differ from the bundle's result"),
        (&["--cols"], &[], 2, "must be an option with a value"),
        (&["--cols", "4096", "--rows", "3000000000"], &[], 8, "to be run"),
        (&["--cols", "4096", "--rows", "9223372036854775807"], &[], 8, "to be run"),
        (&["--cols", "4096", "--rows", "9223372036854775808"], &[], 2, "must be a whole number"),
        (&["--cols", "4096", "--rows", "-1"], &[], 2, "must be a whole number"),
    ];
    for (more, settings, wanted, said) in cases {
        let (code, words) = run("softmax", more, settings);
        assert_eq!(code, wanted, "{words}");
        assert!(words.contains(said), "{said}: {words}");
        assert!(!words.contains("panicked"), "{words}");
    }
}

#[test]
fn no_driver_is_said_in_one_line() {
    let folder = bundle();
    let output = program(
        &["run", "softmax", "--bundle", folder.to_str().unwrap(), "--driver", "libnone.so.1"],
        &[],
    );
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(words.contains("no NVIDIA driver") && words.trim_end().lines().count() == 1, "{words}");
}

#[test]
fn a_whole_bundle_passes_and_a_spoilt_one_does_not() {
    assert_eq!(inspect(&bundle()).0, 0);
    let cubin = "softmax_fwd_bf16_n4096_sm90.cubin";
    let spoil = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>, file: &str| {
        let folder = copy(name);
        let path = folder.join(file);
        fs::write(&path, change(fs::read(&path).unwrap())).unwrap();
        let found = inspect(&folder);
        fs::remove_dir_all(folder).unwrap();
        found
    };
    let flip = |mut data: Vec<u8>| {
        let at = data.len() / 2;
        data[at] ^= 1;
        data
    };
    let cut = |data: Vec<u8>| data[..data.len() / 2].to_vec();
    let text = |from: &'static str, to: &'static str| {
        move |data: Vec<u8>| {
            let text = String::from_utf8(data).unwrap();
            let (before, after) = text.rsplit_once(from).expect(from);
            [before, to, after].concat().into_bytes()
        }
    };
    let found = [
        (spoil("flip", &flip, cubin), "is not the file that was exported"),
        (spoil("cut", &cut, cubin), "must have"),
        (
            spoil("golden", &flip, "golden/softmax_bf16_n4096.y.fp32"),
            "is not the file that was exported",
        ),
        (spoil("json", &cut, "manifest.json"), "manifest is no JSON"),
        (
            spoil(
                "schema",
                &text("\"schema_version\": 1", "\"schema_version\": 2"),
                "manifest.json",
            ),
            "schema_version must be 1, it is 2",
        ),
        (
            spoil("kind", &text("rooftile.manifest", "rooftile.plan"), "manifest.json"),
            "kind must be rooftile.manifest",
        ),
        (
            spoil("offset", &text("\"offset\": 16", "\"offset\": 20"), "manifest.json"),
            "the manifest lists the parameters",
        ),
        (
            spoil("threads", &text("\"threads\": 128", "\"threads\": 256"), "manifest.json"),
            "the manifest says 256 threads",
        ),
        (
            spoil("role", &text("\"role\": \"size\"", "\"role\": \"shape\""), "manifest.json"),
            "no role is \"shape\"",
        ),
        (
            spoil("path", &text("\"path\": \"rms", "\"path\": \"../rms"), "manifest.json"),
            "a file must lie in the bundle",
        ),
    ];
    for ((code, words), said) in found {
        assert_eq!(code, 7, "{words}");
        assert!(words.contains(said), "{said}: {words}");
    }
    assert_eq!(inspect(Path::new("/nonexistent")).0, 7);
}
