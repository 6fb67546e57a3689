//! Names become the keys and channels that Redisson has for them.

use super::*;

#[test]
fn channels_follow_redissons_brace_rule() {
    let keys = Keys::new("".into(), PubSubMode::Plain);
    for (name, channel) in [
        ("order", "redisson_lock__channel:{order}"),
        ("a{b}c", "redisson_lock__channel:a{b}c"),
        ("foo{bar", "redisson_lock__channel:foo{bar"),
        ("{}foo", "redisson_lock__channel:{}foo"),
        ("foo}bar", "redisson_lock__channel:{foo}bar}"),
    ] {
        let of = Channel::Lock(name.into());
        assert_eq!(keys.channel(&of).to_string(), channel);
    }
}

#[test]
fn channels_are_found_by_pattern_and_lead_back_to_the_name() {
    let keys = Keys::new("app*/".into(), PubSubMode::Plain);
    let all = [
        r"redisson_lock__channel:{app\*/a*}",
        r"redisson_lock__channel:{app\*/a*}:*",
        r"redisson_lock__channel:app\*/a*",
        r"redisson_lock__channel:app\*/a*:*",
        r"redisson_rwlock:{app\*/a*}",
        r"redisson_rwlock:app\*/a*",
    ];
    assert_eq!(keys.channel_patterns("a*"), all);
    let keys = Keys::new("".into(), PubSubMode::Plain);
    assert_eq!(keys.channel_patterns("*"), Keys::all_channel_patterns());
    assert_eq!(keys.channel_patterns(r"*\*").len(), 6);
    let waiter = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
    for (channel, name, pattern) in [
        ("{order}", "order", 0),
        ("a{b}c", "a{b}c", 2),
        ("foo{bar", "foo{bar", 2),
        ("{}foo", "{}foo", 2),
        ("{foo}bar}", "foo}bar", 0),
        (&*format!("{{order}}:{waiter}"), "order", 1),
        (&*format!("a{{b}}c:{waiter}"), "a{b}c", 3),
        ("{a}:b:1", "{a}:b:1", 2),
    ] {
        let channel = format!("redisson_lock__channel:{channel}");
        assert_eq!(
            keys.name_of_channel(&channel),
            Some((name, pattern)),
            "{channel}"
        );
        assert_eq!(Keys::is_waiter_channel(&channel), [1, 3].contains(&pattern));
    }
    for (channel, found) in [("{a}", ("a", 4)), ("a{b}c", ("a{b}c", 5))] {
        let channel = format!("redisson_rwlock:{channel}");
        assert_eq!(keys.name_of_channel(&channel), Some(found));
    }
    for channel in ["redisson_lock__channel:order", "order"] {
        assert_eq!(keys.name_of_channel(channel), None);
    }
    let keys = Keys::new("app/".into(), PubSubMode::Plain);
    let channel = "redisson_lock__channel:{app/a}";
    assert_eq!(keys.name_of_channel(channel), Some(("a", 0)));
    assert_eq!(keys.name_of_channel("redisson_lock__channel:{a}"), None);
}

#[test]
fn a_prefix_goes_before_the_name_everywhere() {
    let keys = Keys::new("test::".into(), PubSubMode::Plain);
    assert_eq!(keys.lock("a").to_string(), "test::a");
    let channel = Channel::Lock("a".into());
    let channel = keys.channel(&channel).to_string();
    assert_eq!(channel, "redisson_lock__channel:{test::a}");
    assert_eq!(keys.name("test::a"), Some("a"));
    assert_eq!(keys.name("a"), None);
    assert_eq!(
        Keys::new("a*".into(), PubSubMode::Plain).scan_pattern("x*"),
        r"a\*x*"
    );
}

#[test]
fn names_with_the_same_auxiliary_keys_are_aliases() {
    let keys = Keys::new("".into(), PubSubMode::Plain);
    let alias = |name: &str| keys.alias(name).map(|alias| alias.to_string());
    for (one, other) in [
        ("x", "{x}"),
        ("}x", "{}x}"),
        ("a{b", "{a{b}"),
        ("{}", "{{}}"),
        ("a}{b", "{a}{b}"),
        ("a}b{", "{a}b{}"),
    ] {
        assert_eq!(alias(one).as_deref(), Some(other), "{one}");
        assert_eq!(alias(other).as_deref(), Some(one), "{other}");
        let done = [one, other].map(|name| keys.dedup(name).to_string());
        assert_ne!(done[0], done[1], "latches are not compared with twins");
    }
    for name in ["a{b}c", "{a}b"] {
        assert_eq!(alias(name), None, "{name}");
    }
}
