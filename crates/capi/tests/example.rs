//! The examples in C: compiled with the checked-in header, linked with the library, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder with `libtailback.so` of this build.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().to_path_buf();
    let above = folder.parent().unwrap().to_path_buf();
    [folder, above].into_iter().find(|at| library(at).is_file()).expect("no library was built")
}

fn library(folder: &Path) -> PathBuf {
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    folder.join(format!("{prefix}tailback{suffix}"))
}

/// What an example prints, compiled with the checked-in header and linked with the library.
fn printed_by(example: &str) -> String {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), built());
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(example);
    let compiled = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg(root.join("examples").join(example).with_extension("c"))
        .arg(library(&folder))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).env("LD_LIBRARY_PATH", &folder).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn the_c_example_compiles_and_runs() {
    // Σ l = 1500 × 2, σ = √(Σ l (l − 1)).
    assert_eq!(
        printed_by("receiver"),
        "link 0: 3000 +- 54.8 packets, 0 +- 0.0 congested\n\
         link 4: 3000 +- 54.8 packets, 1000 +- 0.0 congested\n"
    );
}

#[test]
fn the_receive_hook_attributes_marks_to_posting_lines() {
    let said = printed_by("receive_hook");
    let lines: Vec<&str> = said.lines().collect();
    // Each line of the program receives 1000 packets over each path, all over link 5.
    assert_eq!((lines[0], lines.len()), ("4000 completions", 11), "{said}");
    for posted in ["halo.c:41", "halo.c:57"] {
        assert!(lines.contains(&format!("{posted} link 1: 1000 packets, 0 congested").as_str()));
        assert!(lines.contains(&format!("{posted} link 5: 2000 packets, 0 congested").as_str()));
        // Links 2 and 4 have the same packets: their marks together are those of path 1.
        let congested = |link: &str| {
            let head = format!("{posted} link {link}: 1000 packets, ");
            let line = lines.iter().find(|line| line.starts_with(&head)).expect(&said);
            line[head.len()..].trim_end_matches(" congested").parse::<f64>().unwrap()
        };
        let both = congested("2") + congested("4");
        assert!((500.0..700.0).contains(&both), "{said}");
    }
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(root.join("src/ffi.rs")).unwrap();
    let header = std::fs::read_to_string(root.join("include/tailback.h")).unwrap();
    let exported: Vec<&str> = source
        .split("extern \"C\" fn ")
        .skip(1)
        .map(|declaration| declaration.split('(').next().unwrap())
        .collect();
    assert!(exported.len() >= 11, "{exported:?}");
    for name in exported {
        assert!(header.contains(&format!("{name}(")), "run scripts/c-header.sh: no {name}");
    }
    let abi = format!("#define TAILBACK_ABI {}\n", tailback::TAILBACK_ABI);
    assert!(header.contains(&abi), "run scripts/c-header.sh");
}
