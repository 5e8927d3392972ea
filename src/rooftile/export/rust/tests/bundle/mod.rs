//! The bundle and the driver that the tests work with.

use std::path::{Path, PathBuf};

pub fn bundle() -> PathBuf {
    let folder = std::env::var("ROOFTILE_TEST_BUNDLE");
    PathBuf::from(folder.expect("ROOFTILE_TEST_BUNDLE must name a bundle"))
}

/// Built beside the program by `cargo build --workspace`.
pub fn driver() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_rooftile-host"));
    let path = program.with_file_name("librooftile_standin.so");
    assert!(path.is_file(), "cargo build --workspace must come first: no {}", path.display());
    path.to_str().unwrap().to_string()
}
