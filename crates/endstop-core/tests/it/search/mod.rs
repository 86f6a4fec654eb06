//! Exhaustive search: every order of events up to a depth, in small worlds, reaches no state of the
//! kernel that violates a law.
//!
//! ```text
//! let found = search::explore(&search::configs()[0], 6);
//! assert!(found.violations.is_empty());
//! ```
//!
//! Breadth first, so that a violation comes with the shortest sequence of events. A state consists
//! of the run (its `Debug` prints everything that determines the next decision), its policy and the
//! world around it; states that print the same are treated as equal, by 128 bits of hash. A run
//! cannot be cloned, but the kernel is deterministic, so the path to a state is replayed for each
//! step from it.

mod answers;
mod checks;
mod configs;
mod parks;
mod possible;
mod watch;
mod world;

pub use configs::{Config, configs};

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use world::{Action, World};

/// Maximum number of violations that a search reports.
const MOST_TOLD: usize = 5;
/// More events than any world needs to reach its end from any state.
const LONGEST_END: usize = 400;

/// The result of a search.
#[derive(Default)]
pub struct Found {
    /// Number of distinct states.
    pub states: u64,
    /// Number of transitions between states, or to an ending.
    pub transitions: u64,
    /// Depth of the deepest state, in events.
    pub depth: usize,
    /// Number of runs by termination.
    pub endings: BTreeMap<&'static str, u64>,
    /// Number of endings reached by completing the run from each state in one of the [`Ways`].
    pub brought_to_an_end: u64,
    /// Number of violations; `violations` has the first few.
    pub broken: u64,
    /// The violated laws, each with the events that led to it.
    pub violations: Vec<String>,
}

struct Node {
    parent: u32,
    action: Action,
}

/// Explores all states within `depth` events.
pub fn explore(config: &Config, depth: usize) -> Found {
    let mut found = Found::default();
    let mut nodes = vec![Node { parent: 0, action: Action::Begin }];
    let mut seen = HashSet::new();
    seen.insert(fingerprint(&World::new(config)));
    found.states = 1;
    let mut level = 0..1;
    for deep in 1..=depth {
        let next = nodes.len();
        for at in level.clone() {
            let way = way_to(&nodes, at);
            let Some(world) = played(config, &way) else { continue };
            for action in world.enabled() {
                let Some(mut world) = played(config, &way) else { continue };
                found.transitions += 1;
                match world.step(action) {
                    Err(law) => found.tell(&law, config, &way, &[action]),
                    Ok(Some(ending)) => {
                        *found.endings.entry(ending.as_str()).or_default() += 1;
                    }
                    Ok(None) => {
                        if seen.insert(fingerprint(&world)) {
                            nodes.push(Node { parent: at as u32, action });
                            found.states += 1;
                            found.depth = deep;
                        }
                    }
                }
            }
        }
        level = next..nodes.len();
        for at in level.clone() {
            bring_to_an_end(config, &way_to(&nodes, at), &mut found);
        }
        if level.is_empty() {
            break;
        }
    }
    found
}

/// The ways to complete a run from a state.
#[derive(Clone, Copy, Debug)]
enum Ways {
    /// Every open effect gets its normal answer.
    WellAnswered,
    /// Every open effect gets an answer that lets the run continue: calls, vetoes, refusals.
    Stubborn,
    /// No effect is answered; time passes.
    Silence,
}

/// Checks that the run ends from this state if its effects are answered, or if time passes.
fn bring_to_an_end(config: &Config, way: &[Action], found: &mut Found) {
    for ways in [Ways::WellAnswered, Ways::Stubborn, Ways::Silence] {
        let Some(mut world) = played(config, way) else { return };
        let mut then = Vec::new();
        let law = loop {
            let action = match ways {
                Ways::WellAnswered => world.well_answered(),
                Ways::Stubborn => world.stubborn(),
                Ways::Silence => world.silence(),
            };
            // The run waits for a person, who has no time limit.
            let Some(action) = action else {
                break match ways {
                    Ways::Silence if world.waits_for_somebody() => None,
                    _ => Some(format!("stuck: {ways:?}, but nothing is due")),
                };
            };
            then.push(action);
            match world.step(action) {
                Err(law) => break Some(law),
                Ok(Some(_)) => {
                    found.brought_to_an_end += 1;
                    break None;
                }
                Ok(None) if then.len() >= LONGEST_END => {
                    break Some(format!("no ending after {LONGEST_END} events of {ways:?}"));
                }
                Ok(None) => {}
            }
        };
        if let Some(law) = law {
            found.tell(&law, config, way, &then);
        }
    }
}

impl Found {
    fn tell(&mut self, law: &str, config: &Config, way: &[Action], then: &[Action]) {
        self.broken += 1;
        if self.violations.len() >= MOST_TOLD {
            return;
        }
        let mut text = format!("{}: {law}\n", config.name);
        let mut world = World::new(config);
        for action in way.iter().chain(then.iter().take(20)) {
            let _ = writeln!(text, "    {}", world.told(*action));
            if !matches!(world.step(*action), Ok(None)) {
                break;
            }
        }
        self.violations.push(text);
    }
}

fn way_to(nodes: &[Node], mut at: usize) -> Vec<Action> {
    let mut way = Vec::new();
    while at != 0 {
        way.push(nodes[at].action);
        at = nodes[at].parent as usize;
    }
    way.reverse();
    way
}

/// Replays these events; none of them ends the run.
fn played<'a>(config: &'a Config, way: &[Action]) -> Option<World<'a>> {
    let mut world = World::new(config);
    for action in way {
        world.play(*action)?;
    }
    Some(world)
}

/// Hashes what a world prints, to 128 bits. The hashers of the standard library take most of a search
/// without optimisation, so this one takes eight bytes per multiplication.
fn fingerprint(world: &World<'_>) -> u128 {
    /// An odd number whose bits look random: the fractional part of the golden ratio.
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let text = format!("{world:?}");
    let mut rest = text.as_bytes();
    let mut hash = text.len() as u128;
    while let Some((word, after)) = rest.split_first_chunk() {
        hash = (hash ^ u128::from(u64::from_le_bytes(*word))).wrapping_mul(FACTOR);
        // A multiplication moves nothing down.
        hash ^= hash >> 67;
        rest = after;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    (hash ^ u128::from(u64::from_le_bytes(last))).wrapping_mul(FACTOR)
}
