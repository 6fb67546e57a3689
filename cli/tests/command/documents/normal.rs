//! The form of an output in which two runs of a command are equal.

/// Replaces what differs from run to run: runs of spaces, times, durations, users and hosts, pids, owners, tokens, versions, and the
/// difference between two clocks.
pub(crate) fn normal(line: &str) -> String {
    let line = match line.rfind(": ") {
        // A line about a wait is as long as the terminal is wide.
        Some(end) if line.starts_with("waiting for ") => &line[..end],
        _ => line,
    };
    if is_date(line) {
        return "<date>".to_owned();
    }
    let cells = line.split("  ").map(str::trim);
    let mut cells: Vec<_> = cells.filter(|cell| !cell.is_empty()).map(cell).collect();
    if let ["ok", "clock", found] = *cells.iter().map(String::as_str).collect::<Vec<_>>() {
        cells[2] = found.replace("ahead of", "behind");
    }
    cells.join("  ")
}

fn cell(text: &str) -> String {
    let words: Vec<_> = text.split(' ').collect();
    let mut normal: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        let after = words.get(at + 1).copied().unwrap_or_default();
        let core = word.trim_start_matches('(');
        let core = core.trim_end_matches([')', ',', ';', ':']);
        let Some(name) = variable(before, core, after) else {
            normal.push((*word).to_owned());
            continue;
        };
        let begin = word.len() - word.trim_start_matches('(').len();
        let (opening, closing) = (&word[..begin], &word[begin + core.len()..]);
        // A duration may have two words.
        if let (true, Some(last)) = (name == DURATION, normal.last_mut())
            && last.ends_with(DURATION)
        {
            last.push_str(closing);
            continue;
        }
        let text = match core.rfind('"') {
            Some(quote) => &core[..=quote],
            None => "",
        };
        normal.push(format!("{opening}{text}{name}{closing}"));
    }
    normal.join(" ")
}

/// Returns what a word stands for if it differs from run to run.
fn variable(before: &str, word: &str, after: &str) -> Option<&'static str> {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_time(word) {
        Some("<time>")
    } else if is_duration(word) {
        Some(DURATION)
    } else if is_number && before == "pid" {
        Some("<pid>")
    } else if word.contains('@') && after == "pid" {
        Some("<user>")
    } else if is_owner(word) {
        Some("<owner>")
    } else if is_number && word.len() >= 13 {
        Some("<token>")
    } else if is_number && after == "ms" {
        Some("<number>")
    } else if is_version(word) {
        Some("<version>")
    } else {
        None
    }
}

const DURATION: &str = "<duration>";

/// Reports whether a word has the form of another, in which `0` stands for any digit.
fn has_form(word: &str, form: &str) -> bool {
    let form = form.bytes();
    let fits = |(byte, form): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'f' => byte.is_ascii_hexdigit(),
        form => byte == form,
    };
    word.len() == form.len() && word.bytes().zip(form).all(fits)
}

fn is_time(word: &str) -> bool {
    has_form(word, "0000-00-00T00:00:00Z")
}

/// Reports whether a line is one of `date`.
fn is_date(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    matches!(*words, [day, _, _, time, "UTC", year]
        if day.len() == 3 && has_form(time, "00:00:00") && has_form(year, "0000"))
}

fn is_duration(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < word.len() && ["ms", "s", "m", "h", "d"].contains(&unit)
}

/// Reports whether a word is the owner of a lock: the id of its client, and a number.
pub(crate) fn is_owner(word: &str) -> bool {
    let (id, number) = word.split_once(':').unwrap_or_default();
    has_form(id, "ffffffff-ffff-ffff-ffff-ffffffffffff")
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_version(word: &str) -> bool {
    let mut parts = word.split('.');
    let is_number = |part: &str| part.parse::<u16>().is_ok();
    parts.clone().count() == 3 && parts.all(is_number)
}

#[test]
fn outputs_differ_only_by_what_a_page_cannot_know() {
    let same = |one: &str, other: &str| {
        assert_eq!(normal(one), normal(other));
    };
    same(
        "a      plain  2m 5s     28s         me@h pid 4: ./x",
        "a  plain  3s  1h 2m  root@other pid 77: ./x",
    );
    same(
        "since     2026-11-16T02:00:00Z (2m 5s ago)",
        "since  2020-01-01T00:00:00Z (0s ago)",
    );
    same(
        "Thu Nov 19 22:20:49 UTC 2026",
        "Fri Jan  2 00:00:00 UTC 2026",
    );
    same(
        "ok    clock  it is 0 ms ahead of ours",
        "ok  clock  it is 12 ms behind ours",
    );
    same(
        "waiting for `x`, held by a@b pid 4 for 3s, while it runs: sl…",
        "waiting for `x`, held by c@d pid 5 for 1s, while it runs: sleep 60",
    );
    for (one, other) in [
        ("a  plain  -  3s", "a  plain  3s  3s"),
        ("a  fair  3s", "a  plain  3s"),
        ("me@h pid 4: ./x", "me@h pid 4: ./y"),
        ("75", "76"),
        ("lease  ends in 28s unless renewed", "lease  ends in 28s"),
    ] {
        assert_ne!(normal(one), normal(other));
    }
}
