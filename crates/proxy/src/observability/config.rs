//! CONFIG GET, SET and RESETSTAT: names of predixy, and names of Redis. Changes by SET last until the process ends. Must
//! not know the settings' effects.

use redline_resp::Args;
use redline_spec::{CommandId, refusal};

use super::tune::Tuning;
use crate::Context;
use crate::errors;
use crate::requests::Flow;
use crate::slab::Ref;

/// A parameter that CONFIG SET changes: its name, its printer, and its parser.
type Row = (
    &'static str,
    fn(&Tuning) -> String,
    fn(&mut Tuning, &str) -> Option<()>,
);

/// All parameters.
const ROWS: [Row; 15] = [
    ("MaxMemory", |t| t.memory_bytes_max.to_string(), set_memory),
    ("maxmemory", |t| t.memory_bytes_max.to_string(), set_memory),
    ("ClientTimeout", |t| t.client_idle_s.to_string(), set_idle),
    ("timeout", |t| t.client_idle_s.to_string(), set_idle),
    (
        "AllowMissLog",
        |t| t.may_drop.to_string(),
        |t, text| {
            t.may_drop = text.to_ascii_lowercase().parse().ok()?;
            Some(())
        },
    ),
    (
        "LogVerbSample",
        |t| t.samples.verbose.to_string(),
        |t, text| {
            t.samples.verbose = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "LogDebugSample",
        |t| t.samples.debug.to_string(),
        |t, text| {
            t.samples.debug = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "LogInfoSample",
        |t| t.samples.info.to_string(),
        |t, text| {
            t.samples.info = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "LogNoticeSample",
        |t| t.samples.notice.to_string(),
        |t, text| {
            t.samples.notice = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "LogWarnSample",
        |t| t.samples.warning.to_string(),
        |t, text| {
            t.samples.warning = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "LogErrorSample",
        |t| t.samples.error.to_string(),
        |t, text| {
            t.samples.error = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "slowlog-log-slower-than",
        |t| t.slower_than_us.to_string(),
        |t, text| {
            let us: i64 = text.parse().ok()?;
            t.slower_than_us = us.max(-1);
            Some(())
        },
    ),
    (
        "slowlog-max-len",
        |t| t.slow_max.to_string(),
        |t, text| {
            t.slow_max = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "latency-monitor-threshold",
        |t| t.latency_threshold_ms.to_string(),
        |t, text| {
            t.latency_threshold_ms = text.parse().ok()?;
            Some(())
        },
    ),
    (
        "key-sample",
        |t| t.key_sample.to_string(),
        |t, text| {
            t.key_sample = text.parse().ok()?;
            Some(())
        },
    ),
];

fn failed(name: &[u8], why: &str) -> Vec<u8> {
    let before = "ERR CONFIG SET failed (possibly related to argument '";
    refusal::quoting(before, name, &format!("') - {why}"))
}

/// Handles CONFIG GET: the settings whose names match a pattern. A name that equals a pattern is written in the
/// pattern's case, since clients look for that, and once: two names may differ in their case only.
pub(crate) fn config_get(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    let tuning = ctx.shared.observations.tune.current();
    let all = ROWS
        .iter()
        .map(|(name, show, _)| (*name, show(&tuning)))
        .chain(fixed(ctx, me));
    let mut found: Vec<(&[u8], String)> = all
        .filter_map(|(name, value)| {
            let is_it = |word: &&[u8]| word.eq_ignore_ascii_case(name.as_bytes());
            let mut words = args.iter().skip(2);
            match words.clone().find(is_it) {
                Some(word) => Some((word, value)),
                None => words
                    .any(|word| matches(word, name.as_bytes()))
                    .then_some((name.as_bytes(), value)),
            }
        })
        .collect();
    found.dedup_by(|one, other| one.0 == other.0);
    ctx.clients.answer(me, |reply| {
        reply.map(found.len());
        for (name, value) in &found {
            reply.bulk(name);
            reply.bulk(value.as_bytes());
        }
    })
}

/// Returns the settings that only a restart changes.
fn fixed(ctx: &Context, me: Ref) -> Vec<(&'static str, String)> {
    let (settings, seen) = (&ctx.shared.settings, &ctx.shared.observations);
    let workers = ctx.shell.process.workers.len();
    let numbers: [(&str, u64); 15] = [
        ("maxclients", settings.clients_max as u64),
        ("threads", workers as u64),
        ("port", ctx.shared.port.into()),
        ("databases", ctx.home(me).databases.into()),
        ("proto-max-bulk-len", settings.bulk_bytes_max),
        ("client-query-buffer-limit", settings.query_bytes_max as u64),
        (
            "client-output-bytes",
            settings.client_output_bytes_max as u64,
        ),
        (
            "subscriber-output-bytes",
            settings.subscriber_output_bytes_max as u64,
        ),
        ("pipeline", settings.pipeline_max.into()),
        (
            "upstream-queue-bytes",
            settings.upstream_queue_bytes_max as u64,
        ),
        ("private-connections", settings.private_max as u64),
        ("private-idle", settings.private_idle_max as u64),
        ("connect-timeout-ms", settings.connect_timeout_ms),
        ("request-timeout-ms", settings.request_timeout_ms),
        ("event-coalescing-us", settings.event_coalescing_us),
    ];
    let texts = [
        ("Name", seen.name.clone()),
        ("Bind", seen.bind.clone()),
        ("WorkerThreads", workers.to_string()),
        ("LocalDC", seen.local_data_center.clone()),
    ];
    let numbers = numbers.map(|(name, value)| (name, value.to_string()));
    numbers.into_iter().chain(texts).collect()
}

/// Handles CONFIG SET: all of it, or nothing.
pub(crate) fn config_set(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    if !args.len().is_multiple_of(2) {
        return ctx
            .clients
            .refuse(me, &errors::wrong_arity(CommandId::ConfigSet));
    }
    let mut tuning = ctx.shared.observations.tune.current();
    let mut sets = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let name = &args[at];
        let is_its = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        let is_there_twice = (2..at)
            .step_by(2)
            .any(|before| args[before].eq_ignore_ascii_case(&args[at]));
        if is_there_twice {
            return ctx.clients.refuse(me, &failed(name, "duplicate parameter"));
        }
        let Some((_, _, set)) = ROWS.iter().find(|(known, ..)| is_its(known)) else {
            let is_fixed = fixed(ctx, me).iter().any(|(known, _)| is_its(known));
            let line = match is_fixed {
                true => failed(name, "can't set immutable config"),
                false => {
                    let before = "ERR Unknown option or number of arguments for CONFIG SET - '";
                    refusal::quoting(before, name, "'")
                }
            };
            return ctx.clients.refuse(me, &line);
        };
        let value = std::str::from_utf8(&args[at + 1]).unwrap_or_default();
        if set(&mut tuning, value).is_none() {
            let why = "argument couldn't be parsed into a value of its kind";
            return ctx.clients.refuse(me, &failed(name, why));
        }
        sets.push((set, value));
    }
    let shared = std::sync::Arc::clone(&ctx.shared);
    // Another worker may have changed another setting meanwhile.
    shared.observations.tune.change(|now| {
        for (set, value) in sets {
            let _ = set(now, value);
        }
    });
    super::log::tune(&shared.observations.tune.current());
    ctx.recorder.tune(&shared.observations);
    ctx.clients.status(me, "OK")
}

fn set_memory(tuning: &mut Tuning, text: &str) -> Option<()> {
    tuning.memory_bytes_max = bytes(text)?;
    Some(())
}

fn set_idle(tuning: &mut Tuning, text: &str) -> Option<()> {
    tuning.client_idle_s = text.parse().ok()?;
    Some(())
}

/// Returns true if a name matches a pattern in which `*` is any text and `?` any character, in any case.
fn matches(mut form: &[u8], mut name: &[u8]) -> bool {
    // Position behind the last star, and the name behind its match.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (form, name) {
            ([b'*', rest @ ..], _) => (form, retry) = (rest, Some((rest, name))),
            ([], []) => return true,
            ([one, rest @ ..], [other, left @ ..])
                if *one == b'?' || one.eq_ignore_ascii_case(other) =>
            {
                (form, name) = (rest, left);
            }
            _ => match retry {
                Some((rest, [_, left @ ..])) => {
                    (form, name) = (rest, left);
                    retry = Some((rest, left));
                }
                _ => return false,
            },
        }
    }
}

/// Parses a size as Redis and predixy write it.
fn bytes(text: &str) -> Option<u64> {
    redline_proxy_config::Size::of_predixy(text).map(|size| size.0)
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::Config;

    use super::*;

    #[test]
    fn names_match_forms() {
        for (form, name, is) in [
            ("*", "x", true),
            ("", "x", false),
            ("MAX*", "maxmemory", true),
            ("*memory", "MaxMemory", true),
            ("*m?m*y", "MaxMemory", true),
            ("*sample*", "LogInfoSample", true),
            ("log*z*", "LogInfoSample", false),
            ("timeou", "timeout", false),
            ("timeou?", "timeout", true),
            ("**t", "timeout", true),
        ] {
            assert_eq!(matches(form.as_bytes(), name.as_bytes()), is, "{form}");
        }
    }

    #[test]
    fn what_is_set_is_what_is_shown() {
        let mut tuning = super::super::tune::Tune::new(&Config::default()).current();
        for (name, show, set) in ROWS {
            let text = if name == "AllowMissLog" {
                "false"
            } else {
                "1234"
            };
            assert_eq!(set(&mut tuning, text), Some(()), "{name}");
            assert_eq!(show(&tuning), text, "{name}");
            assert_eq!(set(&mut tuning, "x"), None, "{name}");
        }
        assert_eq!(bytes("1G"), Some(1 << 30));
    }
}
