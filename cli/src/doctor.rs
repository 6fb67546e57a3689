//! `doctor`: checks whether the store is fit for locks.

use std::time::Instant;

use distlock::{Diagnostic, ReleaseOn, Severity};
use serde::Serialize;

use crate::args::Doctor;
use crate::duration::short;
use crate::exit::{self, Failure};
use crate::out::{Out, harmless};
use crate::store;

/// The JSON form of a finding.
#[derive(Serialize)]
struct CheckOutput<'a> {
    what: &'a str,
    verdict: &'static str,
    found: &'a str,
    advice: Option<&'a str>,
}

pub(crate) async fn doctor(args: Doctor) -> Result<u8, Failure> {
    let mut out = Out::new();
    let begun = Instant::now();
    let client = match store::connect(&args.store, ReleaseOn::Process).await {
        Ok(client) => client,
        Err(failure) => {
            let found = failure.message.as_deref().unwrap_or("no connection");
            let advice = match failure.code {
                // The message says why the url is invalid; there is no further advice.
                exit::USAGE => None,
                _ if store::sees_processes(&args.store) => {
                    Some("check that the folder of the file exists, and that you may write to both")
                }
                _ => Some(
                    "check that the server runs at this address and accepts your user and password",
                ),
            };
            print(
                &mut out,
                args.json,
                "connection",
                Some(Severity::Fail),
                found,
                advice,
            )?;
            return Ok(failure.code);
        }
    };
    let found = format!("established in {}", short(begun.elapsed()));
    print(
        &mut out,
        args.json,
        "connection",
        Some(Severity::Ok),
        &found,
        None,
    )?;
    let admin = client.admin();
    let findings = match args.probe {
        true => admin.examine_with_probe().await,
        false => admin.examine().await,
    };
    store::leave(&client).await;
    let findings: Vec<Diagnostic> = findings?;
    for finding in &findings {
        let advice = finding.advice.as_deref();
        let Diagnostic { subject, found, .. } = finding;
        let verdict = Some(finding.severity);
        print(&mut out, args.json, subject, verdict, found, advice)?;
    }
    if !args.probe {
        let found = "not tested: --probe acquires and releases a lock";
        print(&mut out, args.json, "locking", None, found, None)?;
    }
    let failed = findings
        .iter()
        .any(|finding| finding.severity >= Severity::Fail);
    Ok(if failed { exit::NO } else { 0 })
}

/// Prints a finding; without a verdict the check was not made.
fn print(
    out: &mut Out,
    json: bool,
    what: &str,
    verdict: Option<Severity>,
    found: &str,
    advice: Option<&str>,
) -> Result<(), Failure> {
    let word = verdict.map(word);
    if json {
        return out.json(&CheckOutput {
            what,
            verdict: word.unwrap_or("skipped"),
            found,
            advice,
        });
    }
    let style = out.style();
    let padded = format!("{:<4}", word.unwrap_or("--"));
    let coloured = match verdict {
        None => style.dim(&padded),
        Some(Severity::Ok) => style.green(&padded),
        Some(Severity::Warn) => style.yellow(&padded),
        Some(_) => style.red(&padded),
    };
    let found = harmless(found.chars());
    out.line(format!("{coloured}  {what:<11}  {found}"))?;
    match advice.map(|advice| harmless(advice.chars())) {
        Some(advice) => out.line(format!("                   {}", style.dim(&advice))),
        None => Ok(()),
    }
}

const fn word(verdict: Severity) -> &'static str {
    match verdict {
        Severity::Ok => "ok",
        Severity::Warn => "warn",
        // A newer library may know a severity that is at least as bad.
        _ => "fail",
    }
}
