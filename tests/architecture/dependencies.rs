//! The check of every dependency's licence and origin. It does what `cargo deny check bans licenses sources` would do, which takes two
//! minutes to install. `deny.toml` has the rules for both.

use std::fs;
use std::process::Command;

use serde_json::Value;
use spdx::Expression;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// `scripts/check` runs this test: `cargo metadata` downloads the packages that other platforms need.
#[test]
#[ignore = "needs the network"]
fn every_dependency_is_allowed() {
    let allowed = allowed_licences();
    let arguments = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
    ];
    let output = Command::new(env!("CARGO")).args(arguments).output();
    let output = output.expect("cargo is there");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let wrong: Vec<_> = packages
        .iter()
        .flat_map(|package| wrong_with(package, &allowed))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_forbidden_dependency_is_found() {
    let allowed = ["MIT".to_owned(), "Zlib".to_owned()];
    let package = |licence: &str, source: Value, requirement: &str| {
        let dependency = serde_json::json!({ "name": "other", "req": requirement, "path": null });
        let package = serde_json::json!({
            "name": "package",
            "license": licence,
            "source": source,
            "dependencies": [dependency],
        });
        wrong_with(&package, &allowed).len()
    };
    let crates_io = || Value::from(CRATES_IO);
    assert_eq!(package("MIT", crates_io(), "1"), 0);
    assert_eq!(
        package("GPL-3.0-only OR (MIT AND Zlib)", crates_io(), "1"),
        0
    );
    assert_eq!(package("GPL-3.0-only AND MIT", crates_io(), "1"), 1);
    assert_eq!(package("", crates_io(), "1"), 1);
    assert_eq!(
        package("MIT", Value::from("git+https://example.com/it"), "1"),
        1
    );
    assert_eq!(package("MIT", Value::Null, "*"), 1);
}

/// Returns the list `allow` of `deny.toml`.
fn allowed_licences() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deny.toml");
    let rules = fs::read_to_string(path).expect("it is there");
    let (_, list) = rules.split_once("\nallow = [").expect("it has a list");
    let (list, _) = list.split_once("\n]").expect("the list ends");
    let names = list.lines().filter_map(|line| line.split('"').nth(1));
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(names.contains(&"MIT".to_owned()), "{names:?}");
    names
}

/// Returns the violations of one package.
fn wrong_with(package: &Value, allowed: &[String]) -> Vec<String> {
    let name = &package["name"];
    let mut wrong = Vec::new();
    let licence = package["license"].as_str().unwrap_or_default();
    let is_allowed = Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(|licence| {
        licence.evaluate(|wanted| allowed.contains(&wanted.license.to_string()))
    });
    if !is_allowed {
        wrong.push(format!("{name}: the licence `{licence}` is not allowed"));
    }
    match package["source"].as_str() {
        // A package of this project: its requirements are checked too.
        None => {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let open = dependencies.filter(|other| other["req"] == "*" && other["path"].is_null());
            wrong.extend(open.map(|other| format!("{name}: any version of {}", other["name"])));
        }
        Some(CRATES_IO) => {}
        Some(source) => wrong.push(format!("{name} comes from {source}")),
    }
    wrong
}
