//! Each pair of ours and a real server, in both directions, for a number of rounds: in each the link is cut at random bytes under
//! load. What is kept of the stream suffices, so no replica takes more than its first snapshot.

use std::time::Duration;

use fastrand::Rng;

use super::{Breadth, Faults, Figures, Group, Kind, Scene};
use crate::compat::Setting;
use crate::run::Failure;

/// Time under load before the servers are compared.
pub const ROUND: Duration = Duration::from_secs(1);
/// More of the stream than a round brings.
const PLENTY: &str = "64mb";

const fn pair(
    name: &'static str,
    servers: &'static [(Kind, Option<usize>)],
    breadth: Breadth,
) -> Scene {
    Scene {
        name,
        servers,
        breadth,
        backlog: PLENTY,
    }
}

const PAIRS: [Scene; 7] = [
    pair(
        "Redis 7.0.15 to ours",
        &[(Kind::Redis7, None), (Kind::Ours, Some(0))],
        Breadth::Common,
    ),
    pair(
        "ours to Redis 7.0.15",
        &[(Kind::Ours, None), (Kind::Redis7, Some(0))],
        Breadth::Common,
    ),
    pair(
        "Redis 8.2.3 to ours",
        &[(Kind::Redis8, None), (Kind::Ours, Some(0))],
        Breadth::Newer,
    ),
    pair(
        "ours to Redis 8.2.3",
        &[(Kind::Ours, None), (Kind::Redis8, Some(0))],
        Breadth::Newer,
    ),
    pair(
        "Valkey 9.1.2 to ours",
        &[(Kind::Valkey, None), (Kind::Ours, Some(0))],
        Breadth::Timed,
    ),
    pair(
        "ours to Valkey 9.1.2",
        &[(Kind::Ours, None), (Kind::Valkey, Some(0))],
        Breadth::Timed,
    ),
    pair(
        "ours to ours",
        &[(Kind::Ours, None), (Kind::Ours, Some(0))],
        Breadth::Newer,
    ),
];

/// Plays so many rounds with each pair.
pub fn run(setting: &Setting, rounds: u64) -> Result<String, Failure> {
    let mut failures = Vec::new();
    let mut all = Figures::default();
    for (scene, seed) in PAIRS.iter().zip(setting.seed()..) {
        let mut figures = Figures::default();
        let played = play(setting, scene, seed, rounds, &mut figures);
        println!(
            "  {}: {} rounds, {} cuts, {} full and {} partial resynchronisations",
            scene.name, figures.comparisons, figures.cuts, figures.full, figures.partial
        );
        if let Err(failure) = played {
            failures.push(format!("{}, seed {seed}: {failure}", scene.name));
        }
        all.calls += figures.calls;
        all.comparisons += figures.comparisons;
        all.cuts += figures.cuts;
        all.full += figures.full;
        all.partial += figures.partial;
    }
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    Ok(format!(
        "{} pairs: {} calls in {} rounds, {} cuts, {} full and {} partial resynchronisations",
        PAIRS.len(),
        all.calls,
        all.comparisons,
        all.cuts,
        all.full,
        all.partial
    ))
}

fn play(
    setting: &Setting,
    scene: &Scene,
    seed: u64,
    rounds: u64,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let mut random = Rng::with_seed(seed);
    let mut group = Group::start(setting, scene, &mut random)?;
    // The first snapshot is not cut: each cut of it would be another one.
    group.compare()?;
    let result = (0..rounds).try_for_each(|number| {
        group.round(&mut random, Faults::Cuts, figures)?;
        let primary = &group.members[group.primary()];
        match primary.number("sync_full")? {
            1 => Ok(()),
            more => Err(primary.failed(&format!(
                "round {number}: {more} full synchronisations, though all of the stream was kept"
            ))),
        }
    });
    group.count_syncs(figures)?;
    result
}
