//! Certificates made during the test: an authority's, and those that it signs.

#![allow(
    dead_code,
    reason = "other test targets compile this module for themselves and use a part of it"
)]

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// The names of the machine that the tests run on.
pub(crate) const HERE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The paths of a certificate and its key.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = new_key();
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("it can be signed").pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Signs a certificate for a server of these names, or for a client.
    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        self.sign_with(names, |_| {})
    }

    /// Signs a certificate that expired long ago.
    pub(crate) fn sign_expired(&self, names: &[&str]) -> Pair {
        self.sign_with(names, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    /// Signs a certificate that is not valid for a long time yet.
    pub(crate) fn sign_too_early(&self, names: &[&str]) -> Pair {
        self.sign_with(names, |params| {
            params.not_before = date_time_ymd(2100, 1, 1);
            params.not_after = date_time_ymd(2101, 1, 1);
        })
    }

    fn sign_with(&self, names: &[&str], alter: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = new_key();
        let mut params = params("a certificate", names);
        alter(&mut params);
        let signed = params.signed_by(&key, &self.issuer);
        Pair {
            certificate: signed.expect("it can be signed").pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Pair {
    /// Makes a self-signed certificate.
    pub(crate) fn self_signed(names: &[&str], is_authority: bool) -> Self {
        let key = new_key();
        let mut params = params("itself", names);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let signed = params.self_signed(&key).expect("it can be signed");
        Self {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes both into this folder.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> Files {
        let files = Files {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        fs::write(&files.certificate, &self.certificate).expect("the folder is ours");
        fs::write(&files.key, &self.key).expect("the folder is ours");
        files
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names that can be in one");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("there is randomness")
}
