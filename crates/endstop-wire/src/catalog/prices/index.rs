//! The index of the catalogue: the lines of each provider by the names and patterns of their models.
//!
//! ```text
//! let found = section("openai")?.find("gpt-4o-2024-08-06")?; // the first line with a rule that fits
//! ```
//!
//! The rules of a line are `=` for its id, `=x` for the name x, and patterns.

use super::argument::nano_usd;
use endstop_core::NanoUsd;
use std::cmp::Ordering;
use std::sync::LazyLock;

/// The price table. Each provider starts with `@provider TAB fallback provider …`, followed by its
/// models, first match first:
/// `id TAB input TAB output TAB cached TAB cache write TAB context window TAB "~" if not exact
/// TAB variant SPACE variant … TAB rule SPACE rule …`. Prices are dollars per million tokens. A model
/// without an input price has no price. For the variants see the module `variant`.
const CATALOGUE: &str = include_str!("../../../data/prices.tsv");

/// One line of the catalogue.
pub(super) struct Found {
    pub(super) provider: &'static str,
    line: &'static str,
}

impl Found {
    pub(super) fn field(&self, at: usize) -> &'static str {
        self.line.split('\t').nth(at).unwrap_or("")
    }

    pub(super) fn price(&self, at: usize) -> Option<NanoUsd> {
        nano_usd(self.field(at)).ok()
    }

    pub(super) fn context_window(&self) -> Option<u64> {
        self.field(5).parse().ok()
    }
}

/// A provider of the catalogue.
pub(super) struct Section {
    id: &'static str,
    /// The providers whose models it serves too.
    pub(super) fallbacks: &'static str,
    /// Names, each with the offset of its line; sorted, also by offset.
    names: Vec<(&'static str, usize)>,
    /// Patterns, each with the offset of its line, in the order of the lines.
    patterns: Vec<(&'static str, usize)>,
}

/// Returns the date in the first line of the catalogue.
pub(super) fn date() -> &'static str {
    let line = CATALOGUE.lines().next().unwrap_or_default();
    let rest = line.split_once("as of ").map_or("", |(_, rest)| rest);
    rest.split_once(". ").map_or(rest, |(date, _)| date)
}

/// All providers, sorted by id.
static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let mut sections: Vec<Section> = Vec::new();
    let mut offset = 0;
    for line in CATALOGUE.split_inclusive('\n') {
        let at = offset;
        offset += line.len();
        let line = line.trim_end_matches('\n');
        if let Some(head) = line.strip_prefix('@') {
            let (id, fallbacks) = head.split_once('\t').unwrap_or((head, ""));
            let (names, patterns) = (Vec::new(), Vec::new());
            sections.push(Section { id, fallbacks, names, patterns });
        } else if let Some(section) = sections.last_mut() {
            section.add(line, at);
        }
    }
    for section in &mut sections {
        section.names.sort_by(|a, b| compared(a.0, b.0).then(a.1.cmp(&b.1)));
        section.names.shrink_to_fit();
        section.patterns.shrink_to_fit();
    }
    // Stable: the first of several sections of one provider counts.
    sections.sort_by_key(|section| section.id);
    sections
});

/// Returns the lines of a provider.
pub(super) fn section(id: &str) -> Option<&'static Section> {
    let first = SECTIONS.partition_point(|section| section.id < id);
    SECTIONS.get(first).filter(|section| section.id == id)
}

impl Section {
    fn add(&mut self, line: &'static str, at: usize) {
        let (rest, rules) = line.rsplit_once('\t').unwrap_or((line, ""));
        let id = rest.split('\t').next().unwrap_or("");
        for rule in rules.split(' ') {
            match rule.strip_prefix('=') {
                Some("") => self.names.push((id, at)),
                // A name in upper case equals no name in lower case.
                Some(name) if name.bytes().any(|byte| byte.is_ascii_uppercase()) => {}
                Some(name) => self.names.push((name, at)),
                None => self.patterns.push((rule, at)),
            }
        }
    }

    /// Returns the first line with a rule that a model's name in lower case matches.
    pub(super) fn find(&self, model: &str) -> Option<Found> {
        let first = self.names.partition_point(|(name, _)| compared(name, model).is_lt());
        let named = self.names.get(first).filter(|(name, _)| compared(name, model).is_eq());
        let named = named.map(|(_, at)| *at);
        let before = |at: usize| named.is_none_or(|named| at < named);
        let mut patterns = self.patterns.iter().take_while(|(_, at)| before(*at));
        let fits = patterns.find(|(pattern, _)| matches(pattern, model));
        let at = fits.map(|(_, at)| *at).or(named)?;
        let line = CATALOGUE.get(at..)?.lines().next()?;
        Some(Found { provider: self.id, line })
    }
}

/// Compares two names in the order of their letters in lower case, because ids have upper case.
fn compared(a: &str, b: &str) -> Ordering {
    a.bytes()
        .map(|byte| byte.to_ascii_lowercase())
        .cmp(b.bytes().map(|byte| byte.to_ascii_lowercase()))
}

