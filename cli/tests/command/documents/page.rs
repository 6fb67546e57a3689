//! The blocks of a page, and the commands in them.

/// A block of code.
#[derive(Debug)]
pub(crate) struct Block {
    /// The word behind the opening backticks.
    pub(crate) language: String,
    /// The number of its first line on the page.
    pub(crate) line: usize,
    /// The number of headings before it.
    pub(crate) section: usize,
    pub(crate) lines: Vec<String>,
}

/// Returns the blocks of a page, without their indentation.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut section, mut open) = (0, None);
    for (number, line) in page.lines().enumerate() {
        let text = line.trim_start();
        match (text.strip_prefix("```"), open) {
            (Some(language), None) => {
                open = Some(line.len() - text.len());
                blocks.push(Block {
                    language: language.trim().to_owned(),
                    line: number + 2,
                    section,
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(indentation)) => {
                let block = blocks.last_mut().expect("one is open");
                let text = line.get(indentation..).unwrap_or_default();
                block.lines.push(text.to_owned());
            }
            (None, None) => section += usize::from(line.starts_with('#')),
        }
    }
    assert_eq!(open, None, "a block has no end");
    blocks
}

/// A command that a user types, and its output.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) command: String,
    pub(crate) output: Vec<String>,
}

impl Block {
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// Returns the commands of a `console` block. The output of a command follows it.
    pub(crate) fn typed(&self) -> Vec<Typed> {
        let mut typed: Vec<Typed> = Vec::new();
        for line in &self.lines {
            match (line.strip_prefix("$ "), typed.last_mut()) {
                (Some(command), _) => typed.push(Typed {
                    command: command.to_owned(),
                    output: Vec::new(),
                }),
                (None, Some(last)) => last.output.push(line.clone()),
                (None, None) => panic!("line {}: output before a command", self.line),
            }
        }
        for typed in &mut typed {
            while typed.output.last().is_some_and(String::is_empty) {
                typed.output.pop();
            }
        }
        typed
    }

    /// Returns the scripts that the scheduler runs which a `crontab`, `ini` or `yaml` block is for.
    pub(crate) fn scheduled(&self) -> Vec<String> {
        let scripts = match &*self.language {
            "crontab" => crontab(&self.lines),
            "ini" => unit(&self.lines),
            _ => yaml(&self.lines),
        };
        let told = self.text();
        let (told, found) = (uses(&told), uses(&scripts.join("\n")));
        assert_eq!(told, found, "line {}: {scripts:#?}", self.line);
        scripts
    }

    /// Returns the files of an `sh` block in which comments name several of them: `# backup.sh`.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = Vec::new();
        for line in &self.lines {
            let name = line.strip_prefix("# ");
            let name = name.and_then(|text| text.split([' ', ',']).next());
            match (name.filter(|name| name.ends_with(".sh")), files.last_mut()) {
                (Some(name), _) => files.push((name.to_owned(), "#!/bin/sh\n".to_owned())),
                (None, Some((_, text))) => *text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        files
    }
}

/// Counts the calls of the command in a text.
fn uses(text: &str) -> usize {
    let words: Vec<_> = text
        .split(|c: char| c.is_whitespace() || "[],'\"(".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let calls = words.windows(2).filter(|pair| {
        let is_ours = pair[0] == "distlock" || pair[0].ends_with("/distlock");
        is_ours && ["run", "acquire", "release", "watch"].contains(&pair[1])
    });
    calls.count()
}

/// Returns the command of a line of a crontab, if the line is one.
pub(crate) fn cron(line: &str) -> Option<&str> {
    let mut rest = line;
    for _ in 0..5 {
        let (field, behind) = rest.split_once(' ')?;
        let is_field = |c: char| c.is_ascii_digit() || "*/,-".contains(c);
        if field.is_empty() || !field.chars().all(is_field) {
            return None;
        }
        rest = behind.trim_start();
    }
    Some(rest)
}

fn crontab(lines: &[String]) -> Vec<String> {
    let commands = lines.iter().filter_map(|line| cron(line));
    commands.map(str::to_owned).collect()
}

/// Returns what systemd executes for a unit.
fn unit(lines: &[String]) -> Vec<String> {
    let text = lines.join("\n").replace("\\\n", "");
    let commands = text.lines().filter_map(|line| {
        let (setting, command) = line.split_once('=')?;
        setting.starts_with("Exec").then_some(command)
    });
    let commands = commands.map(|command| command.replace("$$", "$"));
    commands.collect()
}

/// Returns what `command:` with `args:`, `run:` and `script:` have executed.
fn yaml(lines: &[String]) -> Vec<String> {
    let mut scripts = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let text = line.trim_start();
        let text = text.strip_prefix("- ").unwrap_or(text);
        let Some((key @ ("command" | "args" | "run" | "script"), value)) = text.split_once(':')
        else {
            continue;
        };
        let value = value.trim();
        if key == "command" {
            scripts.push(list(value));
        } else if key == "args" {
            let command = scripts
                .last_mut()
                .expect("a command is before its arguments");
            *command += &format!(" {}", list(value));
        } else if !["", "|"].contains(&value) {
            scripts.push(value.to_owned());
        } else {
            let depth = |line: &str| line.len() - line.trim_start().len();
            let deeper = lines[at..]
                .iter()
                .take_while(|&more| depth(more) > depth(line) && !more.is_empty());
            let deeper = deeper.map(|more| item(more.trim_start()));
            scripts.push(deeper.collect::<Vec<_>>().join("\n"));
        }
    }
    scripts
}

/// Returns the command in a list such as `[distlock, run, "job:x"]`, for a shell.
fn list(value: &str) -> String {
    let inner = value
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let words = inner.expect("a command is a list").split(", ");
    let words = words.map(|word| format!("'{}'", word.trim_matches('"')));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns a line of a script, which may be an item of a list and in quotes.
fn item(line: &str) -> String {
    let text = line.strip_prefix("- ").unwrap_or(line);
    let quoted = text
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''));
    quoted.unwrap_or(text).to_owned()
}
