//! `redis://` and `redis+unix:`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Connected, Store, masked};
use crate::driver::clock::Clock;
use crate::engine::redis::{Address, Place, Redis, Settings};
use crate::error::Error;

const DEFAULT_PORT: u16 = 6379;
const NO_SUCH_DATABASE: &str = "the server has no such database";

pub(super) async fn connect(store: &Store<'_>, url: &Url) -> Result<Connected, Error> {
    let parameters = Parameters::of(store, url)?;
    let scripts = parameters.scripts;
    let address = match url.scheme() {
        "redis+unix" => unix(store, url, parameters)?,
        _ => tcp(store, url, parameters)?,
    };
    let settings = Settings {
        prefix: store.prefix.clone(),
        connect_timeout: store.connect_timeout,
        command_timeout: store.command_timeout,
        scripts,
    };
    let background = store.background()?;
    let engine = Redis::connect(address, settings, background.runtime())
        .await
        .map_err(|failure| {
            if failure.detail.contains("DB index") {
                return store.invalid(NO_SUCH_DATABASE);
            }
            Error::from_failure(&masked(store.url).into(), failure)
        })?;
    Ok(Connected {
        engine,
        clock: Clock::Boot,
        background,
        lapses: true,
        has_peers: true,
    })
}

/// What may follow a question mark.
struct Parameters {
    database: Option<i64>,
    user: Option<String>,
    password: Option<String>,
    scripts: bool,
}

impl Parameters {
    fn of(store: &Store<'_>, url: &Url) -> Result<Self, Error> {
        let mut parameters = Self {
            database: None,
            user: None,
            password: None,
            scripts: true,
        };
        // Not the url crate's pairs: those are a web form's, where a `+` stands for a space.
        let pairs = url.query().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(store, value)?;
            match decoded(store, key)?.as_deref() {
                Some("db") => {
                    parameters.database = Some(database(store, &value.unwrap_or_default())?);
                }
                Some("user") => parameters.user = value,
                Some("pass") => parameters.password = value,
                Some("scripts") => {
                    parameters.scripts = match value.as_deref() {
                        Some("on") => true,
                        Some("off") => false,
                        _ => return Err(store.invalid("scripts is `on` or `off`")),
                    }
                }
                _ => {
                    let known = "unknown parameter; db, user, pass and scripts are known";
                    return Err(store.invalid(known));
                }
            }
        }
        Ok(parameters)
    }

    const fn has_address(&self) -> bool {
        self.database.is_some() || self.user.is_some() || self.password.is_some()
    }
}

fn tcp(store: &Store<'_>, url: &Url, parameters: Parameters) -> Result<Address, Error> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| store.invalid("no host; try redis://127.0.0.1/"))?;
    // The url crate keeps the brackets of an IPv6 address; sockets do not want them.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if parameters.has_address() {
        let reason =
            "a redis:// address takes database, user and password before the question mark";
        return Err(store.invalid(reason));
    }
    let database = match url.path().trim_matches('/') {
        "" => 0,
        number => database(store, number)?,
    };
    Ok(Address {
        place: Place::Tcp(host.to_owned(), url.port().unwrap_or(DEFAULT_PORT)),
        database,
        user: decoded(store, url.username())?,
        password: decoded(store, url.password().unwrap_or_default())?,
    })
}

fn unix(store: &Store<'_>, url: &Url, parameters: Parameters) -> Result<Address, Error> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(store.invalid("three slashes, please: redis+unix:///path/to/socket"));
    }
    let path = decoded(store, url.path())?;
    let path = path.ok_or_else(|| store.invalid("no path; try redis+unix:///run/redis.sock"))?;
    let user = decoded(store, url.username())?;
    let password = decoded(store, url.password().unwrap_or_default())?;
    Ok(Address {
        place: Place::Unix(path.into()),
        database: parameters.database.unwrap_or(0),
        user: parameters.user.or(user),
        password: parameters.password.or(password),
    })
}

fn database(store: &Store<'_>, number: &str) -> Result<i64, Error> {
    // Not shown: where a password was not encoded, this may be a part of it.
    let number: u64 = number
        .parse()
        .map_err(|_| store.invalid("the database must be a number"))?;
    // Servers count them in 32 bits.
    let number = i32::try_from(number).map_err(|_| store.invalid(NO_SUCH_DATABASE))?;
    Ok(i64::from(number))
}

fn decoded(store: &Store<'_>, text: &str) -> Result<Option<String>, Error> {
    let decoded: Cow<'_, str> = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| store.invalid("user, password and path must be UTF-8"))?;
    Ok(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
}