/// Returns `true` if a model's name in lower case matches a pattern: `^x` starts with x, `$x` ends with
/// x, `~x` contains x, `&x` starts with x and is not a speech model, `%x` equals x with a digit for every
/// `#`. If a `*` ends the pattern, anything may follow.
fn matches(rule: &str, model: &str) -> bool {
    let Some((kind, text)) = rule.split_at_checked(1) else {
        return false;
    };
    match kind {
        "^" => model.starts_with(text),
        "$" => model.ends_with(text),
        "~" => model.contains(text),
        "&" => model.starts_with(text) && !is_speech(model),
        "%" => {
            let (pattern, open) = text.strip_suffix('*').map_or((text, false), |p| (p, true));
            let (pattern, model) = (pattern.as_bytes(), model.as_bytes());
            let fits = |(p, m): (&u8, &u8)| {
                if *p == b'#' { m.is_ascii_digit() } else { p == m }
            };
            (model.len() == pattern.len() || (open && model.len() > pattern.len()))
                && pattern.iter().zip(model).all(fits)
        }
        _ => false,
    }
}

fn is_speech(model: &str) -> bool {
    model.split('-').skip(1).any(|part| part == "tts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A line of the table, and its rules.
    type Line = (&'static str, Vec<&'static str>);

    /// The lines of each provider, as the table has them.
    static TABLE: LazyLock<Vec<(&str, Vec<Line>)>> = LazyLock::new(|| {
        let mut table: Vec<(&str, Vec<Line>)> = Vec::new();
        for line in CATALOGUE.lines().skip(1) {
            if let Some(head) = line.strip_prefix('@') {
                table.push((head.split('\t').next().unwrap(), Vec::new()));
            } else {
                let rules = line.rsplit('\t').next().unwrap().split(' ').collect();
                table.last_mut().unwrap().1.push((line, rules));
            }
        }
        table
    });

    /// The definition: the first line of the provider with a rule that fits.
    fn scanned(provider: &str, model: &str) -> Option<&'static str> {
        let (_, lines) = TABLE.iter().find(|(id, _)| *id == provider)?;
        let fits = |(line, rules): &&Line| {
            rules.iter().any(|rule| holds(rule, line.split('\t').next().unwrap(), model))
        };
        lines.iter().find(fits).map(|(line, _)| *line)
    }

    fn holds(rule: &str, id: &str, model: &str) -> bool {
        match rule.strip_prefix('=') {
            Some("") => id.eq_ignore_ascii_case(model),
            Some(name) => name == model,
            None => matches(rule, model),
        }
    }

    fn indexed(provider: &str, model: &str) -> Option<&'static str> {
        section(provider)?.find(model).map(|found| found.line)
    }

    /// The id of a line and the texts of its rules, in lower case.
    fn words((line, rules): &Line) -> Vec<String> {
        let rules =
            rules.iter().map(|rule| rule.trim_start_matches(['=', '^', '$', '~', '&', '%']));
        let words = line.split('\t').take(1).chain(rules);
        words.map(|word| word.replace('#', "1").to_lowercase()).collect()
    }

    /// Those of all lines.
    static WORDS: LazyLock<Vec<String>> =
        LazyLock::new(|| TABLE.iter().flat_map(|(_, lines)| lines).flat_map(words).collect());

    #[test]
    fn index_finds_what_a_scan_finds() {
        let (mut found, mut missed) = (0, 0);
        for (provider, lines) in TABLE.iter() {
            // A provider is its first section.
            assert_eq!(section(provider).unwrap().id, *provider);
            for word in lines.iter().flat_map(words) {
                for end in ["", "-20251211", "-2025-12-11", "-tts"] {
                    let model = format!("{word}{end}");
                    let line = indexed(provider, &model);
                    assert_eq!(line, scanned(provider, &model), "{provider}/{model}");
                    found += usize::from(line.is_some());
                    missed += usize::from(line.is_none());
                }
            }
        }
        assert!(found > 2500 && missed > 2500, "{found} {missed}");
    }

    proptest! {
        #[test]
        fn random_names_are_found_as_by_a_scan(
            provider: prop::sample::Index,
            word: prop::sample::Index,
            other: prop::sample::Index,
            from in 0..40usize,
            end in "[-a-z0-9.:@/]{0,6}",
        ) {
            let provider = provider.get(&SECTIONS).id;
            let word = word.get(&WORDS);
            let cut: String = word.chars().skip(from).collect();
            let joined = format!("{}{cut}", other.get(&WORDS));
            for model in [word, &cut, &joined, &end, &format!("{word}{end}")] {
                prop_assert_eq!(indexed(provider, model), scanned(provider, model));
            }
        }
    }

    #[test]
    fn rules_match_whole_patterns_only() {
        for (rule, model, fits) in [
            ("=", "the-id", true),
            ("=", "the-id-2", false),
            ("=other", "other", true),
            ("^pre", "prefix", true),
            ("$fix", "prefix", true),
            ("~ref", "prefix", true),
            ("&gem", "gem-pro", true),
            ("&gem", "gem-tts-pro", false),
            ("&gem", "gem-pro-tts", false),
            ("&gem", "gem-ttsx", true),
            ("%m-##", "m-12", true),
            ("%m-##", "m-123", false),
            ("%m-##", "m-1x", false),
            ("%m-##", "m-1", false),
            ("%m-##*", "m-123", true),
            ("", "the-id", false),
        ] {
            assert_eq!(holds(rule, "The-Id", model), fits, "{rule} {model}");
        }
    }
}
